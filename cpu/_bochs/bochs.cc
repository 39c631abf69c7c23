// The processor of Bochs 3 as a library: what emulate.py needs and no more. It runs
// a function to its return on the memory of another process, of which it copies the
// pages that it touches.
#include "bochs.h"
#include "cpu/cpu.h"
#include "memory/memory-bochs.h"
#include "pc_system.h"
#include "param_names.h"
#include "gui/siminterface.h"

#include <setjmp.h>
#include <string.h>
#include <unistd.h>
#include <unordered_map>
#include <vector>

void bx_init_siminterface();
void bx_init_options();

struct state {
	Bit64u general[16], rip, rflags; // in the order of instructions
	Bit64u zmm[32][8];
};

static const Bit64u memory = 256 << 20, first = 1 << 20;
static const unsigned page = 4096;

struct copied {
	Bit64u linear;
	Bit8u old[page];
};

static int process;                // /proc/PID/mem
static Bit64u next_page;           // of the emulated memory
static std::vector<copied> copies; // of the process's memory, from the first page behind the tables on
static std::unordered_map<Bit64u, Bit64u> places;
static jmp_buf stop;
static char problem[200];

enum { again = 1, returned, failed };

static Bit8u *host(Bit64u physical) { return BX_MEM(0)->getHostMemAddr(NULL, physical, BX_RW); }

static Bit64u new_page() {
	if (next_page + page > memory) {
		snprintf(problem, sizeof problem, "more than %d MiB of memory in one call", int(memory >> 20));
		longjmp(stop, failed);
	}
	Bit64u at = next_page;
	next_page += page;
	memset(host(at), 0, page);
	return at;
}

// map copies a page and enters it into the tables.
static void map(Bit64u linear) {
	linear &= -Bit64u(page);
	copied c;
	c.linear = linear;
	if (pread(process, c.old, page, linear) != page) {
		snprintf(problem, sizeof problem, "access to %#llx, which is not mapped", (unsigned long long)linear);
		longjmp(stop, failed);
	}
	Bit64u table = first;
	for (int shift = 39;; shift -= 9) {
		Bit64u *entry = (Bit64u *)host(table) + (linear >> shift & 511);
		if (!*entry) *entry = new_page() | 7; // user, writable, present
		table = *entry & -Bit64u(page);
		if (shift == 12) break;
	}
	memcpy(host(table), c.old, page);
	places[linear] = table;
	copies.push_back(c);
}

extern "C" void npack_branch(unsigned what) {
	if (what == BX_INSTR_IS_RET) longjmp(stop, returned);
}

extern "C" void npack_exception(unsigned vector, unsigned error) {
	Bit64u at = bx_cpu.cr2;
	bx_cpu.gen_reg[BX_64BIT_REG_RIP].rrx = bx_cpu.prev_rip;
	if (bx_cpu.speculative_rsp) bx_cpu.gen_reg[BX_64BIT_REG_RSP].rrx = bx_cpu.prev_rsp;
	bx_cpu.speculative_rsp = false;
	if (vector == BX_PF_EXCEPTION && !places.count(at & -Bit64u(page))) {
		map(at);
		longjmp(stop, again);
	}
	snprintf(problem, sizeof problem, "exception %u (%#x) at %#llx, CR2 %#llx", vector, error, (unsigned long long)bx_cpu.prev_rip, (unsigned long long)at);
	longjmp(stop, failed);
}

// start makes a processor of the model of that name.
extern "C" int start(const char *model) {
	bx_init_siminterface();
	bx_init_options();
	for (int module = 0; module < SIM->get_n_log_modules(); module++)
		for (int level : {LOGLEV_DEBUG, LOGLEV_INFO}) SIM->set_log_action(module, level, ACT_IGNORE);
	if (!SIM->get_param_enum(BXPN_CPU_MODEL)->set_by_name(model)) return 0;
	bx_pc_system.initialize(1000000);
	bx_pc_system.set_enable_a20(1);
	BX_MEM(0)->init_memory(memory, memory, 1 << 20);
	bx_cpu.initialize();
	bx_cpu.reset(BX_RESET_HARDWARE);

	bx_cpu.cr0.set32(0x80000031);             // paging, FPU, protected mode
	bx_cpu.cr4.set32(1 << 5 | 1 << 9 | 1 << 10 | 1 << 18); // PAE, SSE, its exceptions, XSAVE
	bx_cpu.efer.set32(1 << 8 | 1 << 10);      // long mode
	bx_cpu.cr3 = first;
	bx_cpu.xcr0.set32(bx_cpu.xcr0_suppmask);
	bx_segment_reg_t *code = &bx_cpu.sregs[BX_SEG_REG_CS];
	for (int i = 0; i < 6; i++) {
		bx_segment_reg_t *s = &bx_cpu.sregs[i];
		s->selector.value = i == BX_SEG_REG_CS ? 0x33 : 0x2b;
		s->selector.rpl = 3;
		s->cache.valid = SegValidCache;
		s->cache.p = 1;
		s->cache.dpl = 3;
		s->cache.segment = 1;
		s->cache.type = i == BX_SEG_REG_CS ? 11 : 3;
		s->cache.u.segment.base = 0;
		s->cache.u.segment.limit_scaled = 0xffffffff;
		s->cache.u.segment.g = 1;
		s->cache.u.segment.d_b = i != BX_SEG_REG_CS;
	}
	code->cache.u.segment.l = 1;
	bx_cpu.handleCpuModeChange();
	bx_cpu.handleAlignmentCheck();
	return 1;
}

// run goes on from s to the return of the function and changes it, or says what
// went wrong.
extern "C" const char *run(int mem, struct state *s) {
	process = mem;
	next_page = first;
	copies.clear();
	places.clear();
	problem[0] = 0;
	bx_cpu.TLB_flush();
	bx_cpu.iCache.flushICacheEntries();
	for (int i = 0; i < 16; i++) bx_cpu.gen_reg[i].rrx = s->general[i];
	bx_cpu.gen_reg[BX_64BIT_REG_RIP].rrx = bx_cpu.prev_rip = s->rip;
	bx_cpu.setEFlags(Bit32u(s->rflags & 0xcd5) | 2);
	for (int i = 0; i < 32; i++)
		for (int j = 0; j < 8; j++) bx_cpu.vmm[i].zmm64u(j) = s->zmm[i][j];
	switch (setjmp(stop)) {
	case 0:
		new_page(); // the root
		// fall through
	case again:
		bx_cpu.invalidate_prefetch_q();
		bx_cpu.async_event = 0;
		bx_cpu.cpu_loop();
		snprintf(problem, sizeof problem, "the processor stopped");
	case failed:
		return problem;
	}
	for (int i = 0; i < 16; i++) s->general[i] = bx_cpu.gen_reg[i].rrx;
	s->rip = bx_cpu.gen_reg[BX_64BIT_REG_RIP].rrx;
	s->rflags = bx_cpu.read_eflags();
	for (const copied &c : copies) {
		const Bit8u *now = host(places[c.linear]);
		for (unsigned i = 0, n; i < page; i += n) { // only what changed: the program's other threads write, too
			for (n = 0; i + n < page && now[i + n] != c.old[i + n]; n++)
				;
			if (n && pwrite(process, now + i, n, c.linear + i) != ssize_t(n)) return "write failed";
			n += !n;
		}
	}
	return NULL;
}
