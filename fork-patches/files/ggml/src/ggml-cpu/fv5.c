// Dot products of FV5 and FV5B rows, one code path for each instruction set.
//
// An FV5 block holds t in {-1,0,1} and r in {0,1} for 256 weights, t = bp - bn,
// w = t*(r ? s_hi : s_lo). With L and H the integer sums of t*q over r = 0 and
// r = 1, the dot product with fixed point numbers q is d*(s_lo*L + s_hi*H).
// Two sums of unsigned 2-bit codes give both:
//
//   A = sum of q*(1 + t)            1 + t  = 2*bp        + (1^bp^bn)
//   B = sum of q*(1 + (r ? -t : t)) 1 +- t = 2*(bp^br)   + (1^bp^bn)
//   L = (A + B)/2 - sum of q, H = (A - B)/2
//
// The codes come from the planes by XOR, AND and shifts for a whole block at once,
// and unsigned times signed bytes is what the CPUs multiply best. All sums are exact:
// a lane of 32 bits adds at most 64 of the 256 products, |q| < 2^23 and codes are
// at most 2, so A and B stay below 2^30; with the lane's share of the sum of q
// taken off each, so do A + B and A - B.
#include "fv5.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#if defined(FV5_GENERIC)
// tests: the definition, whatever the compiler's target
#elif defined(__AVX512F__) && defined(__AVX512BW__)
#include <immintrin.h>
#define FV5_AVX512
#elif defined(__AVX2__) && defined(__FMA__)
#include <immintrin.h>
#define FV5_AVX2
#elif defined(__ARM_NEON) && defined(__aarch64__)
#include <arm_neon.h>
#define FV5_NEON
#endif

#if defined(_MSC_VER)
#define FV5_INLINE static __forceinline
#else
#define FV5_INLINE static inline __attribute__((always_inline))
#endif

// Weights are read once: ask for them a page ahead. Past the end this does nothing.
#if defined(__GNUC__)
#define FV5_PREFETCH(block) do { \
    __builtin_prefetch((const char *) (block) + 4096); \
    __builtin_prefetch((const char *) (block) + 4096 + 64); \
} while (0)
#else
#define FV5_PREFETCH(block) ((void) (block))
#endif

//
// Activations
//

// The exponent e with 2^(e-1) <= m < 2^e, for a normal m > 0.
static int exponent(float m) {
    uint32_t bits;
    memcpy(&bits, &m, sizeof(bits));
    return (int) (bits >> 23) - 126;
}

// 2^e for -126 <= e <= 127.
static float power(int e) {
    const uint32_t bits = (uint32_t) (e + 127) << 23;
    float f;
    memcpy(&f, &bits, sizeof(f));
    return f;
}

static void act_block(const float * x, block_fv5_act * y, int planes) {
    // Largest number that the planes' signed digits hold: 127, 127*257, 127*65793.
    static const float limit[4] = { 0, 127, 32639, 8355711 };

    float max = 0.0f;
    bool  bad = false;
    for (int c = 0; c < QK_FV5; c++) {
        const float a = fabsf(x[c]);
        bad |= !(a <= FLT_MAX);
        max = a > max ? a : max;
    }
    memset(y, 0, offsetof(block_fv5_act, p) + (size_t) planes*QK_FV5);
    y->planes = planes;
    if (bad) {
        y->d = NAN; // let it show in the result
        return;
    }
    if (max < power(-100)) {
        return;
    }

    // A power of two keeps values that are short in binary exact. One plane has no
    // bit to spare for that.
    float scale;
    if (planes == 1) {
        y->d  = max/127.0f;
        scale = 127.0f/max;
    } else {
        int e = 8*planes - 1 - exponent(max);
        if (!(e <= 126 && max*power(e) + 0.5f < limit[planes] + 1.0f)) {
            e--;
        }
        e     = e > 126 ? 126 : e;
        y->d  = power(-e);
        scale = power(e);
    }

    int32_t q[QK_FV5];
    for (int c = 0; c < QK_FV5; c++) {
        q[c] = (int32_t) (x[c]*scale + copysignf(0.5f, x[c]));
    }
    for (int c = 0; c < QK_FV5; c++) {
        y->sum[c%8] += q[c];
    }
    for (int p = 0; p < planes; p++) {
        for (int i = 0; i < 8; i++) {
            for (int j = 0; j < QK_FV5/8; j++) {
                const int32_t v     = q[8*j + i];
                const int32_t digit = (int8_t) v;
                y->p[p][QK_FV5/8*i + j] = (int8_t) digit;
                q[8*j + i] = (v - digit) >> 8;
            }
        }
    }
}

void fv5_act(const float * x, block_fv5_act * y, int64_t n, int planes) {
    for (int64_t b = 0; b < n/QK_FV5; b++) {
        act_block(x + b*QK_FV5, y + b, planes);
    }
}

void quantize_row_fv5_act(const float * x, void * y, int64_t n) {
    static int planes; // threads may both find 0 and then write the same number
    int p = planes;
    if (p == 0) {
        const char * env = getenv("GGML_FV5_PLANES");
        p = env && env[0] >= '1' && env[0] <= '3' && env[1] == 0 ? env[0] - '0' : 3;
        planes = p;
    }
    fv5_act(x, (block_fv5_act *) y, n, p);
}

//
// FV5
//

#if defined(FV5_AVX512)

const char * fv5_isa(void) {
#if defined(__AVX512VNNI__)
    return "avx512vnni";
#else
    return "avx512bw";
#endif
}

// 64 unsigned codes times 64 signed bytes, added to 16 sums.
FV5_INLINE __m512i mac(__m512i acc, __m512i u, __m512i q) {
#if defined(__AVX512VNNI__)
    return _mm512_dpbusd_epi32(acc, u, q);
#else
    return _mm512_add_epi32(acc, _mm512_madd_epi16(_mm512_maddubs_epi16(u, q), _mm512_set1_epi16(1)));
#endif
}

// The low half of a register has the even bits of the planes and the high half the
// odd ones, so that step s meets the 64 consecutive activations of bits 2s and 2s+1.
FV5_INLINE float dot(int nb, const block_fv5 * x, const block_fv5_act * y, const int planes) {
    const __m512i odd  = _mm512_inserti64x4(_mm512_setzero_si512(), _mm256_set1_epi16(1), 1);
    const __m512i even = _mm512_set1_epi8(0x55);
    const __m512i low2 = _mm512_set1_epi8(3);
    __m512 total = _mm512_setzero_ps();

    for (int b = 0; b < nb; b++) {
        FV5_PREFETCH(x + b);
        // what a 16-bit shift carries into the neighbour byte is an odd bit and masked off
        const __m512i bp = _mm512_srlv_epi16(_mm512_broadcast_i64x4(_mm256_loadu_si256((const __m256i *) x[b].bp)), odd);
        const __m512i bn = _mm512_srlv_epi16(_mm512_broadcast_i64x4(_mm256_loadu_si256((const __m256i *) x[b].bn)), odd);
        const __m512i br = _mm512_srlv_epi16(_mm512_broadcast_i64x4(_mm256_loadu_si256((const __m256i *) x[b].br)), odd);
        const __m512i z  = _mm512_andnot_si512(_mm512_xor_si512(bp, bn), even);
        const __m512i pa = _mm512_and_si512(bp, even);
        const __m512i pb = _mm512_and_si512(_mm512_xor_si512(bp, br), even);
        __m512i ca = _mm512_or_si512(_mm512_add_epi8(pa, pa), z);
        __m512i cb = _mm512_or_si512(_mm512_add_epi8(pb, pb), z);

        __m512i a[3], h[3];
        for (int k = 0; k < planes; k++) {
            a[k] = h[k] = _mm512_setzero_si512();
        }
        for (int s = 0; s < 4; s++) {
            const __m512i ua = _mm512_and_si512(ca, low2);
            const __m512i ub = _mm512_and_si512(cb, low2);
            for (int k = 0; k < planes; k++) {
                const __m512i q = _mm512_loadu_si512(y[b].p[k] + 64*s);
                a[k] = mac(a[k], ua, q);
                h[k] = mac(h[k], ub, q);
            }
            ca = _mm512_srli_epi16(ca, 2);
            cb = _mm512_srli_epi16(cb, 2);
        }
        for (int k = planes - 1; k > 0; k--) {
            a[k - 1] = _mm512_add_epi32(a[k - 1], _mm512_slli_epi32(a[k], 8));
            h[k - 1] = _mm512_add_epi32(h[k - 1], _mm512_slli_epi32(h[k], 8));
        }
        const __m512i sum = _mm512_inserti64x4(_mm512_setzero_si512(), _mm256_loadu_si256((const __m256i *) y[b].sum), 0);
        const __m512i l = _mm512_add_epi32(_mm512_sub_epi32(a[0], sum), _mm512_sub_epi32(h[0], sum));
        const __m512i m = _mm512_sub_epi32(a[0], h[0]);
        total = _mm512_fmadd_ps(_mm512_cvtepi32_ps(l), _mm512_set1_ps(0.5f*y[b].d*x[b].s_lo), total);
        total = _mm512_fmadd_ps(_mm512_cvtepi32_ps(m), _mm512_set1_ps(0.5f*y[b].d*x[b].s_hi), total);
    }
    return _mm512_reduce_add_ps(total);
}

#elif defined(FV5_AVX2)

const char * fv5_isa(void) {
#if defined(__AVXVNNI__)
    return "avxvnni";
#else
    return "avx2";
#endif
}

// 32 unsigned codes times 32 signed bytes. AVX2 adds them to 16 sums of 16 bits, which
// the 8 steps of a block cannot fill (8*2*2*128 = 4096); widen makes 8 sums of 32 bits.
FV5_INLINE __m256i mac(__m256i acc, __m256i u, __m256i q) {
#if defined(__AVXVNNI__)
    return _mm256_dpbusd_avx_epi32(acc, u, q);
#else
    acc = _mm256_add_epi16(acc, _mm256_maddubs_epi16(u, q));
#if defined(__GNUC__)
    // gcc would put off the additions to the end of a block and spill 40 products
    __asm__("" : "+x"(acc));
#endif
    return acc;
#endif
}

FV5_INLINE __m256i widen(__m256i acc) {
#if defined(__AVXVNNI__)
    return acc;
#else
    return _mm256_madd_epi16(acc, _mm256_set1_epi16(1));
#endif
}

FV5_INLINE float reduce(__m256 v) {
    __m128 r = _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
    r = _mm_add_ps(r, _mm_movehl_ps(r, r));
    return _mm_cvtss_f32(_mm_add_ss(r, _mm_movehdup_ps(r)));
}

FV5_INLINE float dot(int nb, const block_fv5 * x, const block_fv5_act * y, const int planes) {
    const __m256i even = _mm256_set1_epi8(0x55);
    const __m256i odd  = _mm256_set1_epi8((char) 0xAA);
    const __m256i low2 = _mm256_set1_epi8(3);
    __m256 total = _mm256_setzero_ps();

    for (int b = 0; b < nb; b++) {
        FV5_PREFETCH(x + b);
        const __m256i bp = _mm256_loadu_si256((const __m256i *) x[b].bp);
        const __m256i nz = _mm256_xor_si256(bp, _mm256_loadu_si256((const __m256i *) x[b].bn));
        const __m256i pr = _mm256_xor_si256(bp, _mm256_loadu_si256((const __m256i *) x[b].br));

        __m256i a[3], h[3];
        for (int k = 0; k < planes; k++) {
            a[k] = h[k] = _mm256_setzero_si256();
        }
        for (int o = 0; o < 2; o++) {
            // codes of the even bits, then of the odd ones; what a 16-bit shift carries into
            // the neighbour byte is masked off
            const __m256i z  = _mm256_andnot_si256(o ? _mm256_srli_epi16(nz, 1) : nz, even);
            const __m256i pa = _mm256_and_si256(o ? bp : _mm256_add_epi8(bp, bp), odd);
            const __m256i pb = _mm256_and_si256(o ? pr : _mm256_add_epi8(pr, pr), odd);
            __m256i ca = _mm256_or_si256(pa, z);
            __m256i cb = _mm256_or_si256(pb, z);
            for (int s = 0; s < 4; s++) {
                const __m256i ua = _mm256_and_si256(ca, low2);
                const __m256i ub = _mm256_and_si256(cb, low2);
                for (int k = 0; k < planes; k++) {
                    const __m256i q = _mm256_loadu_si256((const __m256i *) (y[b].p[k] + 32*(2*s + o)));
                    a[k] = mac(a[k], ua, q);
                    h[k] = mac(h[k], ub, q);
                }
                ca = _mm256_srli_epi16(ca, 2);
                cb = _mm256_srli_epi16(cb, 2);
            }
        }
        __m256i sa = widen(a[planes - 1]);
        __m256i sh = widen(h[planes - 1]);
        for (int k = planes - 2; k >= 0; k--) {
            sa = _mm256_add_epi32(widen(a[k]), _mm256_slli_epi32(sa, 8));
            sh = _mm256_add_epi32(widen(h[k]), _mm256_slli_epi32(sh, 8));
        }
        const __m256i sum = _mm256_loadu_si256((const __m256i *) y[b].sum);
        const __m256i l = _mm256_add_epi32(_mm256_sub_epi32(sa, sum), _mm256_sub_epi32(sh, sum));
        const __m256i m = _mm256_sub_epi32(sa, sh);
        total = _mm256_fmadd_ps(_mm256_cvtepi32_ps(l), _mm256_set1_ps(0.5f*y[b].d*x[b].s_lo), total);
        total = _mm256_fmadd_ps(_mm256_cvtepi32_ps(m), _mm256_set1_ps(0.5f*y[b].d*x[b].s_hi), total);
    }
    return reduce(total);
}

#elif defined(FV5_NEON)

const char * fv5_isa(void) {
#if defined(__ARM_FEATURE_DOTPROD)
    return "neon dotprod";
#else
    return "neon";
#endif
}

// 16 codes times 16 signed bytes, added to 4 sums.
FV5_INLINE int32x4_t mac(int32x4_t acc, int8x16_t u, int8x16_t q) {
#if defined(__ARM_FEATURE_DOTPROD)
    return vdotq_s32(acc, u, q);
#else
    const int16x8_t products = vmull_s8(vget_low_s8(u), vget_low_s8(q));
    return vpadalq_s16(acc, vmlal_high_s8(products, u, q)); // |sum of two products| <= 512
#endif
}

FV5_INLINE float dot(int nb, const block_fv5 * x, const block_fv5_act * y, const int planes) {
    const uint8x16_t even = vdupq_n_u8(0x55);
    const uint8x16_t odd  = vdupq_n_u8(0xAA);
    const uint8x16_t low2 = vdupq_n_u8(3);
    float32x4_t total = vdupq_n_f32(0.0f);

    for (int b = 0; b < nb; b++) {
        FV5_PREFETCH(x + b);
        int32x4_t a[3], h[3];
        for (int k = 0; k < planes; k++) {
            a[k] = h[k] = vdupq_n_s32(0);
        }
        for (int half = 0; half < 32; half += 16) {
            const uint8x16_t bp = vld1q_u8(x[b].bp + half);
            const uint8x16_t nz = veorq_u8(bp, vld1q_u8(x[b].bn + half));
            const uint8x16_t pr = veorq_u8(bp, vld1q_u8(x[b].br + half));
            for (int o = 0; o < 2; o++) {
                const uint8x16_t z  = vbicq_u8(even, o ? vshrq_n_u8(nz, 1) : nz);
                const uint8x16_t pa = vandq_u8(o ? bp : vaddq_u8(bp, bp), odd);
                const uint8x16_t pb = vandq_u8(o ? pr : vaddq_u8(pr, pr), odd);
                uint8x16_t ca = vorrq_u8(pa, z);
                uint8x16_t cb = vorrq_u8(pb, z);
                for (int s = 0; s < 4; s++) {
                    const int8x16_t ua = vreinterpretq_s8_u8(vandq_u8(ca, low2));
                    const int8x16_t ub = vreinterpretq_s8_u8(vandq_u8(cb, low2));
                    for (int k = 0; k < planes; k++) {
                        const int8x16_t q = vld1q_s8(y[b].p[k] + 32*(2*s + o) + half);
                        a[k] = mac(a[k], ua, q);
                        h[k] = mac(h[k], ub, q);
                    }
                    ca = vshrq_n_u8(ca, 2);
                    cb = vshrq_n_u8(cb, 2);
                }
            }
        }
        for (int k = planes - 1; k > 0; k--) {
            a[k - 1] = vaddq_s32(a[k - 1], vshlq_n_s32(a[k], 8));
            h[k - 1] = vaddq_s32(h[k - 1], vshlq_n_s32(h[k], 8));
        }
        const int32x4_t sum = vaddq_s32(vld1q_s32(y[b].sum), vld1q_s32(y[b].sum + 4));
        const int32x4_t l = vaddq_s32(vsubq_s32(a[0], sum), vsubq_s32(h[0], sum));
        const int32x4_t m = vsubq_s32(a[0], h[0]);
        total = vfmaq_n_f32(total, vcvtq_f32_s32(l), 0.5f*y[b].d*x[b].s_lo);
        total = vfmaq_n_f32(total, vcvtq_f32_s32(m), 0.5f*y[b].d*x[b].s_hi);
    }
    return vaddvq_f32(total);
}

#else

const char * fv5_isa(void) {
    return "generic";
}

// The definition.
FV5_INLINE float dot(int nb, const block_fv5 * x, const block_fv5_act * y, const int planes) {
    float total = 0.0f;
    for (int b = 0; b < nb; b++) {
        int64_t lo = 0, hi = 0;
        for (int i = 0; i < 8; i++) {
            for (int j = 0; j < QK_FV5/8; j++) {
                int32_t q = 0;
                for (int k = planes - 1; k >= 0; k--) {
                    q = q*256 + y[b].p[k][QK_FV5/8*i + j];
                }
                const int32_t tq = q*((x[b].bp[j] >> i & 1) - (x[b].bn[j] >> i & 1));
                if (x[b].br[j] >> i & 1) {
                    hi += tq;
                } else {
                    lo += tq;
                }
            }
        }
        total += y[b].d*(x[b].s_lo*(float) lo + x[b].s_hi*(float) hi);
    }
    return total;
}

#endif

void ggml_vec_dot_fv5(int n, float * s, size_t bs, const void * vx, size_t bx, const void * vy, size_t by, int nrc) {
    (void) bs; (void) bx; (void) by; (void) nrc;
    const int nb = n/QK_FV5;
    const block_fv5     * x = (const block_fv5     *) vx;
    const block_fv5_act * y = (const block_fv5_act *) vy;
    // one loop for each number of planes, which is the same in all of a row's blocks
    switch (nb > 0 ? y->planes : 3) {
        case 1:  *s = dot(nb, x, y, 1); break;
        case 2:  *s = dot(nb, x, y, 2); break;
        default: *s = dot(nb, x, y, 3); break;
    }
}

//
// FV5B: the activations stay floats. The embedding table is read once a token, at the
// speed of memory, so that there is nothing to win with integers.
//

#if defined(FV5_AVX512)

FV5_INLINE float dot_fv5b(const int8_t * q, const float * x) {
    __m512 acc[4];
    for (int k = 0; k < 4; k++) {
        acc[k] = _mm512_setzero_ps();
    }
    for (int c = 0; c < QK_FV5; c += 64) {
        for (int k = 0; k < 4; k++) {
            const __m512i w = _mm512_cvtepi8_epi32(_mm_loadu_si128((const __m128i *) (q + c + 16*k)));
            acc[k] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(w), _mm512_loadu_ps(x + c + 16*k), acc[k]);
        }
    }
    return _mm512_reduce_add_ps(_mm512_add_ps(_mm512_add_ps(acc[0], acc[1]), _mm512_add_ps(acc[2], acc[3])));
}

#elif defined(FV5_AVX2)

FV5_INLINE float dot_fv5b(const int8_t * q, const float * x) {
    __m256 acc[8];
    for (int k = 0; k < 8; k++) {
        acc[k] = _mm256_setzero_ps();
    }
    for (int c = 0; c < QK_FV5; c += 64) {
        for (int k = 0; k < 8; k++) {
            const __m256i w = _mm256_cvtepi8_epi32(_mm_loadl_epi64((const __m128i *) (q + c + 8*k)));
            acc[k] = _mm256_fmadd_ps(_mm256_cvtepi32_ps(w), _mm256_loadu_ps(x + c + 8*k), acc[k]);
        }
    }
    for (int k = 0; k < 4; k++) {
        acc[k] = _mm256_add_ps(acc[k], acc[k + 4]);
    }
    return reduce(_mm256_add_ps(_mm256_add_ps(acc[0], acc[1]), _mm256_add_ps(acc[2], acc[3])));
}

#elif defined(FV5_NEON)

FV5_INLINE float dot_fv5b(const int8_t * q, const float * x) {
    float32x4_t acc[4];
    for (int k = 0; k < 4; k++) {
        acc[k] = vdupq_n_f32(0.0f);
    }
    for (int c = 0; c < QK_FV5; c += 16) {
        const int8x16_t w  = vld1q_s8(q + c);
        const int16x8_t lo = vmovl_s8(vget_low_s8(w));
        const int16x8_t hi = vmovl_high_s8(w);
        acc[0] = vfmaq_f32(acc[0], vcvtq_f32_s32(vmovl_s16(vget_low_s16(lo))), vld1q_f32(x + c));
        acc[1] = vfmaq_f32(acc[1], vcvtq_f32_s32(vmovl_high_s16(lo)),          vld1q_f32(x + c + 4));
        acc[2] = vfmaq_f32(acc[2], vcvtq_f32_s32(vmovl_s16(vget_low_s16(hi))), vld1q_f32(x + c + 8));
        acc[3] = vfmaq_f32(acc[3], vcvtq_f32_s32(vmovl_high_s16(hi)),          vld1q_f32(x + c + 12));
    }
    return vaddvq_f32(vaddq_f32(vaddq_f32(acc[0], acc[1]), vaddq_f32(acc[2], acc[3])));
}

#else

FV5_INLINE float dot_fv5b(const int8_t * q, const float * x) {
    float acc[8] = { 0 }; // eight short chains of additions instead of one long one
    for (int c = 0; c < QK_FV5; c++) {
        acc[c%8] += (float) q[c]*x[c];
    }
    return ((acc[0] + acc[4]) + (acc[1] + acc[5])) + ((acc[2] + acc[6]) + (acc[3] + acc[7]));
}

#endif

void ggml_vec_dot_fv5b_f32(int n, float * s, size_t bs, const void * vx, size_t bx, const void * vy, size_t by, int nrc) {
    (void) bs; (void) bx; (void) by; (void) nrc;
    const block_fv5b * x = (const block_fv5b *) vx;
    const float      * y = (const float      *) vy;
    float total = 0.0f;
    for (int b = 0; b < n/QK_FV5; b++) {
        total += x[b].s*dot_fv5b(x[b].q, y + b*QK_FV5);
    }
    *s = total;
}
