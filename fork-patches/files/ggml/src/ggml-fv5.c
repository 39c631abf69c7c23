#include "ggml-fv5.h"

#include <math.h>
#include <stdio.h>

void dequantize_row_fv5(const block_fv5 * x, float * y, int64_t n) {
    for (int64_t b = 0; b < n/QK_FV5; b++) {
        // indexed by bp + 2*bn + 4*br; both signs at once is invalid and reads as 0
        const float lo = x[b].s_lo, hi = x[b].s_hi;
        const float value[8] = { 0.0f, lo, -lo, 0.0f, 0.0f, hi, -hi, 0.0f };
        for (int c = 0; c < QK_FV5; c++) {
            const int j = c/8, i = c%8;
            *y++ = value[(x[b].bp[j] >> i & 1) | (x[b].bn[j] >> i & 1) << 1 | (x[b].br[j] >> i & 1) << 2];
        }
    }
}

void dequantize_row_fv5b(const block_fv5b * x, float * y, int64_t n) {
    for (int64_t b = 0; b < n/QK_FV5; b++) {
        for (int c = 0; c < QK_FV5; c++) {
            *y++ = x[b].q[c] * x[b].s;
        }
    }
}

bool fv5_valid(const block_fv5 * x, size_t nb) {
    for (size_t b = 0; b < nb; b++) {
        if (!isfinite(x[b].s_lo) || !isfinite(x[b].s_hi)) {
            fprintf(stderr, "%s: block %zu: scales %g and %g, want finite ones\n", __func__, b, (double) x[b].s_lo, (double) x[b].s_hi);
            return false;
        }
        for (int j = 0; j < QK_FV5/8; j++) {
            const uint8_t bp = x[b].bp[j], bn = x[b].bn[j], br = x[b].br[j];
            if ((bp & bn) || (br & ~(bp | bn))) {
                fprintf(stderr, "%s: block %zu: byte %d: bp %02x, bn %02x, br %02x: a weight is both signs, or zero and large\n",
                    __func__, b, j, bp, bn, br);
                return false;
            }
        }
    }
    return true;
}

bool fv5b_valid(const block_fv5b * x, size_t nb) {
    for (size_t b = 0; b < nb; b++) {
        if (!isfinite(x[b].s)) {
            fprintf(stderr, "%s: block %zu: scale %g, want a finite one\n", __func__, b, (double) x[b].s);
            return false;
        }
    }
    return true;
}
