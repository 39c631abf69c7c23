// A machine of one block at a time for kernels compiled for the host. Each
// thread of a block is a fiber; barriers and warp functions are where fibers
// meet. There is one OS thread, so nothing here is thread_local.
#pragma once
#include <cstddef>
#include <cstdint>

namespace simt {

// Block is the running block: its place in the grid, the grid, and a number that
// no other block of the process has (0 is no block's).
struct Block {
  uint32_t x, y, z, gx, gy, gz, threads;
  uint64_t serial;
};
extern Block blk;
extern uint32_t tid;  // of the running thread

// Slot is an argument: device memory, resolved once a launch to a host address
// and the bytes left behind it (null: no buffer), and its raw bits.
struct Slot {
  void* p;
  size_t n;
  uint64_t raw;
};

typedef void (*Kernel)(const Slot*);

// Reg registers a kernel: its name, the threads of a block, and whether they ever
// meet.
struct Reg {
  const char* name;
  Kernel fn;
  uint32_t threads;
  bool meets;
  Reg* next;
  static Reg* head;
  Reg(const char* n, Kernel f, uint32_t t, bool m) : name(n), fn(f), threads(t), meets(m), next(head) { head = this; }
};

// barrier is where all threads of a block meet. A thread that ended or waits at
// another line ends the process with a message.
void barrier(int line);

// warp is where the 32 lanes of a warp meet: fn runs once, with what each lane
// brought.
typedef void (*Collective)(void* lanes[32]);
void warp(Collective fn, void* mine, int line);

// launch runs a grid, blocks and threads in this order: 0 forward, 1 reverse, 2
// random.
void launch(const Reg* k, const Slot* args, const uint32_t grid[3], int order);

[[noreturn]] void die(const char* fmt, ...) __attribute__((format(printf, 1, 2)));

}  // namespace simt
