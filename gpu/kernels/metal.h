// Prelude for Metal (MSL 2.4), with fast math off. No backend uses it yet: it keeps
// kernels.k within what Metal accepts, and a test has clang check types and address
// spaces. SIMD groups of Apple's cards have 32 threads, as warps have.
#include <metal_stdlib>
using namespace metal;
#pragma METAL fp math_mode(safe)
#pragma METAL fp contract(off)
#pragma clang fp contract(off)
typedef uint u32;
typedef int i32;
typedef long i64;
typedef float f32;
typedef uint2 u32x2;
typedef uint4 u32x4;
typedef float4 f32x4;
#define F32X4(a, b, c, d) float4(a, b, c, d)
#define FN static inline
#define UNROLL _Pragma("unroll")
#define SHARED(T, n, N) threadgroup T n[N];
#define THREAD_X thread_
#define BLOCK_X block_.x
#define BLOCK_Y block_.y
#define BLOCK_Z block_.z
#define BARRIER() threadgroup_barrier(mem_flags::mem_threadgroup)
#define HAS_MMA 0

FN f32 fadd(f32 a, f32 b) { return a + b; }
FN f32 fsub(f32 a, f32 b) { return a - b; }
FN f32 fmul(f32 a, f32 b) { return a * b; }
FN f32 bits_f32(u32 a) { return as_type<f32>(a); }
FN u32 f32_bits(f32 a) { return as_type<u32>(a); }
FN f32 magnitude(f32 a) { return bits_f32(f32_bits(a) & 0x7FFFFFFFu); }
FN f32 i32_to_f32(i32 a) { return f32(a); }
FN i32 round_i32(f32 a) { return i32(rint(a)); }
// By hand, for its rounding is not promised: 24 bits by a shift, to nearest even.
FN f32 i64_to_f32(i64 v) {
  if (v == 0) { return 0.0f; }
  ulong m = v < 0 ? ulong(0) - ulong(v) : ulong(v);
  i32 e = 63 - i32(clz(m));
  if (e > 23) {
    m = (m + (1ul << ulong(e - 24)) - 1ul + ((m >> ulong(e - 23)) & 1ul)) >> ulong(e - 23);
    if (m == (1ul << 24)) { m >>= 1; e++; }
  } else { m <<= ulong(23 - e); }
  return bits_f32((v < 0 ? 0x80000000u : 0u) | (u32(e + 127) << 23u) | (u32(m) & 0x7FFFFFu));
}
FN u32 f32_to_f16(f32 a) { return u32(as_type<ushort>(half(a))); }
FN f32 f16_to_f32(u32 a) { return f32(as_type<half>(ushort(a))); }

FN i32 dp4a(u32 a, u32 b, i32 c) {
  char4 x = as_type<char4>(a); char4 y = as_type<char4>(b);
  return c + i32(x.x) * i32(y.x) + i32(x.y) * i32(y.y) + i32(x.z) * i32(y.z) + i32(x.w) * i32(y.w);
}
FN u32 pick4(u32 lo, u32 hi, u32 s) {
  u32 r = 0u;
  for (u32 i = 0u; i < 4u; i++) {
    u32 n = (s >> (4u * i)) & 7u;
    r |= (((n < 4u ? lo : hi) >> (8u * (n & 3u))) & 255u) << (8u * i);
  }
  return r;
}
FN u32 rotate_right(u32 a, u32 n) { return rotate(a, 32u - n); }
FN u32 warp_xor(u32 v, u32 m) { return simd_shuffle_xor(v, ushort(m)); }
#define ATOMIC_MAX(b, i, v) atomic_fetch_max_explicit((device atomic_uint*)((b) + (i)), v, memory_order_relaxed)
#define ATOMIC_MIN(b, i, v) atomic_fetch_min_explicit((device atomic_int*)((b) + (i)), v, memory_order_relaxed)
#define LOAD_ONCE(b, i) (b)[i]

#define KERNEL_BEGIN(name, threads, meets) [[max_total_threads_per_threadgroup(threads)]] kernel void name(
#define IN0(i, T, n) device const T* n [[buffer(i)]]
#define IN(i, T, n) , device const T* n [[buffer(i)]]
#define OUT(i, T, n) , device T* n [[buffer(i)]]
#define VAL(i, T, n) , constant T& n [[buffer(i)]]
#define KERNEL_ARGS_END , u32 thread_ [[thread_index_in_threadgroup]], uint3 block_ [[threadgroup_position_in_grid]]) {
#define KERNEL_BODY
#define KERNEL_END }
