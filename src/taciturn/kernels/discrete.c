/* Proposals of the exact discrete samplers, and which of them the plain form in Python has to decide.
 *
 * Every floating-point operation is one of privacy/discrete.py, in its order and without fused multiply-adds, so both
 * forms leave the same proposals to exact arithmetic and take the same random words. */

#include <math.h>
#include <stdint.h>
#include <string.h>

#include "levels.h"

#if defined(__clang__)
#pragma STDC FP_CONTRACT OFF
#elif defined(__GNUC__)
#pragma GCC optimize("fp-contract=off")
#endif

#define INLINE static inline __attribute__((always_inline))

typedef struct {
    const double *inverses, *logarithms; /* the table of privacy/discrete.py */
    int64_t floor;                       /* smaller uniforms count as this one */
    int cells;                           /* log2 of the entries for each power of two, from 2^48 on */
} Table;

INLINE double exponential(const Table *t, int64_t uniform) {
    double u = (double)(uniform > t->floor ? uniform : t->floor);
    int64_t bits;
    memcpy(&bits, &u, sizeof bits);
    int64_t cell = (bits >> (52 - t->cells)) - ((int64_t)(1023 + 48) << t->cells), last = ((int64_t)16 << t->cells) - 1;
    cell = cell < last ? cell : last;
    double r = u * t->inverses[cell] - 1.0;
    return t->logarithms[cell] - (((r * -0.25 + 1.0 / 3) * r - 0.5) * r + 1.0) * r;
}

INLINE void propose(const Table *t, const uint64_t *words, int64_t count, double scale, double margin, double cap,
                    int64_t *magnitudes, uint8_t *doubtful) {
    for (int64_t i = 0; i < count; i++) {
        double e = exponential(t, (int64_t)(words[i] >> 1)), y = scale * e;
        int64_t whole = (int64_t)y;
        whole -= y < (double)whole;
        magnitudes[i] = whole;
        doubtful[i] = (fabs(y - (double)whole - 0.5) > 0.5 - margin) | (e > cap);
    }
}

INLINE void accept(const Table *t, const uint32_t *uniforms, const int64_t *magnitudes, int64_t count, double sigma,
                   double margin, double cap, uint8_t *stand, uint8_t *doubtful) {
    for (int64_t i = 0; i < count; i++) {
        double x = (double)magnitudes[i] / sigma - 1.0, q = x * x / 2.0;
        double gap = exponential(t, (int64_t)uniforms[i] << 31) - (q < cap ? q : cap);
        stand[i] = gap > 0.0;
        doubtful[i] = fabs(gap) < margin;
    }
}

#define FORMS(LEVEL, TARGET)                                                                                           \
    TARGET static void propose_##LEVEL(const Table *t, const uint64_t *words, int64_t count, double scale,             \
                                       double margin, double cap, int64_t *magnitudes, uint8_t *doubtful) {            \
        propose(t, words, count, scale, margin, cap, magnitudes, doubtful);                                            \
    }                                                                                                                  \
    TARGET static void accept_##LEVEL(const Table *t, const uint32_t *uniforms, const int64_t *magnitudes,             \
                                      int64_t count, double sigma, double margin, double cap, uint8_t *stand,          \
                                      uint8_t *doubtful) {                                                             \
        accept(t, uniforms, magnitudes, count, sigma, margin, cap, stand, doubtful);                                   \
    }
#if defined(__x86_64__)
FORMS(v4, __attribute__((target("avx512f,avx512dq,avx512bw,avx512vl,avx2"))))
FORMS(v3, __attribute__((target("avx2"))))
#endif
FORMS(v1, )

void taciturn_propose(const Table *t, const uint64_t *words, int64_t count, double scale, double margin, double cap,
                      int level, int64_t *magnitudes, uint8_t *doubtful) {
    CALL(propose, level, t, words, count, scale, margin, cap, magnitudes, doubtful);
}

void taciturn_accept(const Table *t, const uint32_t *uniforms, const int64_t *magnitudes, int64_t count, double sigma,
                     double margin, double cap, int level, uint8_t *stand, uint8_t *doubtful) {
    CALL(accept, level, t, uniforms, magnitudes, count, sigma, margin, cap, stand, doubtful);
}

/* The accepted proposals with their signs, but without -0; returns how many. `out` has room for `count` numbers. */
int64_t taciturn_keep(const uint64_t *words, const int64_t *magnitudes, const uint8_t *stand, int64_t count,
                      int64_t *out) {
    int64_t kept = 0;
    for (int64_t i = 0; i < count; i++) {
        int64_t sign = -(int64_t)(words[i] & 1);
        out[kept] = (magnitudes[i] ^ sign) - sign;
        kept += stand[i] & ((magnitudes[i] != 0) | (sign == 0));
    }
    return kept;
}
