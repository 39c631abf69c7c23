"""Runs a program on this processor, but its AVX-512 functions on Bochs.

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

import bochscpu
from bochscpu import cpu as bochs_cpu
from bochscpu import memory

PAGE = 4096
RET = bochscpu.InstructionType.IS_RET.value
GB = 30  # bits of an address within a gigabyte

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
GENERAL = "rax rbx rcx rdx rsi rdi rbp rsp r8 r9 r10 r11 r12 r13 r14 r15 rip rflags".split()


class Vector(ctypes.Structure):
    _fields_ = [("base", ctypes.c_void_p), ("len", ctypes.c_size_t)]


def ptrace(request, thread, address=None, data=None):
    if libc.ptrace(request, thread, address, data) < 0:
        raise OSError(ctypes.get_errno(), f"ptrace {request}: {os.strerror(ctypes.get_errno())}")


class Emulator:
    """A processor in 64-bit mode whose memory is that of the traced process.

    Physical addresses are shorter than linear ones. A page table maps gigabytes
    as they are first used: a fault adds one and the call starts again.
    """

    TABLES = 0x70_0000_0000

    def __init__(self, pid):
        self.mem = os.open(f"/proc/{pid}/mem", os.O_RDWR)
        self.pages = {}  # physical address: (host address, what it held)
        self.spare = []  # host pages
        self.problem = None

        self.session = bochscpu.Session()
        self.session.missing_page_handler = self.missing
        hook = bochscpu.Hook()
        hook.ucnear_branch = self.branch
        hook.exception = self.exception
        self.hooks = [hook]

        self.physical = {}  # number of a gigabyte: that in physical memory
        self.linear = []
        self.tables = {}  # number of 512 gigabytes, -1 for the root: the table's host address
        self.table(-1)

        state = bochscpu.State()
        bochs_cpu.set_long_mode(state)
        state.cr3 = self.TABLES
        state.cr4 |= 1 << 9 | 1 << 10 | 1 << 18  # SSE, its exceptions, XSAVE
        state.xcr0 = 0xE7  # up to the registers of AVX-512
        state.mxcsr, state.mxcsr_mask = 0x1F80, 0xFFFF
        code, data = bochscpu.Segment(), bochscpu.Segment()
        for segment, selector, attr in ((code, 0x33, 0xAFFB), (data, 0x2B, 0xCFF3)):
            segment.present, segment.selector, segment.base, segment.limit, segment.attr = True, selector, 0, 0xFFFFFFFF, attr
        state.cs = code
        state.ss = state.ds = state.es = state.fs = state.gs = data
        self.state = state

    def table(self, number):
        """Returns the host address of a table of gigabytes."""
        if number not in self.tables:
            at = self.TABLES + PAGE * len(self.tables)
            self.tables[number] = self.insert(at, bytes(PAGE))
            if number >= 0:
                ctypes.c_uint64.from_address(self.tables[-1] + 8 * number).value = at | 7  # user, writable, present
        return self.tables[number]

    def map(self, linear):
        gigabyte = linear >> GB
        if gigabyte in self.physical or gigabyte >= 1 << 17:
            return False
        self.physical[gigabyte] = len(self.linear)
        entry = self.table(gigabyte >> 9) + 8 * (gigabyte & 511)
        ctypes.c_uint64.from_address(entry).value = len(self.linear) << GB | 0x87  # a large page
        self.linear.append(gigabyte)
        return True

    def address(self, physical):
        return self.linear[physical >> GB] << GB | physical & ((1 << GB) - 1)

    def insert(self, physical, data):
        host = self.spare.pop() if self.spare else memory.allocate_host_page()
        ctypes.memmove(host, bytes(data), PAGE)
        memory.page_insert(physical, host)
        return host

    def missing(self, physical):
        physical &= -PAGE
        at = self.address(physical)
        try:
            data = os.pread(self.mem, PAGE, at)
        except OSError:
            data = b""
        if len(data) != PAGE:
            self.problem = f"access to {at:#x}, which is not mapped"
            data = bytes(PAGE)
            self.session.stop()
        self.pages[physical] = self.insert(physical, data), data

    def branch(self, session, cpu, what, source, target):
        if what == RET:
            session.stop()

    def exception(self, session, cpu, vector, error):
        at = session.cpu.state.cr2
        self.again = vector == 14 and self.map(at)
        if not self.again:
            self.problem = f"exception {vector} ({error:#x}), CR2 {at:#x}"
        session.stop()

    def run(self, thread, regs):
        """Goes on from regs to the return and changes them, or returns what went wrong."""
        vectors = self.vectors(thread)
        self.again = True
        while self.again:
            self.again = False
            self.forget()
            for name in GENERAL:
                setattr(self.state, name, getattr(regs, name))
            self.state.zmm = vectors
            self.session.cpu.state = self.state
            self.session.run(self.hooks)
        if self.problem:
            return self.problem
        after = self.session.cpu.state
        for name in GENERAL:
            setattr(regs, name, getattr(after, name))
        self.write_back()
        self.forget()

    def vectors(self, thread):
        """The registers that the processor has, and rubbish where it has none."""
        area = ctypes.create_string_buffer(4096)
        ptrace(PTRACE_GETREGSET, thread, NT_X86_XSTATE, ctypes.byref(Vector(ctypes.addressof(area), len(area))))
        registers = []
        for i in range(32):
            z = bochscpu._bochscpu.Zmm()
            low = [0x7FA5A5A5_7FA5A5A5] * 4
            if i < 16:
                low = list(struct.unpack_from("<2Q", area, 160 + 16 * i) + struct.unpack_from("<2Q", area, 576 + 16 * i))
            z.q = low + [0x7FA5A5A5_7FA5A5A5] * 4
            registers.append(z)
        return registers

    def write_back(self):
        for physical, (host, old) in self.pages.items():
            new = ctypes.string_at(host, PAGE)
            if new == old:
                continue
            # Only what changed: the program's other threads write, too.
            changed = [i for i in range(PAGE) if new[i] != old[i]]
            at = self.address(physical)
            while changed:
                n = 1
                while n < len(changed) and changed[n] == changed[0] + n:
                    n += 1
                os.pwrite(self.mem, new[changed[0] : changed[0] + n], at + changed[0])
                changed = changed[n:]

    def forget(self):
        for physical, (host, _) in self.pages.items():
            memory.page_remove(physical)
            self.spare.append(host)
        self.pages.clear()


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
            problem = emulator.run(thread, regs)
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
