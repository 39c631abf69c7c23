// Prelude for Vulkan: with it, one kernel of kernels.k is a shader in GLSL. No backend
// uses it yet: it keeps the text within what GLSL accepts, and a test compiles every
// kernel to SPIR-V and validates it. A subgroup must have 32 threads or more
// (VK_EXT_subgroup_size_control), so that a warp lies in one.
#define u32 uint
#define i32 int
#define i64 int64_t
#define f32 float
#define u32x2 uvec2
#define u32x4 uvec4
#define f32x4 vec4
#define F32X4(a, b, c, d) vec4(a, b, c, d)
#define FN
#define UNROLL
#define SHARED(T, n, N) shared T n[N];
#define THREAD_X gl_LocalInvocationID.x
#define BLOCK_X gl_WorkGroupID.x
#define BLOCK_Y gl_WorkGroupID.y
#define BLOCK_Z gl_WorkGroupID.z
#define BARRIER() barrier()
#define HAS_MMA 0

// precise is SPIR-V's NoContraction.
f32 fadd(f32 a, f32 b) { precise f32 r = a + b; return r; }
f32 fsub(f32 a, f32 b) { precise f32 r = a - b; return r; }
f32 fmul(f32 a, f32 b) { precise f32 r = a * b; return r; }
f32 bits_f32(u32 a) { return uintBitsToFloat(a); }
u32 f32_bits(f32 a) { return floatBitsToUint(a); }
f32 magnitude(f32 a) { return bits_f32(f32_bits(a) & 0x7FFFFFFFu); }
f32 i32_to_f32(i32 a) { return f32(a); }
f32 i64_to_f32(i64 a) { return f32(a); }
i32 round_i32(f32 a) { return i32(roundEven(a)); }
// By hand: packHalf2x16 may round either way.
u32 f32_to_f16(f32 a) {
  u32 b = f32_bits(a); u32 s = (b >> 16u) & 0x8000u; u32 m = b & 0x7FFFFFFFu;
  if (m > 0x7F800000u) { return 0x7E00u; }
  if (m >= 0x477FF000u) { return s | 0x7C00u; }
  if (m < 0x33000000u) { return s; }
  u32 n = 13u;
  if (m < 0x38800000u) { n = 126u - (m >> 23u); m = (m & 0x7FFFFFu) | 0x800000u; } else { m -= 0x38000000u; }
  return s | ((m + (1u << (n - 1u)) - 1u + ((m >> n) & 1u)) >> n);
}
f32 f16_to_f32(u32 a) { return unpackHalf2x16(a & 0xFFFFu).x; }

// OpSDotKHR on four bytes: SPV_KHR_integer_dot_product, format 0.
spirv_instruction(extensions = ["SPV_KHR_integer_dot_product"], capabilities = [6019, 6018], id = 4450) i32 sdot_(i32 a, i32 b, spirv_literal i32 format);
i32 dp4a(u32 a, u32 b, i32 c) { return c + sdot_(i32(a), i32(b), 0); }
u32 pick4(u32 lo, u32 hi, u32 s) {
  u32 r = 0u;
  for (u32 i = 0u; i < 4u; i++) {
    u32 n = (s >> (4u * i)) & 7u;
    r |= (((n < 4u ? lo : hi) >> (8u * (n & 3u))) & 255u) << (8u * i);
  }
  return r;
}
u32 rotate_right(u32 a, u32 n) { return n == 0u ? a : (a >> n) | (a << (32u - n)); }
u32 warp_xor(u32 v, u32 m) { return subgroupShuffleXor(v, m); }
#define ATOMIC_MAX(b, i, v) atomicMax(b[i], v)
#define ATOMIC_MIN(b, i, v) atomicMin(b[i], v)
#define LOAD_ONCE(b, i) b[i]

#define KERNEL_BEGIN(name, threads, meets) layout(local_size_x = threads) in;
#define IN0(i, T, n) layout(std430, binding = i) readonly buffer B_##n { T n[]; };
#define IN(i, T, n) layout(std430, binding = i) readonly buffer B_##n { T n[]; };
#define OUT(i, T, n) layout(std430, binding = i) buffer B_##n { T n[]; };
#define VAL(i, T, n) layout(std430, binding = i) readonly buffer B_##n { T n; };
#define KERNEL_ARGS_END
#define KERNEL_BODY void main() {
#define KERNEL_END }
