/* Laplace and normal numbers from Philox, those of numpy's Generator(Philox(key, counter)), written in place. */

#include <math.h>
#include <stdint.h>
#include <string.h>

#include "levels.h"

#define BATCH 256 /* words that are made at a time */
#define LAYERS 256

typedef struct {
    uint64_t key[2], counter[4];
    uint64_t words[BATCH];
    int used;
} Stream;

/* Philox4x64 with ten rounds (Salmon et al., 2011). */
static inline void philox(const uint64_t counter[4], const uint64_t key[2], uint64_t out[4]) {
    uint64_t a = counter[0], b = counter[1], c = counter[2], d = counter[3], k = key[0], l = key[1];
    for (int round = 0; round < 10; round++, k += 0x9E3779B97F4A7C15u, l += 0xBB67AE8584CAA73Bu) {
        unsigned __int128 p = (unsigned __int128)0xD2E7470EE14C6C93u * a;
        unsigned __int128 q = (unsigned __int128)0xCA5A826395121157u * c;
        a = (uint64_t)(q >> 64) ^ b ^ k;
        b = (uint64_t)q;
        c = (uint64_t)(p >> 64) ^ d ^ l;
        d = (uint64_t)p;
    }
    out[0] = a, out[1] = b, out[2] = c, out[3] = d;
}

static void refill(Stream *s) {
    for (int i = 0; i < BATCH; i += 4) {
        for (int word = 0; word < 4 && ++s->counter[word] == 0; word++) { /* the counter moves before it is used */
        }
        philox(s->counter, s->key, s->words + i);
    }
    s->used = 0;
}

static inline uint64_t next_word(Stream *s) {
    if (s->used == BATCH) refill(s);
    return s->words[s->used++];
}

static inline double uniform(Stream *s) { return (double)(next_word(s) >> 11) * 0x1p-53; }

static inline uint64_t bits_of(double x) {
    uint64_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

static inline double of_bits(uint64_t bits) {
    double x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

/* ln x for 0 < x <= 1: x = 2^n m with m about 1, ln m = 2 artanh((m - 1) / (m + 1)). */
static inline __attribute__((always_inline)) double natural_log(double x) {
    uint64_t bits = bits_of(x), up = (int64_t)(bits & 0x000fffffffffffffu) < 0x0006a09e667f3bcd; /* m below sqrt(2) */
    double n = of_bits((bits >> 52) - up + 0x4338000000000000u) - (6755399441055744.0 + 1022.0);
    double m = of_bits((bits & 0x000fffffffffffffu) | (0x3fe0000000000000u + (up << 52)));
    double s = (m - 1.0) / (m + 1.0), q = s * s, p = 1.0 / 23;
    for (int i = 21; i >= 3; i -= 2) p = p * q + 1.0 / i;
    return n * 0.693147180369123816490 + (2.0 * s + (2.0 * s * q * p + n * 1.90821492927058770002e-10));
}

/* Laplace numbers of whole words: u in [0, 1) of 53 bits, ln(2u) below a half and -ln(2 - 2u) from it on. numpy draws
 * again where u is 0, once in 2^53 numbers; here that is the smallest u there is. */
#define LAPLACE(LEVEL, TARGET)                                                                                         \
    TARGET static void laplace_##LEVEL(const uint64_t *words, double *out) {                                           \
        for (int i = 0; i < BATCH; i++) {                                                                         \
            double u = of_bits(words[i] >> 12 | 0x3ff0000000000000u) - 1.0;                                            \
            u += of_bits((words[i] >> 11 & 1) << 52 | 0x3ca0000000000000u) - 0x1p-53;                                  \
            double x = u >= 0.5 ? 2.0 - u - u : u + u;                                                                 \
            double size = natural_log(x > 0x1p-53 ? x : 0x1p-53);                                                      \
            out[i] = u >= 0.5 ? -size : size;                                                                          \
        }                                                                                                              \
    }
#if defined(__x86_64__)
LAPLACE(v4, V4)
LAPLACE(v3, V3)
#endif
LAPLACE(v1, )

/* The ziggurat of 256 layers of equal area under exp(-x^2 / 2) (Marsaglia and Tsang, 2000), for words of 52 bits. */
static double width[LAYERS], height[LAYERS];
static uint64_t inside[LAYERS];
#define EDGE 3.6541528853610088

void taciturn_prepare_noise(void) {
    long double x = EDGE, f = expl(-0.5L * x * x), last = x, unit = 0x1p52L;
    long double area = x * f + sqrtl(acosl(-1.0L) / 2.0L) * erfcl(x / sqrtl(2.0L));
    inside[0] = (uint64_t)(x * f / area * unit);
    width[0] = (double)(area / f / unit);
    height[0] = 1.0;
    inside[1] = 0;
    width[LAYERS - 1] = (double)(x / unit);
    height[LAYERS - 1] = (double)f;
    for (int i = LAYERS - 2; i >= 1; i--) {
        x = sqrtl(-2.0L * logl(area / x + expl(-0.5L * x * x)));
        inside[i + 1] = (uint64_t)(x / last * unit);
        width[i] = (double)(x / unit);
        height[i] = (double)expl(-0.5L * x * x);
        last = x;
    }
}

static inline double normal(Stream *s) {
    for (;;) {
        uint64_t word = next_word(s), layer = word & 0xff, size = (word >> 9) & 0x000fffffffffffffu;
        uint64_t sign = (word >> 8 & 1) << 63; /* set without a branch, which would be unpredictable */
        double x = of_bits(bits_of((double)(int64_t)size * width[layer]) ^ sign);
        if (size < inside[layer]) return x;
        if (layer == 0) {
            for (;;) {
                double beyond = -(1.0 / EDGE) * log1p(-uniform(s)), other = -log1p(-uniform(s));
                if (other + other > beyond * beyond) return (size >> 8) & 1 ? -(EDGE + beyond) : EDGE + beyond;
            }
        }
        if ((height[layer - 1] - height[layer]) * uniform(s) + height[layer] < exp(-0.5 * x * x)) return x;
    }
}

#define FILL(REAL)                                                                                                     \
    for (int64_t k = 0; k < some; k++) {                                                                               \
        ((REAL *)out)[at] = (REAL)(scale * numbers[k]);                                                                \
        at++;                                                                                                          \
        if (++column == columns) at += stride - columns, column = 0;                                                   \
    }

/* out[j, k] = scale times a standard number, for j < rows and k < columns, rows being `stride` numbers apart. */
void taciturn_noise(int gaussian, const uint64_t *key, const uint64_t *counter, double scale, int64_t rows,
                 int64_t columns, int64_t stride, int bytes, int level, void *out) {
    Stream s = {.used = BATCH};
    memcpy(s.key, key, sizeof s.key);
    memcpy(s.counter, counter, sizeof s.counter);
    if (stride == columns) columns = stride = rows * columns, rows = 1;
    double numbers[BATCH];
    for (int64_t left = rows * columns, at = 0, column = 0; left > 0; left -= BATCH) {
        int64_t some = left < BATCH ? left : BATCH;
        if (gaussian) {
            for (int64_t k = 0; k < some; k++) numbers[k] = normal(&s);
        } else {
            refill(&s);
            CALL(laplace, level, s.words, numbers);
        }
        if (bytes == sizeof(double)) {
            FILL(double)
        } else {
            FILL(float)
        }
    }
}
