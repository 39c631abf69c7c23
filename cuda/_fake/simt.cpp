#include "simt.h"

#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <vector>

namespace simt {

Block blk;
uint32_t tid;
Reg* Reg::head;

namespace {

enum State { NEW, READY, AT_BARRIER, AT_WARP, DONE };

struct Fiber {
  void* sp;
  char* stack;
  State state;
  int line;
  Collective fn;
  void* mine;
};

const Reg* running;
const Slot* arguments;
int order;
void* scheduler;  // its stack pointer while a fiber runs
std::vector<Fiber> fibers;
std::vector<char*> stacks;  // that no fiber has

const size_t kStack = 64 << 10;

}  // namespace

void die(const char* fmt, ...) {
  va_list ap;
  va_start(ap, fmt);
  fprintf(stderr, "fakecuda: kernel %s, block %u,%u,%u, thread %u: ", running ? running->name : "?", blk.x, blk.y, blk.z, tid);
  vfprintf(stderr, fmt, ap);
  fputc('\n', stderr);
  va_end(ap);
  abort();
}

// simt_switch saves what a called function must keep, stores the stack pointer in
// *from and goes on where the stack to was left.
extern "C" void simt_switch(void** from, void* to);
#if defined(__x86_64__)
asm(R"(
.text
.globl simt_switch
.hidden simt_switch
.type simt_switch,@function
simt_switch:
	push %rbp
	push %rbx
	push %r12
	push %r13
	push %r14
	push %r15
	mov %rsp,(%rdi)
	mov %rsi,%rsp
	pop %r15
	pop %r14
	pop %r13
	pop %r12
	pop %rbx
	pop %rbp
	ret
.size simt_switch,.-simt_switch
)");
#elif defined(__aarch64__)
asm(R"(
.text
.globl simt_switch
.hidden simt_switch
.type simt_switch,%function
simt_switch:
	sub sp,sp,#160
	stp x19,x20,[sp]
	stp x21,x22,[sp,#16]
	stp x23,x24,[sp,#32]
	stp x25,x26,[sp,#48]
	stp x27,x28,[sp,#64]
	stp x29,x30,[sp,#80]
	stp d8,d9,[sp,#96]
	stp d10,d11,[sp,#112]
	stp d12,d13,[sp,#128]
	stp d14,d15,[sp,#144]
	mov x9,sp
	str x9,[x0]
	mov sp,x1
	ldp x19,x20,[sp]
	ldp x21,x22,[sp,#16]
	ldp x23,x24,[sp,#32]
	ldp x25,x26,[sp,#48]
	ldp x27,x28,[sp,#64]
	ldp x29,x30,[sp,#80]
	ldp d8,d9,[sp,#96]
	ldp d10,d11,[sp,#112]
	ldp d12,d13,[sp,#128]
	ldp d14,d15,[sp,#144]
	add sp,sp,#160
	ret
.size simt_switch,.-simt_switch
)");
#else
#error "no switch of stacks for this processor"
#endif

namespace {

void entry() {
  running->fn(arguments);
  Fiber& f = fibers[tid];
  f.state = DONE;
  simt_switch(&f.sp, scheduler);
  abort();
}

// begin gives a fiber a stack, the one used last if there is a choice: threads
// that never meet share one, which stays in the cache.
void begin(Fiber& f) {
  if (stacks.empty()) {
    static size_t made;
    char* s = (char*)aligned_alloc(4096, kStack + 4096);
    // Tops that are multiples of the same power of two would share few sets of the cache.
    stacks.push_back(s + (made++ * 192 & 4095 & ~(size_t)63));
  }
  f.stack = stacks.back();
  stacks.pop_back();
  char* top = f.stack + kStack;
#if defined(__x86_64__)
  void** s = (void**)top;
  *--s = nullptr;  // entry's return address: it never returns
  *--s = (void*)entry;
  for (int i = 0; i < 6; i++) *--s = nullptr;
  f.sp = s;
#else
  char* s = top - 160;
  for (int i = 0; i < 20; i++) ((void**)s)[i] = nullptr;
  ((void**)s)[11] = (void*)entry;  // x30
  f.sp = s;
#endif
}

uint64_t seed = 88172645463325252ull;

uint32_t random32() {
  seed ^= seed << 13;
  seed ^= seed >> 7;
  seed ^= seed << 17;
  return (uint32_t)(seed >> 32);
}

// stride puts n lanes or warps, a power of two, in the chosen order. A random one
// is one of n*n/2: what is done at each meeting has to be cheap.
void stride(uint32_t* v, uint32_t n, uint32_t first) {
  uint32_t start = 0, step = 1;
  if (order == 1) start = n - 1, step = n - 1;
  if (order == 2) start = random32(), step = random32() | 1;
  for (uint32_t i = 0; i < n; i++, start += step) v[i] = first + (start & (n - 1));
}

// arrange puts indices first, first+1, … in the chosen order.
void arrange(uint32_t* v, uint32_t n, uint32_t first) {
  for (uint32_t i = 0; i < n; i++) v[i] = first + (order == 1 ? n - 1 - i : i);
  if (order == 2)
    for (uint32_t i = n; i > 1; i--) {
      uint32_t j = random32() % i, t = v[i - 1];
      v[i - 1] = v[j], v[j] = t;
    }
}

uint32_t turn[32], turns, next;  // the lanes of the running warp, in their order

// nextLane returns the next lane that can run, or null.
Fiber* nextLane() {
  while (next < turns) {
    uint32_t t = turn[next++];
    Fiber& f = fibers[t];
    if (f.state == NEW) begin(f);
    else if (f.state != READY) continue;
    tid = t;
    return &f;
  }
  return nullptr;
}

// suspend leaves a thread where others meet it. The next lane goes on at once.
void suspend(State s, int line) {
  Fiber& f = fibers[tid];
  f.state = s;
  f.line = line;
  Fiber* g = nextLane();
  simt_switch(&f.sp, g ? g->sp : scheduler);
}

// runWarp runs lanes until each is at a barrier or has ended.
void runWarp(uint32_t first, uint32_t lanes) {
  for (;;) {
    (lanes & (lanes - 1)) ? arrange(turn, lanes, first) : stride(turn, lanes, first);
    turns = lanes;
    next = 0;
    while (Fiber* f = nextLane()) {
      simt_switch(&scheduler, f->sp);
      // Only one that ended comes back while others are left.
      if (fibers[tid].state == DONE) stacks.push_back(fibers[tid].stack);
    }
    uint32_t meet = 0;
    for (uint32_t l = 0; l < lanes; l++) meet += fibers[first + l].state == AT_WARP;
    if (meet == 0) return;
    void* mine[32];
    for (uint32_t l = 0; l < lanes; l++) {
      Fiber &f = fibers[first + l], &g = fibers[first];
      tid = first + l;
      if (lanes != 32 || meet != lanes || f.line != g.line || f.fn != g.fn)
        die("%u of the warp's %u lanes are at the warp function of line %d", meet, lanes, g.state == AT_WARP ? g.line : f.line);
      mine[l] = f.mine;
      f.state = READY;
    }
    fibers[first].fn(mine);
  }
}

// runAlone runs threads that never meet, without fibers.
void runAlone() {
  uint32_t turn[1024];
  arrange(turn, blk.threads, 0);
  for (uint32_t i = 0; i < blk.threads; i++) {
    tid = turn[i];
    running->fn(arguments);
  }
}

void runBlock() {
  uint32_t warps = (blk.threads + 31) / 32, order[32];
  for (uint32_t i = 0; i < blk.threads; i++) fibers[i].state = NEW;
  for (;;) {
    arrange(order, warps, 0);
    for (uint32_t i = 0; i < warps; i++) {
      uint32_t first = order[i] * 32, left = blk.threads - first;
      runWarp(first, left < 32 ? left : 32);
    }
    uint32_t ended = 0;
    for (uint32_t i = 0; i < blk.threads; i++) ended += fibers[i].state == DONE;
    if (ended == blk.threads) return;
    for (uint32_t i = 0; i < blk.threads; i++) {
      Fiber& f = fibers[i];
      tid = i;
      if (ended != 0 || f.line != fibers[0].line) die("%u threads ended, others are at barriers of lines %d and %d", ended, fibers[0].line, f.line);
      f.state = READY;
    }
  }
}

}  // namespace

void barrier(int line) {
  if (!running->meets) die("a barrier at line %d of a kernel that says its threads never meet", line);
  suspend(AT_BARRIER, line);
}

void warp(Collective fn, void* mine, int line) {
  if (!running->meets) die("a warp function at line %d of a kernel that says its threads never meet", line);
  Fiber& f = fibers[tid];
  f.fn = fn;
  f.mine = mine;
  suspend(AT_WARP, line);
}

void launch(const Reg* k, const Slot* args, const uint32_t grid[3], int ord) {
  running = k;
  arguments = args;
  order = ord;
  if (fibers.size() < k->threads) fibers.resize(k->threads);
  uint64_t blocks = (uint64_t)grid[0] * grid[1] * grid[2];
  std::vector<uint32_t> turn(blocks);
  arrange(turn.data(), (uint32_t)blocks, 0);
  for (uint32_t b : turn) {
    blk = Block{b % grid[0], b / grid[0] % grid[1], b / grid[0] / grid[1], grid[0], grid[1], grid[2], k->threads, blk.serial + 1};
    k->meets ? runBlock() : runAlone();
  }
  running = nullptr;
}

}  // namespace simt
