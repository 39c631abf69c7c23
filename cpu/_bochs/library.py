"""Bochs's processor as library.sh builds it, with tiles: see bochs.cc."""

import ctypes
import os

GENERAL = "rax rcx rdx rbx rsp rbp rsi rdi r8 r9 r10 r11 r12 r13 r14 r15".split()


class State(ctypes.Structure):
    _fields_ = [("general", ctypes.c_uint64 * 16), ("rip", ctypes.c_uint64), ("rflags", ctypes.c_uint64), ("zmm", ctypes.c_uint64 * 8 * 32)]


class Emulator:
    def __init__(self, pid):
        self.mem = os.open(f"/proc/{pid}/mem", os.O_RDWR)
        self.bochs = ctypes.CDLL(os.environ["BOCHS_LIBRARY"])
        self.bochs.run.restype = ctypes.c_char_p
        model = os.environ["BOCHS_MODEL"]
        if not self.bochs.start(model.encode()):
            raise SystemExit(f"emulate: Bochs has no model {model}")

    def run(self, regs, vectors):
        """Goes on from regs to the return and changes them, or returns what went wrong."""
        s = State((ctypes.c_uint64 * 16)(*(getattr(regs, n) for n in GENERAL)), regs.rip, regs.rflags)
        for i, v in enumerate(vectors):
            s.zmm[i][:] = v
        problem = self.bochs.run(self.mem, ctypes.byref(s))
        if problem is not None:
            return problem.decode()
        for i, n in enumerate(GENERAL):
            setattr(regs, n, s.general[i])
        regs.rip, regs.rflags = s.rip, s.rflags
