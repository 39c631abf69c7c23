// Speed of one thread's vec_dot: FV5 with 3, 2 and 1 planes, TQ2_0, Q8_0 and FV5B,
// and FV5 as masked float sums, the publisher's way, written anew for AVX2.
//
// A row of 4096 columns, rows enough for SIZE MB of weights (default 1: in the cache).
// The types take turns, ROUNDS times; CPU time, median and range.
//
// usage: bench [SIZE_MB [ROUNDS]]
#include "ggml-cpu.h"
#include "ggml.h"
#include "ggml-cpu/fv5.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <random>
#include <vector>

#if defined(__AVX2__) && defined(__FMA__)
#include <immintrin.h>

static void masked_floats(int n, float * s, size_t, const void * vx, size_t, const void * vy, size_t, int) {
    const block_fv5 * x = (const block_fv5 *) vx;
    const float * y = (const float *) vy;
    const __m256i bits = _mm256_setr_epi32(1, 2, 4, 8, 16, 32, 64, 128);
    const auto mask = [&](uint8_t byte) {
        return _mm256_castsi256_ps(_mm256_cmpeq_epi32(_mm256_and_si256(_mm256_set1_epi32(byte), bits), bits));
    };
    __m256 total = _mm256_setzero_ps();
    for (int b = 0; b < n/QK_FV5; b++) {
        __m256 lo = _mm256_setzero_ps(), hi = _mm256_setzero_ps();
        for (int j = 0; j < 32; j++) {
            const __m256 v = _mm256_loadu_ps(y + b*QK_FV5 + 8*j);
            const __m256 t = _mm256_sub_ps(_mm256_and_ps(v, mask(x[b].bp[j])), _mm256_and_ps(v, mask(x[b].bn[j])));
            const __m256 r = mask(x[b].br[j]);
            lo = _mm256_add_ps(lo, _mm256_andnot_ps(r, t));
            hi = _mm256_add_ps(hi, _mm256_and_ps(r, t));
        }
        total = _mm256_fmadd_ps(lo, _mm256_set1_ps(x[b].s_lo), total);
        total = _mm256_fmadd_ps(hi, _mm256_set1_ps(x[b].s_hi), total);
    }
    float out[8];
    _mm256_storeu_ps(out, total);
    *s = ((out[0] + out[4]) + (out[1] + out[5])) + ((out[2] + out[6]) + (out[3] + out[7]));
}
#endif

static double cpu_seconds() {
    timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return t.tv_sec + 1e-9*t.tv_nsec;
}

struct candidate {
    const char * name;
    ggml_type type;
    ggml_vec_dot_t dot;
    int planes; // of FV5_ACT; 0: another activation type
    ggml_type act;
    std::vector<char> weights, activations;
    std::vector<double> rates;
};

int main(int argc, char ** argv) {
    const double size = (argc > 1 ? atof(argv[1]) : 1)*1e6;
    const int rounds = argc > 2 ? atoi(argv[2]) : 9;
    const int cols = 4096;
    ggml_cpu_init();
    const auto dot = [](ggml_type t) { return ggml_get_type_traits_cpu(t)->vec_dot; };
    const auto act = [](ggml_type t) { return ggml_get_type_traits_cpu(t)->vec_dot_type; };
    std::vector<candidate> list = {
        { "fv5, 3 planes (default)", GGML_TYPE_FV5, dot(GGML_TYPE_FV5), 3, GGML_TYPE_FV5_ACT, {}, {}, {} },
        { "fv5, 2 planes", GGML_TYPE_FV5, dot(GGML_TYPE_FV5), 2, GGML_TYPE_FV5_ACT, {}, {}, {} },
        { "fv5, 1 plane", GGML_TYPE_FV5, dot(GGML_TYPE_FV5), 1, GGML_TYPE_FV5_ACT, {}, {}, {} },
        { "tq2_0", GGML_TYPE_TQ2_0, dot(GGML_TYPE_TQ2_0), 0, act(GGML_TYPE_TQ2_0), {}, {}, {} },
#if defined(__AVX2__) && defined(__FMA__)
        { "fv5, masked floats", GGML_TYPE_FV5, masked_floats, 0, GGML_TYPE_F32, {}, {}, {} },
#endif
        { "fv5b", GGML_TYPE_FV5B, dot(GGML_TYPE_FV5B), 0, GGML_TYPE_F32, {}, {}, {} },
        { "q8_0", GGML_TYPE_Q8_0, dot(GGML_TYPE_Q8_0), 0, act(GGML_TYPE_Q8_0), {}, {}, {} },
    };

    std::mt19937 random(1);
    std::vector<float> x(cols);
    for (float & v : x) {
        v = std::normal_distribution<float>()(random);
    }
    for (candidate & c : list) {
        const size_t row = ggml_row_size(c.type, cols);
        c.weights.resize(std::max<size_t>(1, size/row)*row);
        if (c.type == GGML_TYPE_FV5) {
            block_fv5 * w = (block_fv5 *) c.weights.data();
            for (size_t b = 0; b < c.weights.size()/sizeof(*w); b++) {
                w[b].s_lo = 0.02f;
                w[b].s_hi = 0.05f;
                for (int j = 0; j < 32; j++) {
                    const unsigned r = random();
                    w[b].bp[j] = r & r >> 8;
                    w[b].bn[j] = r & ~(r >> 8);
                    w[b].br[j] = r & r >> 16;
                }
            }
        } else {
            std::vector<float> w(cols);
            for (size_t at = 0; at < c.weights.size(); at += row) {
                if (at >= 16*row) {
                    std::copy_n(c.weights.data(), row, c.weights.data() + at);
                    continue;
                }
                for (float & v : w) {
                    v = 0.03f*((int) (random()%3) - 1);
                }
                if (c.type == GGML_TYPE_FV5B) {
                    block_fv5b * b = (block_fv5b *) (c.weights.data() + at);
                    for (int i = 0; i < cols; i++) {
                        b[i/256].s = 0.03f;
                        b[i/256].q[i%256] = (int8_t) (random()%255 - 127);
                    }
                } else {
                    ggml_quantize_chunk(c.type, w.data(), c.weights.data() + at, 0, 1, cols, nullptr);
                }
            }
        }
        c.activations.resize(ggml_row_size(c.act, cols));
        if (c.planes) {
            fv5_act(x.data(), (block_fv5_act *) c.activations.data(), cols, c.planes);
        } else if (c.act == GGML_TYPE_F32) {
            std::copy_n((const char *) x.data(), c.activations.size(), c.activations.data());
        } else {
            ggml_get_type_traits_cpu(c.act)->from_float(x.data(), c.activations.data(), cols);
        }
    }

    float sink = 0;
    for (int round = 0; round <= rounds; round++) { // the first one warms up
        for (candidate & c : list) {
            const size_t row = ggml_row_size(c.type, cols);
            const double start = cpu_seconds();
            double spent = 0, weights = 0;
            do {
                for (size_t at = 0; at < c.weights.size(); at += row) {
                    float s;
                    c.dot(cols, &s, 0, c.weights.data() + at, 0, c.activations.data(), 0, 1);
                    sink += s;
                    weights += cols;
                }
                spent = cpu_seconds() - start;
            } while (spent < 0.05);
            if (round) {
                c.rates.push_back(weights/spent*1e-9);
            }
        }
    }
    printf("%s, one thread, rows of %d, %.0f MB, %d rounds, CPU time (checksum %g)\n", fv5_isa(), cols, size*1e-6, rounds, sink);
    double tq2 = 0;
    for (candidate & c : list) {
        std::sort(c.rates.begin(), c.rates.end());
        if (c.type == GGML_TYPE_TQ2_0) {
            tq2 = c.rates[rounds/2];
        }
    }
    for (candidate & c : list) {
        const double rate = c.rates[rounds/2];
        printf("  %-24s %6.2f Gw/s (%.2f-%.2f) %6.2f GB/s  %.2f of tq2_0\n", c.name, rate, c.rates.front(), c.rates.back(),
            rate*ggml_row_size(c.type, cols)/cols, rate/tq2);
    }
}
