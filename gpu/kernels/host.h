// Prelude for the host build, of the fake driver in cuda/_fake: each thread of a
// block is a fiber, BARRIER and warp functions are where they meet (simt.h).
// Checked beyond what a card would: every index of a buffer and of a shared array,
// and shared memory that nothing was written to (it holds garbage). Built with
// -ffp-contract=off and without -ffast-math, so that each operation on f32 is one
// of IEEE 754. g++ or clang++.
#include <cmath>
#include <cstring>

#include "simt.h"

typedef uint32_t u32;
typedef int32_t i32;
typedef int64_t i64;
typedef float f32;
struct alignas(8) u32x2 { u32 x, y; };
struct alignas(16) u32x4 { u32 x, y, z, w; };
struct alignas(16) f32x4 { f32 x, y, z, w; };
#define F32X4(a, b, c, d) f32x4{a, b, c, d}
#define UNROLL _Pragma("GCC unroll 48")

#define FN static inline
#define THREAD_X simt::tid
#define BLOCK_X simt::blk.x
#define BLOCK_Y simt::blk.y
#define BLOCK_Z simt::blk.z
#define BARRIER() simt::barrier(__LINE__)

FN f32 fadd(f32 a, f32 b) { return a + b; }
FN f32 fsub(f32 a, f32 b) { return a - b; }
FN f32 fmul(f32 a, f32 b) { return a * b; }
FN f32 magnitude(f32 a) { return std::fabs(a); }
FN f32 i64_to_f32(i64 a) { return (f32)a; }
FN f32 i32_to_f32(i32 a) { return (f32)a; }
// cvt.rni: to even, saturating, 0 for NaN.
FN i32 round_i32(f32 a) {
  if (a != a) return 0;
  if (a >= 0x1p31f) return 0x7fffffff;
  if (a < -0x1p31f) return (i32)0x80000000u;
  return (i32)std::nearbyint(a);
}
FN f32 bits_f32(u32 a) { f32 r; memcpy(&r, &a, 4); return r; }
FN u32 f32_bits(f32 a) { u32 r; memcpy(&r, &a, 4); return r; }

// Half precision in the low 16 bits, to even; also subnormal, infinite and NaN.
FN u32 f32_to_f16(f32 a) {
  u32 b = f32_bits(a), s = b >> 16 & 0x8000u, m = b & 0x7fffffffu;
  if (m > 0x7f800000u) return 0x7fffu;
  if (m >= 0x477ff000u) return s | 0x7c00u;  // 65520 and more
  if (m < 0x38800000u) {                     // below 2^-14: multiples of 2^-24
    return s | (u32)std::nearbyint(std::fabs(a) * 0x1p24f);
  }
  u32 r = m - 0x38000000u;
  return s | (r + 0xfffu + (r >> 13 & 1u)) >> 13;
}
FN f32 f16_to_f32(u32 a) {
  u32 s = (a & 0x8000u) << 16, e = a >> 10 & 31u, m = a & 0x3ffu;
  if (e == 0u) return bits_f32(s | f32_bits((f32)m * 0x1p-24f));
  if (e == 31u) return bits_f32(s | 0x7f800000u | m << 13);
  return bits_f32(s | (e + 112u) << 23 | m << 13);
}

FN i32 dp4a(u32 a, u32 b, i32 c) {
  u32 r = (u32)c;
  for (int i = 0; i < 32; i += 8) r += (u32)((i32)(int8_t)(a >> i) * (i32)(int8_t)(b >> i));
  return (i32)r;
}
FN u32 pick4(u32 lo, u32 hi, u32 s) {
  uint64_t v = (uint64_t)hi << 32 | lo;
  u32 r = 0;
  for (int i = 0; i < 4; i++) r |= (u32)(v >> (s >> 4 * i & 7u) * 8 & 255u) << 8 * i;
  return r;
}
FN u32 rotate_right(u32 a, u32 n) { return a >> (n & 31u) | a << (-n & 31u); }

// Warp functions: the lanes bring a word each, and one of them computes for all.
namespace host {
struct Lane { u32 v, arg, out; };
inline void xorLanes(void* lanes[32]) {
  for (u32 l = 0; l < 32; l++) {
    Lane* me = (Lane*)lanes[l];
    me->out = ((Lane*)lanes[(l ^ me->arg) & 31u])->v;
  }
}
inline void ballotLanes(void* lanes[32]) {
  u32 bits = 0;
  for (u32 l = 0; l < 32; l++) bits |= (u32)(((Lane*)lanes[l])->v != 0u) << l;
  for (u32 l = 0; l < 32; l++) ((Lane*)lanes[l])->out = bits;
}

// A lane's part of a matrix step. Lane 4g+t has rows g and g+8 of a (words t and
// t+4 of each), column g of b, and of c the columns 2t and 2t+1 of its rows. dot
// gets rows and columns of 8 words.
struct Fragment { u32 a[4], b[2]; i32* c[4]; };
template <i32 (*dot)(const u32*, const u32*)> void mma(void* lanes[32]) {
  alignas(32) u32 a[16][8], b[8][8];
  for (u32 l = 0; l < 32; l++) {
    const Fragment* f = (const Fragment*)lanes[l];
    u32 g = l >> 2, t = l & 3u;
    a[g][t] = f->a[0], a[g + 8][t] = f->a[1], a[g][t + 4] = f->a[2], a[g + 8][t + 4] = f->a[3];
    b[g][t] = f->b[0], b[g][t + 4] = f->b[1];
  }
  for (u32 l = 0; l < 32; l++) {
    const Fragment* f = (const Fragment*)lanes[l];
    u32 g = l >> 2, t = l & 3u;
    *f->c[0] += dot(a[g], b[2 * t]);
    *f->c[1] += dot(a[g], b[2 * t + 1]);
    *f->c[2] += dot(a[g + 8], b[2 * t]);
    *f->c[3] += dot(a[g + 8], b[2 * t + 1]);
  }
}
inline i32 dot8(const u32* a, const u32* b) {
  const int8_t *x = (const int8_t*)a, *y = (const int8_t*)b;
  i32 sum = 0;
  for (int i = 0; i < 32; i++) sum += (i32)x[i] * (i32)y[i];
  return sum;
}
inline i32 dot1(const u32* a, const u32* b) {
  i32 sum = 0;
  for (int i = 0; i < 8; i++) sum += __builtin_popcount(a[i] & b[i]);
  return sum;
}
}  // namespace host

FN u32 warp_xor_(u32 v, u32 m, int line) { host::Lane l = {v, m, 0}; simt::warp(host::xorLanes, &l, line); return l.out; }
FN u32 warp_ballot_(u32 bit, int line) { host::Lane l = {bit, 0, 0}; simt::warp(host::ballotLanes, &l, line); return l.out; }
#define warp_xor(v, m) warp_xor_(v, m, __LINE__)
#define warp_ballot(bit) warp_ballot_(bit, __LINE__)

#define HAS_MMA 1
#define MMA_(dot, c0, c1, c2, c3, a0, a1, a2, a3, b0, b1) \
  do { host::Fragment f_ = {{a0, a1, a2, a3}, {b0, b1}, {&(c0), &(c1), &(c2), &(c3)}}; simt::warp(host::mma<host::dot>, &f_, __LINE__); } while (0)
#define MMA_S8(c0, c1, c2, c3, a0, a1, a2, a3, b0, b1) MMA_(dot8, c0, c1, c2, c3, a0, a1, a2, a3, b0, b1)
#define MMA_B1(c0, c1, c2, c3, a0, a1, a2, a3, b0, b1) MMA_(dot1, c0, c1, c2, c3, a0, a1, a2, a3, b0, b1)

// There is one OS thread: what is one step among fibers needs nothing.
#define ATOMIC_MAX(b, i, v) atomic_max_(b, i, v)
#define ATOMIC_MIN(b, i, v) atomic_min_(b, i, v)
template <class B, class T> FN void atomic_max_(B& b, u32 i, T v) { if (b[i] < v) b[i] = v; }
template <class B, class T> FN void atomic_min_(B& b, u32 i, T v) { if (v < b[i]) b[i] = v; }
#define LOAD_ONCE(b, i) (b)[i]

// A buffer of device memory, from a place in it to its end.
template <class T> struct Buf {
  T* p;
  size_t n;
  const char* name;
  Buf(const simt::Slot& s, const char* nm) : p((T*)s.p), n(s.n / sizeof(T)), name(nm) {}
  T& operator[](size_t i) const {
    if (__builtin_expect(i >= n, 0)) simt::die("index %zu of buffer %s, which holds %zu", i, name, n);
    return p[i];
  }
};

// An array that a block shares. Its first use in a block fills it with garbage:
// NaN for f32, -1 for integers.
template <class T, int N, class Tag> struct Shared {
  static T v[N];
  static uint64_t seen;
  Shared() {
    if (seen != simt::blk.serial) memset((void*)v, 0xFF, sizeof v), seen = simt::blk.serial;
  }
  T& operator[](size_t i) const {
    if (__builtin_expect(i >= (size_t)N, 0)) simt::die("index %zu of a shared array of %d", i, N);
    return v[i];
  }
};
template <class T, int N, class Tag> T Shared<T, N, Tag>::v[N];
template <class T, int N, class Tag> uint64_t Shared<T, N, Tag>::seen;

#define KERNEL_BEGIN(name, threads, meets) KERNEL_(name, threads, meets)  // name may be a macro
#define KERNEL_(name, threads, meets) \
  static void k_##name(const simt::Slot*); \
  static simt::Reg reg_##name(#name, k_##name, threads, meets); \
  static void k_##name(const simt::Slot* P_) {
#define IN0(i, T, n) Buf<const T> n(P_[i], #n);
#define IN(i, T, n) Buf<const T> n(P_[i], #n);
#define OUT(i, T, n) Buf<T> n(P_[i], #n);
#define VAL(i, T, n) T n; memcpy(&n, &P_[i].raw, sizeof n);
#define KERNEL_ARGS_END
#define SHARED(T, n, N) struct tag_##n {}; Shared<T, N, tag_##n> n;
#define KERNEL_BODY
#define KERNEL_END }
