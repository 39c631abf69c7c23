#include "fv5.cuh"

template <typename block>
static void launch(const ggml_tensor * src0, const ggml_tensor * src1, ggml_tensor * dst, cudaStream_t stream) {
    const int     rows   = src0->ne[1];
    const int     n_cols = ggml_nrows(src1);
    const int     nb     = src0->ne[0]/QK_FV5;
    const int64_t row_blocks = src0->nb[1]/sizeof(block);
    const dim3    threads(32, FV5_ROWS);
    const int     row_groups = (rows + FV5_ROWS - 1)/FV5_ROWS;
    const block * w = (const block *) src0->data;
    const float * x = (const float *) src1->data;
    float       * y = (float       *) dst->data;
    if (n_cols == 1) {
        mul_mat_fv5<block, 1><<<dim3(row_groups, 1), threads, 0, stream>>>(w, x, y, nb, rows, row_blocks, n_cols);
        return;
    }
    const int per_launch = 65535*8; // the grid's limit in y
    for (int done = 0; done < n_cols; done += per_launch) {
        const int n = std::min(n_cols - done, per_launch);
        mul_mat_fv5<block, 8><<<dim3(row_groups, (n + 7)/8), threads, 0, stream>>>(
            w, x + (int64_t) done*nb*QK_FV5, y + (int64_t) done*rows, nb, rows, row_blocks, n);
    }
}

void ggml_cuda_mul_mat_fv5(ggml_backend_cuda_context & ctx, const ggml_tensor * src0, const ggml_tensor * src1, ggml_tensor * dst) {
    GGML_ASSERT(src1->type == GGML_TYPE_F32 && dst->type == GGML_TYPE_F32);
    GGML_ASSERT(src0->ne[2] == 1 && src0->ne[3] == 1);
    GGML_ASSERT(ggml_is_contiguous(src1) && ggml_is_contiguous(dst));
    if (src0->type == GGML_TYPE_FV5) {
        launch<block_fv5>(src0, src1, dst, ctx.stream());
    } else {
        launch<block_fv5b>(src0, src1, dst, ctx.stream());
    }
    CUDA_CHECK(cudaGetLastError());
}
