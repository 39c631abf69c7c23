// MUL_MAT and GET_ROWS of FV5 and FV5B on every device that this build of ggml has
// (CPU, CUDA when compiled in), against sums in double. A device that refuses an
// operation is named: llama.cpp then runs it on the CPU.
#include "ggml-alloc.h"
#include "ggml-backend.h"
#include "ggml-cpp.h"
#include "ggml.h"
#include "ggml-fv5.h"

#include <cmath>
#include <cstdio>
#include <cstring>
#include <random>
#include <vector>

static int failures, checks;
static std::mt19937 random_bits(7);

static std::vector<char> random_rows(ggml_type type, int64_t cols, int64_t rows) {
    std::vector<char> data(ggml_row_size(type, cols)*rows);
    const int64_t nb = cols/QK_FV5;
    for (int64_t b = 0; b < nb*rows; b++) {
        const float scale = 0.01f*(1 + (b/nb)%7); // the same in all of a row's blocks
        if (type == GGML_TYPE_FV5) {
            block_fv5 * x = (block_fv5 *) data.data() + b;
            x->s_lo = scale;
            x->s_hi = 2.7f*scale;
            for (int j = 0; j < 32; j++) {
                const unsigned r = random_bits();
                x->bp[j] = r & r >> 8;
                x->bn[j] = r & ~(r >> 8);
                x->br[j] = r & r >> 16;
            }
        } else {
            block_fv5b * x = (block_fv5b *) data.data() + b;
            x->s = scale;
            for (int8_t & q : x->q) {
                q = (int8_t) (random_bits()%255 - 127);
            }
        }
    }
    return data;
}

static void compare(const char * what, const char * device, ggml_type type, const std::vector<float> & got,
                    const std::vector<double> & want, const std::vector<double> & bound) {
    for (size_t i = 0; i < got.size(); i++) {
        checks++;
        if (!(std::fabs(got[i] - want[i]) <= bound[i])) {
            failures++;
            printf("FAIL %s: %s of %s: element %zu is %.9g, want %.9g +- %.3g\n", device, what, ggml_type_name(type), i, got[i], want[i], bound[i]);
            return;
        }
    }
}

// One operation as a graph of its own. False: the device does not take it.
static bool run(ggml_backend_t backend, bool mul_mat, ggml_type type, int64_t cols, int64_t rows, int64_t n) {
    ggml_init_params params = { ggml_tensor_overhead()*8 + ggml_graph_overhead(), nullptr, true };
    ggml_context_ptr ctx(ggml_init(params));
    ggml_tensor * w = ggml_new_tensor_2d(ctx.get(), type, cols, rows);
    ggml_tensor * x = mul_mat ? ggml_new_tensor_2d(ctx.get(), GGML_TYPE_F32, cols, n) : ggml_new_tensor_1d(ctx.get(), GGML_TYPE_I32, n);
    ggml_tensor * y = mul_mat ? ggml_mul_mat(ctx.get(), w, x) : ggml_get_rows(ctx.get(), w, x);
    if (!ggml_backend_supports_op(backend, y)) {
        return false;
    }
    ggml_cgraph * graph = ggml_new_graph(ctx.get());
    ggml_build_forward_expand(graph, y);
    ggml_backend_buffer_ptr buffer(ggml_backend_alloc_ctx_tensors(ctx.get(), backend));

    const std::vector<char> weights = random_rows(type, cols, rows);
    ggml_backend_tensor_set(w, weights.data(), 0, weights.size());
    std::vector<float> dense(cols*rows);
    ggml_get_type_traits(type)->to_float(weights.data(), dense.data(), cols*rows);

    std::vector<double> want, bound;
    if (mul_mat) {
        std::vector<float> v(cols*n);
        for (float & f : v) {
            f = std::normal_distribution<float>()(random_bits);
        }
        ggml_backend_tensor_set(x, v.data(), 0, v.size()*sizeof(float));
        for (int64_t c = 0; c < n; c++) for (int64_t r = 0; r < rows; r++) {
            double sum = 0, size = 0;
            for (int64_t i = 0; i < cols; i++) {
                const double term = (double) dense[r*cols + i]*v[c*cols + i];
                sum += term;
                size += std::fabs(term);
            }
            want.push_back(sum);
            bound.push_back(size*std::ldexp(1, -18)); // an 8-bit or half precision path is off by far more
        }
    } else {
        std::vector<int32_t> ids(n);
        for (int32_t & id : ids) {
            id = random_bits()%rows;
        }
        ggml_backend_tensor_set(x, ids.data(), 0, ids.size()*sizeof(int32_t));
        for (int32_t id : ids) for (int64_t i = 0; i < cols; i++) {
            want.push_back(dense[id*cols + i]);
            bound.push_back(0);
        }
    }
    std::vector<float> got(want.size());
    if (ggml_backend_graph_compute(backend, graph) != GGML_STATUS_SUCCESS) {
        failures++;
        printf("FAIL %s: graph not computed\n", ggml_backend_name(backend));
        return true;
    }
    ggml_backend_tensor_get(y, got.data(), 0, got.size()*sizeof(float));
    compare(mul_mat ? "mul_mat" : "get_rows", ggml_backend_name(backend), type, got, want, bound);
    return true;
}

int main() {
    ggml_backend_load_all();
    for (size_t d = 0; d < ggml_backend_dev_count(); d++) {
        ggml_backend_ptr backend(ggml_backend_dev_init(ggml_backend_dev_get(d), nullptr));
        for (ggml_type type : { GGML_TYPE_FV5, GGML_TYPE_FV5B }) {
            for (bool mul_mat : { true, false }) {
                int refused = 0;
                for (int64_t cols : { 256, 1024 }) for (int64_t rows : { 1, 5, 64 }) for (int64_t n : { 1, 2, 8, 9, 33 }) {
                    refused += !run(backend.get(), mul_mat, type, cols, rows, n);
                }
                if (refused) {
                    printf("SKIP %s: %s of %s is refused in %d of 30 shapes\n", ggml_backend_name(backend.get()),
                        mul_mat ? "mul_mat" : "get_rows", ggml_type_name(type), refused);
                }
            }
        }
    }
    printf("backends: %d checks, %d failed\n", checks, failures);
    return failures != 0 || checks == 0;
}
