#pragma once

#include "../ggml-fv5.h"

#ifdef __cplusplus
extern "C" {
#endif

// n is a multiple of 256; bs, bx, by are unused and nrc is 1, as ggml's table of
// types wants it.
void ggml_vec_dot_fv5     (int n, float * s, size_t bs, const void * x, size_t bx, const void * y, size_t by, int nrc);
void ggml_vec_dot_fv5b_f32(int n, float * s, size_t bs, const void * x, size_t bx, const void * y, size_t by, int nrc);

// Makes block_fv5_act of n floats. With three planes (the default) the step is
// 2^-23 of the power of two above the block's largest magnitude: finer than the
// rounding of a sum of floats. The environment variable GGML_FV5_PLANES=1, read
// once, is the usual 8-bit quantisation, coarser and faster; 2 is between.
void quantize_row_fv5_act(const float * x, void * y, int64_t n);

// The same for a given number of planes.
void fv5_act(const float * x, block_fv5_act * y, int64_t n, int planes);

// The instruction set this file was compiled for.
const char * fv5_isa(void);

#ifdef __cplusplus
}
#endif
