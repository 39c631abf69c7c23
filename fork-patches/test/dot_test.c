// Checks fv5.c as it was compiled, against the definition in double and integers.
// check.py builds this once for every instruction set, with sanitizers where the
// program runs natively.
//
// usage: dot_test VECTORS     (lines "name cols dot hex codes... x...", from check.py)
#include "ggml-cpu/fv5.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int failures, checks;

#define CHECK(cond, ...) do { \
    checks++; \
    if (!(cond)) { \
        failures++; \
        printf("FAIL line %d: ", __LINE__); \
        printf(__VA_ARGS__); \
        printf("\n"); \
    } \
} while (0)

static uint64_t state = 88172645463325252u;

static uint64_t rnd(void) {
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return state;
}

static float uniform(void) { // -1..1
    return (float) ((double) (int64_t) rnd()/9223372036854775808.0);
}

// Exact sizes, so that the sanitizer sees a read past the end.
static void * take(size_t n) {
    void * p = malloc(n ? n : 1);
    if (!p) {
        exit(1);
    }
    return p;
}

static block_fv5 * random_row(int nb, float lo, float hi) {
    block_fv5 * x = take(nb*sizeof(*x));
    for (int b = 0; b < nb; b++) {
        x[b].s_lo = lo;
        x[b].s_hi = hi;
        for (int j = 0; j < 32; j++) {
            const uint8_t nonzero = (uint8_t) rnd(), sign = (uint8_t) rnd();
            x[b].bp[j] = nonzero & sign;
            x[b].bn[j] = nonzero & (uint8_t) ~sign;
            x[b].br[j] = nonzero & (uint8_t) rnd();
        }
    }
    return x;
}

static int32_t number(const block_fv5_act * y, int c) {
    int32_t q = 0;
    for (int k = y->planes - 1; k >= 0; k--) {
        q = q*256 + y->p[k][32*(c%8) + c/8];
    }
    return q;
}

// The dot product with the stored numbers, and the sum of its terms' sizes.
static double reference(int nb, const block_fv5 * x, const block_fv5_act * y, double * size) {
    double total = 0;
    *size = 0;
    float * w = take(nb*256*sizeof(float));
    dequantize_row_fv5(x, w, nb*256);
    for (int c = 0; c < nb*256; c++) {
        const double term = (double) w[c]*y[c/256].d*number(y + c/256, c%256);
        total += term;
        *size += fabs(term);
    }
    free(w);
    return total;
}

static float fv5(int nb, const block_fv5 * x, const block_fv5_act * y) {
    float s = NAN;
    ggml_vec_dot_fv5(nb*256, &s, 0, x, 0, y, 0, 1);
    return s;
}

// A lane's integer is rounded once to float (2^-24 of a number that is at most twice
// the sum of |q| of its columns), then added with one rounding a block and lane.
static void compare(const char * what, int nb, const block_fv5 * x, const block_fv5_act * y) {
    double size, all = 0;
    const double want = reference(nb, x, y, &size);
    for (int c = 0; c < nb*256; c++) {
        const block_fv5 * b = x + c/256;
        all += fabs((double) y[c/256].d*number(y + c/256, c%256))*(fabs(b->s_lo) + fabs(b->s_hi));
    }
    const float got = fv5(nb, x, y);
    const double bound = all*(nb + 16)*ldexp(1, -24);
    CHECK(fabs(got - want) <= bound, "%s: %d blocks, %d planes: got %.9g, want %.9g, bound %.3g", what, nb, nb ? y->planes : 0, got, want, bound);
}

static void vectors(const char * path) {
    FILE * f = fopen(path, "r");
    if (!f) {
        perror(path);
        exit(1);
    }
    char name[64];
    int cols, n = 0;
    float dot;
    while (fscanf(f, "%63s %d %f", name, &cols, &dot) == 3) {
        const int nb = cols/256;
        block_fv5 * x = take(nb*sizeof(*x));
        float * v = take(cols*sizeof(float)), * w = take(cols*sizeof(float));
        int * codes = take(cols*sizeof(int));
        for (size_t i = 0; i < nb*sizeof(*x); i++) {
            unsigned byte = 0;
            CHECK(fscanf(f, "%2x", &byte) == 1, "%s: bytes", name);
            ((uint8_t *) x)[i] = (uint8_t) byte;
        }
        for (int c = 0; c < cols; c++) {
            CHECK(fscanf(f, "%d", codes + c) == 1, "%s: codes", name);
        }
        for (int c = 0; c < cols; c++) {
            CHECK(fscanf(f, "%f", v + c) == 1, "%s: x", name);
        }
        dequantize_row_fv5(x, w, cols);
        for (int c = 0; c < cols; c++) {
            const float s = abs(codes[c]) == 2 ? x->s_hi : x->s_lo;
            const float want = codes[c] > 0 ? s : codes[c] < 0 ? -s : 0.0f;
            CHECK(w[c] == want, "%s: weight %d: got %g, want %g", name, c, w[c], want);
        }
        block_fv5_act * y = take(nb*sizeof(*y));
        fv5_act(v, y, cols, 3);
        const float got = fv5(nb, x, y);
        CHECK(memcmp(&got, &dot, sizeof(got)) == 0, "%s: got %.9g, want %.9g bit for bit", name, got, dot);
        CHECK(fv5_valid(x, nb), "%s: valid", name);
        free(x); free(v); free(w); free(codes); free(y);
        n++;
    }
    fclose(f);
    CHECK(n > 0, "%s: no vectors", path);
}

static void dots(void) {
    static const int lengths[] = { 0, 1, 2, 3, 16 };
    static const float scales[][2] = { { 0.5f, 1.25f }, { 1, 0 }, { 0, 1 }, { 3.1e-3f, 9.7e-3f }, { -0.25f, 7 } };
    for (int l = 0; l < 5; l++) for (int s = 0; s < 5; s++) for (int planes = 1; planes <= 3; planes++) {
        const int nb = lengths[l];
        block_fv5     * x = random_row(nb, scales[s][0], scales[s][1]);
        block_fv5_act * y = take(nb*sizeof(*y));
        float         * v = take(nb*256*sizeof(float));
        for (int pattern = 0; pattern < 6; pattern++) {
            for (int c = 0; c < nb*256; c++) {
                const float r = uniform();
                v[c] = pattern == 0 ? r : pattern == 1 ? 1 : pattern == 2 ? -1 : pattern == 3 ? (c & 1 ? -1.0f : 1.0f)
                     : pattern == 4 ? -0x1.010102p-1f : ldexpf(r, (int) (rnd()%24) - 12);
            }
            fv5_act(v, y, nb*256, planes);
            compare("random weights", nb, x, y);
            // digits that no conversion makes together
            for (int b = 0; b < nb; b++) {
                memset(y[b].sum, 0, sizeof(y[b].sum));
                for (int k = 0; k < planes; k++) {
                    memset(y[b].p[k], pattern & 1 ? 127 : -128, 256);
                }
                for (int c = 0; c < 256; c++) {
                    y[b].sum[c%8] += number(y + b, c);
                }
            }
            compare("extreme digits", nb, x, y);
        }
        free(x); free(y); free(v);
    }

    // one sign everywhere: the largest sums
    for (int kind = 0; kind < 8; kind++) for (int planes = 1; planes <= 3; planes++) {
        block_fv5 x = { .s_lo = 1, .s_hi = 1 };
        memset(kind & 1 ? x.bn : x.bp, 0xff, 32);
        memset(x.br, kind & 2 ? 0xff : 0, 32);
        float v[256];
        for (int c = 0; c < 256; c++) {
            v[c] = kind & 4 ? -0x1.fdfdfcp-1f : 0x1.fdfdfcp-1f;
        }
        block_fv5_act y;
        fv5_act(v, &y, 256, planes);
        compare("one sign", 1, &x, &y);
    }

    // numbers and sums below 2^24: every path gives the same float, bit for bit
    for (int trial = 0; trial < 200; trial++) {
        block_fv5 * x = random_row(3, 0.25f, 2);
        float v[768];
        for (int c = 0; c < 768; c++) {
            v[c] = (float) (rnd()%255) - 127;
        }
        v[5] = v[261] = v[517] = 127;
        for (int planes = 1; planes <= 3; planes++) {
            block_fv5_act y[3];
            double size;
            fv5_act(v, y, 768, planes);
            const float got = fv5(3, x, y), want = (float) reference(3, x, y, &size);
            double exact = 0;
            float w[768];
            dequantize_row_fv5(x, w, 768);
            for (int c = 0; c < 768; c++) {
                exact += (double) w[c]*v[c];
            }
            CHECK(got == want && got == (float) exact, "integers, %d planes: got %.9g, want %.9g and %.9g", planes, got, want, exact);
        }
        free(x);
    }
}

static void activations(void) {
    for (int e = -149; e <= 127; e++) for (int planes = 1; planes <= 3; planes++) {
        float v[256];
        for (int c = 0; c < 256; c++) {
            v[c] = ldexpf(uniform(), e);
        }
        v[17] = ldexpf(1 - 0x1p-24f, e); // just below a power of two
        block_fv5_act y;
        fv5_act(v, &y, 256, planes);
        int32_t sum[8] = { 0 };
        for (int c = 0; c < 256; c++) {
            const int32_t q = number(&y, c);
            sum[c%8] += q;
            // one plane's step is no power of two: x*(127/max) is rounded twice more
            const double half = (0.5 + (planes == 1 ? 127*0x1p-22 : 0))*y.d;
            CHECK(fabs(v[c] - (double) y.d*q) <= (y.d == 0 ? 0x1p-100 : half), "2^%d, %d planes: %g became %d*%g", e, planes, v[c], q, y.d);
        }
        CHECK(memcmp(sum, y.sum, sizeof(sum)) == 0, "2^%d, %d planes: sums", e, planes);
        static const int steps[4] = { 0, 127, 32639, 8355711 };
        CHECK(y.d == 0 || y.d <= v[17]*2.05/steps[planes], "2^%d, %d planes: step %g is coarse", e, planes, y.d);
    }
    const float bad[] = { INFINITY, -INFINITY, NAN };
    for (int i = 0; i < 3; i++) {
        float v[256] = { 1, 2, 3 };
        v[200] = bad[i];
        block_fv5_act y;
        block_fv5 * x = random_row(1, 1, 2);
        fv5_act(v, &y, 256, 3);
        CHECK(isnan(fv5(1, x, &y)), "%g in the activations vanished", bad[i]);
        free(x);
    }
}

static void fv5b(void) {
    for (int nb = 0; nb < 5; nb++) for (int trial = 0; trial < 20; trial++) {
        block_fv5b * x = take(nb*sizeof(*x));
        float * v = take(nb*256*sizeof(float)), * w = take(nb*256*sizeof(float));
        for (int b = 0; b < nb; b++) {
            x[b].s = 0.01f*(1 + trial);
            for (int c = 0; c < 256; c++) {
                x[b].q[c] = (int8_t) rnd(); // -128 too: no conversion makes it, a file may hold it
            }
        }
        for (int c = 0; c < nb*256; c++) {
            v[c] = trial == 0 ? (float) (c%16) : uniform();
        }
        dequantize_row_fv5b(x, w, nb*256);
        double want = 0, size = 0;
        for (int c = 0; c < nb*256; c++) {
            CHECK(w[c] == x[c/256].q[c%256]*x[c/256].s, "weight %d", c);
            want += (double) w[c]*v[c];
            size += fabs((double) w[c]*v[c]);
        }
        float got = NAN;
        ggml_vec_dot_fv5b_f32(nb*256, &got, 0, x, 0, v, 0, 1);
        CHECK(fabs(got - want) <= size*(40 + nb)*0x1p-24, "%d blocks: got %.9g, want %.9g", nb, got, want);
        free(x); free(v); free(w);
    }
}

static void valid(void) {
    block_fv5 * x = random_row(2, 1, 2);
    CHECK(fv5_valid(x, 2), "random row");
    fprintf(stderr, "four lines of refusals follow:\n");
    x[1].s_hi = INFINITY;
    CHECK(!fv5_valid(x, 2), "infinite scale");
    x[1].s_hi = 2;
    x[1].bp[31] = x[1].bn[31] = 0x80;
    CHECK(!fv5_valid(x, 2), "both signs");
    x[1].bp[31] = x[1].bn[31] = 0;
    x[1].br[31] = 1;
    CHECK(!fv5_valid(x, 2), "a large zero");
    block_fv5b b = { .s = NAN };
    CHECK(!fv5b_valid(&b, 1), "scale that is no number");
    free(x);
}

int main(int argc, char ** argv) {
    if (argc != 2) {
        fprintf(stderr, "usage: dot_test VECTORS\n");
        return 2;
    }
    vectors(argv[1]);
    dots();
    activations();
    fv5b();
    valid();
    printf("%s: %d checks, %d failed\n", fv5_isa(), checks, failures);
    return failures != 0;
}
