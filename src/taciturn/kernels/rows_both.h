/* Both precisions of the pass for one set of instructions. */

#define PRECISION f32
#define REAL float
#define INT int32_t
#define LOG logf
#define SQRT sqrtf
#define TRUNC truncf
#define LEAST_EXPONENT -87.0f
#define ROUNDING 12582912.0f /* 1.5 2^23: adding it rounds to a whole number, which its low bits then hold */
#define ROUNDING_BITS 0x4B400000
#define LN2_HIGH 0.693359375f
#define LN2_LOW -2.12194440e-4f
#define EXPONENT_BIAS 127
#define MANTISSA 23
#define TERMS 7
#define MOST_FINITE FLT_MAX
#include "rows_pass.h"

#define PRECISION f64
#define REAL double
#define INT int64_t
#define LOG log
#define SQRT sqrt
#define TRUNC trunc
#define LEAST_EXPONENT -708.0
#define ROUNDING 6755399441055744.0 /* 1.5 2^52 */
#define ROUNDING_BITS 0x4338000000000000
#define LN2_HIGH 0.693147180369123816490
#define LN2_LOW 1.90821492927058770002e-10
#define EXPONENT_BIAS 1023
#define MANTISSA 52
#define TERMS 13
#define MOST_FINITE DBL_MAX
#include "rows_pass.h"
