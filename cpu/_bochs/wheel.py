"""Bochs's processor as the wheel bochscpu-python has it, without tiles."""

import ctypes
import os

import bochscpu
from bochscpu import cpu as bochs_cpu
from bochscpu import memory

PAGE = 4096
RET = bochscpu.InstructionType.IS_RET.value
GB = 30  # bits of an address within a gigabyte

GENERAL = "rax rbx rcx rdx rsi rdi rbp rsp r8 r9 r10 r11 r12 r13 r14 r15 rip rflags".split()


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

    def run(self, regs, vectors):
        """Goes on from regs to the return and changes them, or returns what went wrong."""
        self.again = True
        while self.again:
            self.again = False
            self.forget()
            for name in GENERAL:
                setattr(self.state, name, getattr(regs, name))
            self.state.zmm = [zmm(v) for v in vectors]
            self.session.cpu.state = self.state
            self.session.run(self.hooks)
        if self.problem:
            return self.problem
        after = self.session.cpu.state
        for name in GENERAL:
            setattr(regs, name, getattr(after, name))
        self.write_back()
        self.forget()

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


def zmm(quads):
    z = bochscpu._bochscpu.Zmm()
    z.q = quads
    return z
