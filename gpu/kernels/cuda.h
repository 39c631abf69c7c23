// Prelude for CUDA: clang's CUDA mode without any SDK (make kernels).
typedef unsigned int u32;
typedef int i32;
typedef long long i64;
typedef float f32;
typedef u32 u32x2 __attribute__((ext_vector_type(2)));
typedef u32 u32x4 __attribute__((ext_vector_type(4)));
typedef f32 f32x4 __attribute__((ext_vector_type(4)));
#define F32X4(a, b, c, d) f32x4{a, b, c, d}
#define UNROLL _Pragma("unroll")
#define FN static __attribute__((device, always_inline))
#define SHARED(T, n, N) static __attribute__((shared)) T n[N];
#define THREAD_X u32(__nvvm_read_ptx_sreg_tid_x())
#define BLOCK_X u32(__nvvm_read_ptx_sreg_ctaid_x())
#define BLOCK_Y u32(__nvvm_read_ptx_sreg_ctaid_y())
#define BLOCK_Z u32(__nvvm_read_ptx_sreg_ctaid_z())
#define BARRIER() __syncthreads()

// Every f32 operation is one PTX instruction with its rounding written out, which
// neither ptxas nor the driver's compiler may contract or flush.
FN f32 fadd(f32 a, f32 b) { f32 r; asm("add.rn.f32 %0, %1, %2;" : "=f"(r) : "f"(a), "f"(b)); return r; }
FN f32 fsub(f32 a, f32 b) { f32 r; asm("sub.rn.f32 %0, %1, %2;" : "=f"(r) : "f"(a), "f"(b)); return r; }
FN f32 fmul(f32 a, f32 b) { f32 r; asm("mul.rn.f32 %0, %1, %2;" : "=f"(r) : "f"(a), "f"(b)); return r; }
FN f32 magnitude(f32 a) { f32 r; asm("abs.f32 %0, %1;" : "=f"(r) : "f"(a)); return r; }
FN f32 i64_to_f32(i64 a) { f32 r; asm("cvt.rn.f32.s64 %0, %1;" : "=f"(r) : "l"(a)); return r; }
FN f32 i32_to_f32(i32 a) { f32 r; asm("cvt.rn.f32.s32 %0, %1;" : "=f"(r) : "r"(a)); return r; }
FN i32 round_i32(f32 a) { i32 r; asm("cvt.rni.s32.f32 %0, %1;" : "=r"(r) : "f"(a)); return r; }
FN f32 bits_f32(u32 a) { f32 r; asm("mov.b32 %0, %1;" : "=f"(r) : "r"(a)); return r; }
FN u32 f32_bits(f32 a) { u32 r; asm("mov.b32 %0, %1;" : "=r"(r) : "f"(a)); return r; }
// Half precision in the low 16 bits.
FN u32 f32_to_f16(f32 a) { u32 r; asm("{.reg .b16 h; cvt.rn.f16.f32 h, %1; cvt.u32.u16 %0, h;}" : "=r"(r) : "f"(a)); return r; }
FN f32 f16_to_f32(u32 a) { f32 r; asm("{.reg .b16 h; cvt.u16.u32 h, %1; cvt.f32.f16 %0, h;}" : "=f"(r) : "r"(a)); return r; }

FN i32 dp4a(u32 a, u32 b, i32 c) { i32 r; asm("dp4a.s32.s32 %0, %1, %2, %3;" : "=r"(r) : "r"(a), "r"(b), "r"(c)); return r; }
// Four bytes of the eight in lo and hi, chosen by the low four nibbles of s (0..7).
FN u32 pick4(u32 lo, u32 hi, u32 s) { u32 r; asm("prmt.b32 %0, %1, %2, %3;" : "=r"(r) : "r"(lo), "r"(hi), "r"(s)); return r; }
FN u32 rotate_right(u32 a, u32 n) { u32 r; asm("shf.r.wrap.b32 %0, %1, %1, %2;" : "=r"(r) : "r"(a), "r"(n)); return r; }

// Warp functions: a warp is 32 neighbouring threads.
FN u32 warp_xor(u32 v, u32 m) { u32 r; asm volatile("shfl.sync.bfly.b32 %0, %1, %2, 31, 0xffffffff;" : "=r"(r) : "r"(v), "r"(m)); return r; }
FN u32 warp_ballot(u32 bit) { u32 r; asm volatile("{.reg .pred p; setp.ne.u32 p, %1, 0; vote.sync.ballot.b32 %0, p, 0xffffffff;}" : "=r"(r) : "r"(bit)); return r; }

// b[i] = max(b[i], v), min for i32, as one step among all threads.
#define ATOMIC_MAX(b, i, v) red_max(b + (i), v)
#define ATOMIC_MIN(b, i, v) red_min(b + (i), v)
FN void red_max(u32* p, u32 v) { asm volatile("red.global.max.u32 [%0], %1;" :: "l"((__attribute__((address_space(1))) u32*)p), "r"(v) : "memory"); }
FN void red_min(i32* p, i32 v) { asm volatile("red.global.min.s32 [%0], %1;" :: "l"((__attribute__((address_space(1))) i32*)p), "r"(v) : "memory"); }

// Weights are read once: past the first-level cache, which is for activations.
#define LOAD_ONCE(b, i) load_once(b + (i))
FN u32x4 load_once(const u32x4* p) {
  u32x4 r;
  asm("ld.global.cs.nc.v4.u32 {%0, %1, %2, %3}, [%4];" : "=r"(r.x), "=r"(r.y), "=r"(r.z), "=r"(r.w) : "l"((const __attribute__((address_space(1))) u32x4*)p));
  return r;
}

#if __CUDA_ARCH__ >= 800
#define HAS_MMA 1
// c[16][8] += a[16][32] * b[32][8] in int8, by the fragments of the PTX manual:
// lane 4g+t has rows g, g+8 of a and column g of b.
#define MMA_S8(c0, c1, c2, c3, a0, a1, a2, a3, b0, b1) \
  asm volatile("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};" \
      : "+r"(c0), "+r"(c1), "+r"(c2), "+r"(c3) : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1))
// The same for a[16][256], b[256][8] of single bits: the sum of a & b.
#define MMA_B1(c0, c1, c2, c3, a0, a1, a2, a3, b0, b1) \
  asm volatile("mma.sync.aligned.m16n8k256.row.col.s32.b1.b1.s32.and.popc {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};" \
      : "+r"(c0), "+r"(c1), "+r"(c2), "+r"(c3) : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1))
#else
#define HAS_MMA 0
#endif

#define KERNEL_BEGIN(name, threads, meets) extern "C" __attribute__((global, launch_bounds(threads, 1))) void name(
#define IN0(i, T, n) const T* __restrict__ n
#define IN(i, T, n) , const T* __restrict__ n
#define OUT(i, T, n) , T* __restrict__ n
#define VAL(i, T, n) , T n
#define KERNEL_ARGS_END ) {
#define KERNEL_BODY
#define KERNEL_END }
