/* The pass over an agent's records, compiled for each precision and for the instructions a processor may have. */

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "levels.h"
#include "rows.h"

#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "features and codes are read four at a time, the first in the lowest bits"
#endif

#define BLOCK 64 /* rows that are worked on while they are in the cache */
#define BLOCKS 8 /* blocks whose sums are added separately */
#define INLINE TARGET static inline __attribute__((always_inline))

#define JOIN(a, b, c) a##_##b##_##c
#define EXPAND(a, b, c) JOIN(a, b, c)
#define NAME(of) EXPAND(of, PRECISION, LEVEL)

static const double INVERSE_FACTORIAL[] = {
    1.0,         1.0,          1.0 / 2,       1.0 / 6,        1.0 / 24,        1.0 / 120,        1.0 / 720,
    1.0 / 5040,  1.0 / 40320,  1.0 / 362880,  1.0 / 3628800,  1.0 / 39916800,  1.0 / 479001600,  1.0 / 6227020800.0,
};

#if defined(__x86_64__)
#define LEVEL v4
#define TARGET V4
#define BYTES 64
#include "rows_both.h"
#undef LEVEL
#undef TARGET
#undef BYTES
#define LEVEL v3
#define TARGET V3
#define BYTES 32
#include "rows_both.h"
#undef LEVEL
#undef TARGET
#undef BYTES
#endif

#define LEVEL v1
#define TARGET
#define BYTES 16
#include "rows_both.h"

/* The instructions this processor has: 1 (those every one has), 3 (AVX2) or 4 (AVX-512). */
int taciturn_level(void) {
#if defined(__x86_64__)
    __builtin_cpu_init();
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512bw") &&
        __builtin_cpu_supports("avx512vl"))
        return 4;
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) return 3;
#endif
    return 1;
}

int taciturn_pass(const Pass *pass, int level, int bytes) {
    return bytes == sizeof(double) ? CALL(pass_f64, level, pass) : CALL(pass_f32, level, pass);
}
