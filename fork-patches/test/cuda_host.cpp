// Runs the CUDA kernels' code on the CPU, one thread after the other, and compares
// with dequantize_row. It proves indices and arithmetic, not what a GPU does with them.
//
// The threads of a warp run from 31 down to 0: warp_reduce_sum adds up what each thread
// brings, and thread 0, which writes the result, comes last and finds the whole sum.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <random>
#include <vector>

#define __global__
#define __device__
#define __forceinline__ inline
#define __restrict__

struct float4 { float x, y, z, w; };
struct index { int x, y, z; };
static index threadIdx, blockIdx;

template <typename dst_t> static dst_t ggml_cuda_cast(float x) { return (dst_t) x; }

static float warp_sums[64];
static int   warp_calls; // since the thread began

template <int width> static float warp_reduce_sum(float x) {
    static_assert(width == 32, "one warp a row");
    return warp_sums[warp_calls++] += x;
}

#include "ggml-cuda/fv5-kernels.cuh"

static int failures, checks;
static std::mt19937 random_bits(3);

static void fill(block_fv5 & b, float scale) {
    b.s_lo = scale;
    b.s_hi = 2.5f*scale;
    for (int j = 0; j < 32; j++) {
        const unsigned r = random_bits();
        b.bp[j] = r & r >> 8;
        b.bn[j] = r & ~(r >> 8);
        b.br[j] = r & r >> 16;
    }
}

static void fill(block_fv5b & b, float scale) {
    b.s = scale;
    for (int8_t & q : b.q) {
        q = (int8_t) random_bits();
    }
}

static void dequantize(const block_fv5  * x, float * y, int64_t n) { dequantize_row_fv5 (x, y, n); }
static void dequantize(const block_fv5b * x, float * y, int64_t n) { dequantize_row_fv5b(x, y, n); }

template <typename block, int cols>
static void mul_mat(const std::vector<block> & w, int nb, int rows, int n_cols) {
    std::vector<float> x((size_t) n_cols*nb*QK_FV5), dense(w.size()*QK_FV5);
    for (float & v : x) {
        v = std::normal_distribution<float>()(random_bits);
    }
    dequantize(w.data(), dense.data(), dense.size());
    std::vector<float> y((size_t) n_cols*rows, NAN);
    for (blockIdx.y = 0; blockIdx.y < (n_cols + cols - 1)/cols; blockIdx.y++)
    for (blockIdx.x = 0; blockIdx.x < (rows + FV5_ROWS - 1)/FV5_ROWS; blockIdx.x++)
    for (threadIdx.y = 0; threadIdx.y < FV5_ROWS; threadIdx.y++) {
        std::fill_n(warp_sums, 64, 0.0f);
        for (threadIdx.x = 31; threadIdx.x >= 0; threadIdx.x--) {
            warp_calls = 0;
            mul_mat_fv5<block, cols>(w.data(), x.data(), y.data(), nb, rows, nb, n_cols);
        }
    }
    for (int c = 0; c < n_cols; c++) for (int r = 0; r < rows; r++) {
        double want = 0, size = 0;
        for (int i = 0; i < nb*QK_FV5; i++) {
            const double term = (double) dense[(size_t) r*nb*QK_FV5 + i]*x[(size_t) c*nb*QK_FV5 + i];
            want += term;
            size += std::fabs(term);
        }
        checks++;
        if (!(std::fabs(y[(size_t) c*rows + r] - want) <= size*std::ldexp(1, -18))) {
            failures++;
            printf("FAIL %d blocks, row %d of %d, column %d of %d: got %g, want %g\n", nb, r, rows, c, n_cols, y[(size_t) c*rows + r], want);
        }
    }
}

template <typename block> static void test() {
    for (int nb : { 1, 3 }) for (int rows : { 1, 4, 7 }) {
        std::vector<block> w(nb*rows);
        for (block & b : w) {
            fill(b, 0.01f*(1 + (&b - w.data())/nb));
        }
        mul_mat<block, 1>(w, nb, rows, 1);
        for (int n : { 2, 8, 9, 17 }) {
            mul_mat<block, 8>(w, nb, rows, n);
        }
        std::vector<float> got(w.size()*QK_FV5, NAN), want(got.size());
        dequantize(w.data(), want.data(), want.size());
        for (blockIdx.x = 0; blockIdx.x < (int) w.size(); blockIdx.x++) {
            for (threadIdx.x = 0; threadIdx.x < 32; threadIdx.x++) {
                dequantize_fv5<block, float>(w.data(), got.data());
            }
        }
        checks++;
        if (got != want) {
            failures++;
            printf("FAIL dequantize, %d blocks\n", (int) w.size());
        }
    }
}

int main() {
    test<block_fv5>();
    test<block_fv5b>();
    printf("cuda kernels on the host: %d checks, %d failed\n", checks, failures);
    return failures != 0;
}
