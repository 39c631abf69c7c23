// The kernels for FV5 and FV5B. They use no more of CUDA than test/cuda_host.cpp
// imitates, which runs them on the CPU, thread by thread.
#pragma once

#include "../ggml-fv5.h"

// The weights 8*lane ... 8*lane+7 of a block, for lane 0 ... 31.
static __device__ __forceinline__ void fv5_load8(const block_fv5 * b, int lane, float w[8]) {
    const unsigned bp = b->bp[lane], bn = b->bn[lane], br = b->br[lane];
    const float lo = b->s_lo, hi = b->s_hi;
#pragma unroll
    for (int i = 0; i < 8; i++) {
        const float s = br >> i & 1 ? hi : lo;
        w[i] = bp >> i & 1 ? s : bn >> i & 1 ? -s : 0.0f;
    }
}

static __device__ __forceinline__ void fv5_load8(const block_fv5b * b, int lane, float w[8]) {
    const float s = b->s;
#pragma unroll
    for (int i = 0; i < 8; i++) {
        w[i] = s*b->q[8*lane + i];
    }
}

template <typename block, typename dst_t>
static __global__ void dequantize_fv5(const void * __restrict__ vx, dst_t * __restrict__ y) {
    const int64_t b = blockIdx.x;
    float w[8];
    fv5_load8((const block *) vx + b, threadIdx.x, w);
#pragma unroll
    for (int i = 0; i < 8; i++) {
        y[b*QK_FV5 + 8*threadIdx.x + i] = ggml_cuda_cast<dst_t>(w[i]);
    }
}

#define FV5_ROWS 4 // rows of a thread block, one for each 32 threads

// grid: (rows/FV5_ROWS, columns/cols), block: (32, FV5_ROWS).
// w: [rows][nb] blocks; x: [n_cols][256*nb]; y: [n_cols][rows].
// Each 32 threads multiply one row with cols columns; a thread decodes 8 weights of a
// block once for all of them.
template <typename block, int cols>
static __global__ void mul_mat_fv5(
        const block * __restrict__ w, const float * __restrict__ x, float * __restrict__ y,
        const int nb, const int rows, const int64_t row_blocks, const int n_cols) {
    const int row  = blockIdx.x*FV5_ROWS + threadIdx.y;
    const int col0 = blockIdx.y*cols;
    const int lane = threadIdx.x;
    if (row >= rows) {
        return;
    }

    float sum[cols] = { 0.0f };
    for (int b = 0; b < nb; b++) {
        float v[8];
        fv5_load8(w + row*row_blocks + b, lane, v);
#pragma unroll
        for (int c = 0; c < cols; c++) {
            if (cols > 1 && col0 + c >= n_cols) {
                break;
            }
            const float4 * q = (const float4 *) (x + ((int64_t) (col0 + c)*nb + b)*QK_FV5 + 8*lane);
            const float4 p0 = q[0], p1 = q[1];
            sum[c] += v[0]*p0.x + v[1]*p0.y + v[2]*p0.z + v[3]*p0.w + v[4]*p1.x + v[5]*p1.y + v[6]*p1.z + v[7]*p1.w;
        }
    }
#pragma unroll
    for (int c = 0; c < cols; c++) {
        const float total = warp_reduce_sum<32>(sum[c]);
        if (lane == 0 && col0 + c < n_cols) {
            y[(int64_t) (col0 + c)*rows + row] = total;
        }
    }
}
