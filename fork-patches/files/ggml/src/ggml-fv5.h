// FV5: ternary weights of two magnitudes. FV5B: int8 weights, one scale a row.
// This header and ggml-cpu/fv5.c need nothing else of ggml, so that tests can
// compile them alone, once for every instruction set.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

// The ids in files: FV5, and FV5B one above. Ids in memory may differ (ggml.h).
#ifndef GGML_FV5_FILE_ID
#define GGML_FV5_FILE_ID 43
#endif

#define QK_FV5 256

// Bit i of byte j belongs to weight 8j+i = (bp - bn) * (br ? s_hi : s_lo).
// A row's scales repeat in each of its blocks.
typedef struct {
    float   s_lo;
    float   s_hi;
    uint8_t bp[QK_FV5/8]; // weight is positive
    uint8_t bn[QK_FV5/8]; // weight is negative
    uint8_t br[QK_FV5/8]; // weight has the larger magnitude
} block_fv5; // 104 bytes

typedef struct {
    float  s;
    int8_t q[QK_FV5];
} block_fv5b; // 260 bytes

// Activations for FV5 as fixed point numbers: x = d * (p[0] + 256*p[1] + 65536*p[2]),
// with signed bytes, so that the dot product is a sum of integers.
// With fewer planes the unused ones are not written.
// Element 8j+i lies at [32i+j], which is where the bits of a weight plane appear
// when its 32 bytes are shifted right by i together.
typedef struct {
    float   d;
    int32_t planes;      // 1, 2 or 3
    int32_t sum[8];      // [k]: sum of the fixed point numbers of elements k, k+8, ...
    int32_t unused[6];   // to a whole cache line
    int8_t  p[3][QK_FV5];
} block_fv5_act; // 832 bytes

#ifdef __cplusplus
static_assert(sizeof(block_fv5) == 104 && sizeof(block_fv5b) == 260 && sizeof(block_fv5_act) == 832, "padding");
#else
_Static_assert(sizeof(block_fv5) == 104 && sizeof(block_fv5b) == 260 && sizeof(block_fv5_act) == 832, "padding");
#endif

// n is a multiple of 256.
void dequantize_row_fv5 (const block_fv5  * x, float * y, int64_t n);
void dequantize_row_fv5b(const block_fv5b * x, float * y, int64_t n);

// False, with a line on stderr, for blocks that no writer may make.
bool fv5_valid (const block_fv5  * x, size_t nb);
bool fv5b_valid(const block_fv5b * x, size_t nb);

#ifdef __cplusplus
}
#endif
