#pragma once

#include "common.cuh"
#include "convert.cuh"
#include "fv5-kernels.cuh"

// dst = src0 * src1 with src0 of type FV5 or FV5B, in floats throughout: no 8-bit
// activations and no half precision, so that greedy tokens do not fork.
// src0: 2-d; src1: f32, contiguous, any number of columns.
void ggml_cuda_mul_mat_fv5(ggml_backend_cuda_context & ctx, const ggml_tensor * src0, const ggml_tensor * src1, ggml_tensor * dst);

template <typename block, typename dst_t>
static void dequantize_row_fv5_cuda(const void * vx, dst_t * y, const int64_t k, cudaStream_t stream) {
    GGML_ASSERT(k % QK_FV5 == 0);
    dequantize_fv5<block><<<k/QK_FV5, QK_FV5/8, 0, stream>>>(vx, y);
}
