"""Runs a program on this processor, but what it lacks, AVX-512 and AMX, on Bochs.

    emulate.py PROGRAM [ARGUMENT]...

The program is traced. An instruction that the processor does not know stops it;
from there to the function's return the emulated processor works, on copies of
the pages that it touches. What it changed is written back, and the program goes
on behind the call. So only functions that call none and leave nothing in vector
registers can be emulated: those of package cpu are such.
"""

import bisect
import collections
import ctypes
import os
import signal
import struct
import subprocess
import sys

if "BOCHS_LIBRARY" in os.environ:
    from library import Emulator
else:
    from wheel import Emulator

libc = ctypes.CDLL(None, use_errno=True)
libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]
libc.ptrace.restype = ctypes.c_long
PTRACE_TRACEME, PTRACE_CONT, PTRACE_GETREGS, PTRACE_SETREGS = 0, 7, 12, 13
PTRACE_SETOPTIONS, PTRACE_GETREGSET = 0x4200, 0x4204
PTRACE_O_TRACECLONE, PTRACE_O_EXITKILL = 1 << 3, 1 << 20
WALL = 0x40000000
NT_X86_XSTATE = 0x202

NAMES = "r15 r14 r13 r12 rbp rbx r11 r10 r9 r8 rax rcx rdx rsi rdi orig_rax rip cs rflags rsp ss fs_base gs_base ds es fs gs"
Registers = type("Registers", (ctypes.Structure,), {"_fields_": [(n, ctypes.c_uint64) for n in NAMES.split()]})


class Vector(ctypes.Structure):
    _fields_ = [("base", ctypes.c_void_p), ("len", ctypes.c_size_t)]


def ptrace(request, thread, address=None, data=None):
    if libc.ptrace(request, thread, address, data) < 0:
        raise OSError(ctypes.get_errno(), f"ptrace {request}: {os.strerror(ctypes.get_errno())}")


def vectors(thread):
    """The registers that the processor has, and rubbish where it has none: 32 lists of 8 quads."""
    area = ctypes.create_string_buffer(4096)
    ptrace(PTRACE_GETREGSET, thread, NT_X86_XSTATE, ctypes.byref(Vector(ctypes.addressof(area), len(area))))
    registers = []
    for i in range(32):
        low = [0x7FA5A5A5_7FA5A5A5] * 4
        if i < 16:
            low = list(struct.unpack_from("<2Q", area, 160 + 16 * i) + struct.unpack_from("<2Q", area, 576 + 16 * i))
        registers.append(low + [0x7FA5A5A5_7FA5A5A5] * 4)
    return registers


class Symbols:
    """The program's functions, by address."""

    def __init__(self, program):
        lines = subprocess.run(["go", "tool", "nm", "-n", program], capture_output=True, text=True, check=True).stdout.splitlines()
        text = [(int(f[0], 16), f[2]) for f in map(str.split, lines) if len(f) > 2 and f[1] in "Tt"]
        self.starts, self.names = [t[0] for t in text], [t[1] for t in text]

    def name(self, address):
        return self.names[bisect.bisect(self.starts, address) - 1]


def main(args):
    symbols = Symbols(args[0])
    pid = os.fork()
    if pid == 0:
        ptrace(PTRACE_TRACEME, 0)
        os.execv(args[0], args)
    os.waitpid(pid, 0)
    ptrace(PTRACE_SETOPTIONS, pid, None, PTRACE_O_TRACECLONE | PTRACE_O_EXITKILL)
    emulator = Emulator(pid)
    calls = collections.Counter()
    known = {pid}
    ptrace(PTRACE_CONT, pid)
    while True:
        thread, status = os.waitpid(-1, WALL)
        if os.WIFEXITED(status) or os.WIFSIGNALED(status):
            if thread == pid:
                break
            continue
        sent = os.WSTOPSIG(status)
        if sent == signal.SIGILL:
            regs = Registers()
            ptrace(PTRACE_GETREGS, thread, None, ctypes.byref(regs))
            name = symbols.name(regs.rip)
            problem = emulator.run(regs, vectors(thread))
            if problem:
                print(f"emulate: {name}, at {regs.rip:#x}: {problem}")
                os.kill(pid, signal.SIGKILL)
                return 1
            ptrace(PTRACE_SETREGS, thread, None, ctypes.byref(regs))
            calls[name] += 1
            sent = 0
        elif sent == signal.SIGTRAP or sent == signal.SIGSTOP and thread not in known:
            sent = 0  # a new thread's start, as its parent and as it sees it
        known.add(thread)
        ptrace(PTRACE_CONT, thread, None, sent)
    sys.stdout.flush()
    for name, n in sorted(calls.items()):
        print(f"emulate: {n:6d} calls of {name}")
    if not calls:
        print("emulate: nothing was emulated")
    return os.waitstatus_to_exitcode(status) or not calls


if __name__ == "__main__":
    status = main(sys.argv[1:])
    sys.stdout.flush()
    os._exit(int(status != 0))  # bochscpu crashes where Python cleans up
