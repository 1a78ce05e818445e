/* One pass over the records, for one precision (REAL) and one set of instructions (TARGET, vectors of BYTES).
 *
 * For a block of rows: scores s = x^T w, residuals r = dl/ds within the limits, total += x r^T, while the rows are in
 * the cache. Columns (runs times classes) are the lanes of a vector, so that one broadcast feature meets all of them.
 */

#define LANES ((int64_t)(BYTES / sizeof(REAL)))

typedef REAL NAME(vec) __attribute__((vector_size(BYTES)));
typedef INT NAME(ivec) __attribute__((vector_size(BYTES)));
#define VEC NAME(vec)
#define IVEC NAME(ivec)

INLINE VEC NAME(load)(const REAL *p) { return *(const VEC *)p; }
INLINE void NAME(store)(REAL *p, VEC v) { *(VEC *)p = v; }
INLINE VEC NAME(pick)(IVEC where, VEC a, VEC b) { return (VEC)((where & (IVEC)a) | (~where & (IVEC)b)); }

/* exp of numbers that are not above 0: 2^n e^r with |r| <= ln(2) / 2; what would underflow stays at the least power. */
INLINE VEC NAME(exp)(VEC x) {
    x = NAME(pick)(x < (VEC){} + LEAST_EXPONENT, (VEC){} + LEAST_EXPONENT, x);
    VEC shifted = x * (REAL)1.44269504088896340736 + ROUNDING;
    VEC n = shifted - ROUNDING;
    VEC r = (x - n * LN2_HIGH) - n * LN2_LOW;
    VEC p = (VEC){} + (REAL)INVERSE_FACTORIAL[TERMS];
    for (int i = TERMS - 1; i >= 0; i--) p = p * r + (REAL)INVERSE_FACTORIAL[i];
    IVEC power = ((IVEC)shifted - ROUNDING_BITS + EXPONENT_BIAS) << MANTISSA;
    return p * (VEC)power;
}

/* Residuals and losses of LANES records of one run, turned so that records are the lanes: s[k] in, r[k] out. */
INLINE VEC NAME(softmax)(VEC *s, const VEC *y, int64_t classes, int losses) {
    VEC most = s[0], sum = {}, loss = {};
    for (int64_t k = 1; k < classes; k++) most = NAME(pick)(s[k] > most, s[k], most);
    for (int64_t k = 0; k < classes; k++) {
        VEC shifted = s[k] - most;
        loss -= shifted * y[k];
        s[k] = NAME(exp)(shifted);
        sum += s[k];
    }
    VEC inverse = (REAL)1 / sum;
    for (int64_t k = 0; k < classes; k++) s[k] = s[k] * inverse - y[k];
    if (losses)
        for (int i = 0; i < LANES; i++) loss[i] += LOG(sum[i]);
    return loss;
}

INLINE VEC NAME(hinge)(VEC *s, const VEC *y, int64_t classes) {
    VEC most = s[0] + (REAL)1 - y[0], own = {};
    IVEC first = {};
    for (int64_t k = 0; k < classes; k++) {
        VEC margin = s[k] + (REAL)1 - y[k];
        IVEC more = margin > most;
        most = NAME(pick)(more, margin, most);
        first = (more & ((IVEC){} + (INT)k)) | (~more & first);
        own += s[k] * y[k];
    }
    for (int64_t k = 0; k < classes; k++)
        s[k] = NAME(pick)(first == (IVEC){} + (INT)k, (VEC){} + (REAL)1, (VEC){}) - y[k];
    return most - own;
}

INLINE VEC NAME(squared)(VEC *s, const VEC *y, int64_t classes) {
    VEC sum = {};
    for (int64_t k = 0; k < classes; k++) {
        s[k] -= y[k];
        sum += s[k] * s[k];
    }
    return sum * (REAL)0.5;
}

/* min(1, bound / length) without dividing by 0; nan where the length is. */
INLINE VEC NAME(shorten)(VEC length, REAL bound) {
    VEC limit = (VEC){} + bound;
    return limit / NAME(pick)(length <= limit, limit, length);
}

/* The limits on LANES records of one run; returns ||x||_1 ||r||_1 as limited. Where there is a limit, a record whose
 * residual is not a finite number within its bounds counts as 0, whatever bit patterns made it. */
INLINE VEC NAME(limit)(const Pass *p, VEC *s, int64_t run, VEC norm1, VEC norm2, VEC scale) {
    VEC squares = {}, sizes = {}, factor = scale;
    IVEC kept = ~(IVEC){};
    for (int64_t k = 0; k < p->classes; k++) {
        squares += s[k] * s[k];
        sizes += NAME(pick)(s[k] < (VEC){}, -s[k], s[k]);
    }
    if (p->l2) {
        VEC root = {};
        for (int i = 0; i < LANES; i++) root[i] = SQRT(squares[i]);
        factor *= NAME(shorten)(norm2 * root, ((const REAL *)p->l2)[run]);
    }
    if (p->l1) {
        VEC by = NAME(shorten)(norm1 * sizes, ((const REAL *)p->l1)[run]);
        factor = NAME(pick)(by < factor, by, factor);
        kept = by <= (VEC){} + (REAL)1; /* false for nan */
    }
    sizes *= factor;
    if (p->l2 || p->l1 || p->scale) kept &= sizes <= (VEC){} + MOST_FINITE;
    sizes = (VEC)((IVEC)sizes & kept);
    for (int64_t k = 0; k < p->classes; k++) s[k] = (VEC)((IVEC)(s[k] * factor) & kept);
    if (p->cut != 0.0) {
        sizes = (VEC){};
        for (int64_t k = 0; k < p->classes; k++) {
            for (int i = 0; i < LANES; i++) s[k][i] = TRUNC(s[k][i] * (REAL)p->cut);
            sizes += NAME(pick)(s[k] < (VEC){}, -s[k], s[k]);
        }
    }
    return norm1 * sizes;
}

/* Scores of `count` <= LANES records, [count, stride] from row `at` on, become residuals. */
TARGET static void NAME(residuals)(const Pass *p, int64_t at, int64_t count, REAL *scores, int64_t stride,
                                   VEC *turned) {
    int64_t classes = p->classes;
    VEC *s = turned, *y = turned + classes, norm1 = {}, norm2 = {}, scale = (VEC){} + (REAL)1, weight = scale;
    REAL *longest = p->longest;
    double *losses = p->losses;
    const REAL *labels = (const REAL *)p->y + at * classes;
    for (int64_t i = 0; i < LANES; i++) {
        int64_t row = i < count ? i : 0; /* a lane beyond the last repeats the first; it is not read back */
        if (p->norm1) norm1[i] = ((const REAL *)p->norm1)[at + row];
        if (p->norm2) norm2[i] = ((const REAL *)p->norm2)[at + row];
        if (p->scale) scale[i] = ((const REAL *)p->scale)[at + row];
        if (p->weights) weight[i] = ((const REAL *)p->weights)[at + row];
        for (int64_t k = 0; k < classes; k++) y[k][i] = labels[row * classes + k];
    }
    for (int64_t run = 0; run < p->runs; run++) {
        REAL *own = scores + run * classes;
        VEC unit = p->unit ? scale * ((const REAL *)p->unit)[run] : scale;
        for (int64_t i = 0; i < LANES; i++)
            for (int64_t k = 0; k < classes; k++) s[k][i] = own[(i < count ? i : 0) * stride + k];
        if (p->unit || p->scale)
            for (int64_t k = 0; k < classes; k++) s[k] *= unit;
        VEC loss = p->loss == SOFTMAX ? NAME(softmax)(s, y, classes, losses != 0)
                   : p->loss == HINGE ? NAME(hinge)(s, y, classes)
                                      : NAME(squared)(s, y, classes);
        if (p->weights) {
            loss *= weight;
            for (int64_t k = 0; k < classes; k++) s[k] *= weight;
        }
        if (losses)
            for (int64_t i = 0; i < count; i++) losses[run] += loss[i];
        VEC length = NAME(limit)(p, s, run, norm1, norm2, scale);
        if (p->norm1)
            for (int64_t i = 0; i < count; i++)
                if (!(length[i] <= longest[run])) longest[run] = length[i];
        for (int64_t i = 0; i < count; i++)
            for (int64_t k = 0; k < classes; k++) own[i * stride + k] = s[k][i];
    }
}

/* A tile of `rows` <= 8 rows and `vectors` of columns, kept in registers: scores = x w, and total += x^T r. */
INLINE void NAME(forward)(const REAL *x, int64_t features, const REAL *w, int64_t width, REAL *scores, int rows,
                          int vectors) {
    VEC sum[8][4] = {};
    for (int64_t j = 0; j < features; j++)
        for (int i = 0; i < rows; i++)
            for (int v = 0; v < vectors; v++) sum[i][v] += x[i * features + j] * NAME(load)(w + j * width + v * LANES);
    for (int i = 0; i < rows; i++)
        for (int v = 0; v < vectors; v++) NAME(store)(scores + i * width + v * LANES, sum[i][v]);
}

INLINE void NAME(backward)(const REAL *x, int64_t features, const REAL *r, int64_t width, REAL *total, int rows,
                           int vectors) {
    VEC own[8][4];
    for (int i = 0; i < rows; i++)
        for (int v = 0; v < vectors; v++) own[i][v] = NAME(load)(r + i * width + v * LANES);
    for (int64_t j = 0; j < features; j++)
        for (int v = 0; v < vectors; v++) {
            VEC sum = NAME(load)(total + j * width + v * LANES);
            for (int i = 0; i < rows; i++) sum += x[i * features + j] * own[i][v];
            NAME(store)(total + j * width + v * LANES, sum);
        }
}

/* All rows and columns of a block, in tiles whose sizes are constants where they are inlined. */
#define TILES(STEP, A, B, ROWS, VECTORS)                                                                               \
    for (; i + (ROWS) <= count; i += (ROWS)) NAME(STEP)(x + i * features, features, A, width, B, ROWS, VECTORS);
#define COLUMNS(STEP, A, B)                                                                                            \
    for (int64_t c = 0; c < width;) {                                                                                  \
        int64_t left = (width - c) / LANES, i = 0;                                                                     \
        if (left >= 4) {                                                                                               \
            TILES(STEP, A, B, 4, 4)                                                                                    \
            TILES(STEP, A, B, 1, 4)                                                                                    \
            c += 4 * LANES;                                                                                            \
        } else if (left >= 2) {                                                                                        \
            TILES(STEP, A, B, 8, 2)                                                                                    \
            TILES(STEP, A, B, 1, 2)                                                                                    \
            c += 2 * LANES;                                                                                            \
        } else {                                                                                                       \
            TILES(STEP, A, B, 8, 1)                                                                                    \
            TILES(STEP, A, B, 1, 1)                                                                                    \
            c += LANES;                                                                                                \
        }                                                                                                              \
    }

TARGET static void NAME(dense_forward)(const REAL *x, int64_t count, int64_t features, const REAL *w, int64_t width,
                                       REAL *scores) {
    COLUMNS(forward, w + c, scores + i * width + c)
}

TARGET static void NAME(dense_backward)(const REAL *x, int64_t count, int64_t features, const REAL *r, int64_t width,
                                        REAL *total) {
    COLUMNS(backward, r + i * width + c, total + c)
}
#undef COLUMNS
#undef TILES

/* The same for the entries of sparse rows. Four features and four codes are read at a time, since what limits the speed
 * is the number of loads. */
#define FOUR(ONE, E)                                                                                                   \
    {                                                                                                                  \
        uint64_t places;                                                                                               \
        uint32_t codes = 0;                                                                                            \
        memcpy(&places, p->index + (E), sizeof places);                                                                \
        if (coded) memcpy(&codes, p->code + (E), sizeof codes);                                                        \
        ONE((places & 0xffff), value[coded ? codes & 0xff : (E)], 0)                                                   \
        ONE((places >> 16 & 0xffff), value[coded ? codes >> 8 & 0xff : (E) + 1], 1)                                    \
        ONE((places >> 32 & 0xffff), value[coded ? codes >> 16 & 0xff : (E) + 2], 0)                                   \
        ONE((places >> 48), value[coded ? codes >> 24 : (E) + 3], 1)                                                   \
        (E) += 4;                                                                                                      \
    }
#define UNROLLED(ONE, E, END)                                                                                          \
    while ((E) + 4 <= (END)) FOUR(ONE, E)                                                                              \
    for (; (E) < (END); (E)++) ONE(p->index[E], value[coded ? p->code[E] : (E)], 0)

#define GATHER(FEATURE, VALUE, WHICH)                                                                                  \
    {                                                                                                                  \
        const REAL *at = w + (FEATURE)*width, by = (VALUE);                                                            \
        for (int v = 0; v < vectors; v++) sum[i][ordered ? 0 : WHICH][v] += by * NAME(load)(at + v * LANES);           \
    }
#define SCATTER(FEATURE, VALUE, WHICH)                                                                                 \
    {                                                                                                                  \
        REAL *at = total + (FEATURE)*width, by = (VALUE);                                                              \
        for (int v = 0; v < vectors; v++) NAME(store)(at + v * LANES, NAME(load)(at + v * LANES) + by * own[v]);       \
    }

/* ordered: one sum after the other, as of a dense row, so that scores are the same to the bit in both layouts. An
 * addition waits for the one before it: where a row has few sums at a time, two rows take turns. */
INLINE void NAME(gather)(const Pass *p, int64_t row, const REAL *w, int64_t width, REAL *scores, int rows, int vectors,
                         int coded, int ordered) {
    const REAL *value = p->value;
    VEC sum[2][2][4] = {};
    int64_t e[2] = {p->start[row], p->start[row + 1]}, end[2] = {p->start[row + 1], p->start[row + rows]};
    if (rows == 2)
        while (e[0] + 4 <= end[0] && e[1] + 4 <= end[1])
            for (int i = 0; i < 2; i++) FOUR(GATHER, e[i])
    for (int i = 0; i < rows; i++) {
        UNROLLED(GATHER, e[i], end[i])
        for (int v = 0; v < vectors; v++) NAME(store)(scores + i * width + v * LANES, sum[i][0][v] + sum[i][1][v]);
    }
}

INLINE void NAME(scatter)(const Pass *p, int64_t row, const REAL *r, int64_t width, REAL *total, int vectors,
                          int coded) {
    const REAL *value = p->value;
    VEC own[4];
    for (int v = 0; v < vectors; v++) own[v] = NAME(load)(r + v * LANES);
    int64_t e = p->start[row], end = p->start[row + 1];
    UNROLLED(SCATTER, e, end)
}
#undef GATHER
#undef SCATTER
#undef UNROLLED
#undef FOUR

/* All columns, as many vectors at a time as registers allow; the numbers are constants where it is inlined. */
#define COLUMNS(STEP, ...)                                                                                             \
    for (int64_t c = 0; c < width;) {                                                                                  \
        int64_t left = (width - c) / LANES;                                                                            \
        if (left >= 4) {                                                                                               \
            STEP(4, __VA_ARGS__)                                                                                       \
            c += 4 * LANES;                                                                                            \
        } else if (left >= 2) {                                                                                        \
            STEP(2, __VA_ARGS__)                                                                                       \
            c += 2 * LANES;                                                                                            \
        } else {                                                                                                       \
            STEP(1, __VA_ARGS__)                                                                                       \
            c += LANES;                                                                                                \
        }                                                                                                              \
    }
#define GATHER(VECTORS, CODED, ORDERED)                                                                                \
    {                                                                                                                  \
        int64_t i = 0;                                                                                                 \
        if ((VECTORS) * (2 - (ORDERED)) < 4)                                                                           \
            for (; i + 2 <= count; i += 2)                                                                             \
                NAME(gather)(p, at + i, w + c, width, scores + i * width + c, 2, VECTORS, CODED, ORDERED);             \
        for (; i < count; i++)                                                                                         \
            NAME(gather)(p, at + i, w + c, width, scores + i * width + c, 1, VECTORS, CODED, ORDERED);                 \
    }
#define SCATTER(VECTORS, CODED) NAME(scatter)(p, row, r + c, width, total + c, VECTORS, CODED);

TARGET static void NAME(sparse_forward)(const Pass *p, int64_t at, int64_t count, const REAL *w, int64_t width,
                                        REAL *scores) {
    if (p->code && p->narrow) {
        COLUMNS(GATHER, 1, 1)
    } else if (p->code) {
        COLUMNS(GATHER, 1, 0)
    } else if (p->narrow) {
        COLUMNS(GATHER, 0, 1)
    } else {
        COLUMNS(GATHER, 0, 0)
    }
}

TARGET static void NAME(row_backward)(const Pass *p, int64_t row, const REAL *r, int64_t width, REAL *total) {
    if (p->code) {
        COLUMNS(SCATTER, 1)
    } else {
        COLUMNS(SCATTER, 0)
    }
}
#undef COLUMNS
#undef GATHER
#undef SCATTER

/* The rows from `at` on, in this precision. */
INLINE const REAL *NAME(dense_rows)(const Pass *p, int64_t at, int64_t count, REAL *wide) {
    if (!p->narrow) return (const REAL *)p->x + at * p->features;
    const float *x = (const float *)p->x + at * p->features;
    for (int64_t i = 0; i < count * p->features; i++) wide[i] = (REAL)x[i];
    return wide;
}

TARGET static void NAME(block)(const Pass *p, int64_t at, int64_t count, const REAL *w, int64_t width, REAL *scores,
                               REAL *total, VEC *turned, REAL *wide) {
    const REAL *x = p->x ? NAME(dense_rows)(p, at, count, wide) : 0;
    if (p->start)
        NAME(sparse_forward)(p, at, count, w, width, scores);
    else
        NAME(dense_forward)(x, count, p->features, w, width, scores);
    for (int64_t i = 0; i < count; i += LANES)
        NAME(residuals)(p, at + i, count - i < LANES ? count - i : LANES, scores + i * width, width, turned);
    if (!total) return;
    if (p->start)
        for (int64_t i = 0; i < count; i++) NAME(row_backward)(p, at + i, scores + i * width, width, total);
    else
        NAME(dense_backward)(x, count, p->features, scores, width, total);
}

/* total += part, and part begins anew: sums of sums lose less to rounding than one long sum. */
INLINE void NAME(add)(REAL *total, REAL *part, size_t count) {
    for (size_t i = 0; i < count; i += (size_t)LANES) {
        NAME(store)(total + i, NAME(load)(total + i) + NAME(load)(part + i));
        NAME(store)(part + i, (VEC){});
    }
}

/* 0, or 1 where there is no memory for the work. */
TARGET static int NAME(pass)(const Pass *p) {
    int64_t columns = p->runs * p->classes, width = (columns + LANES - 1) / LANES * LANES;
    size_t parameters = (size_t)(p->features * width), block = BLOCK;
    size_t rows = p->narrow && p->x ? block * (size_t)p->features : 0;
    size_t floats = 3 * parameters + block * (size_t)width + 2 * (size_t)(p->classes * LANES) + rows;
    REAL *w = aligned_alloc(64, (floats * sizeof(REAL) + 63) / 64 * 64);
    if (!w) return 1;
    REAL *total = w + parameters, *part = total + parameters, *scores = part + parameters;
    VEC *turned = (VEC *)(scores + block * (size_t)width);
    REAL *wide = (REAL *)(turned + 2 * p->classes);
    for (int64_t j = 0; j < p->features; j++) {
        memcpy(w + j * width, (const REAL *)p->w + j * columns, (size_t)columns * sizeof(REAL));
        memset(w + j * width + columns, 0, (size_t)(width - columns) * sizeof(REAL));
    }
    memset(total, 0, 2 * parameters * sizeof(REAL));
    for (int64_t at = 0; at < p->rows; at += BLOCK) {
        int64_t count = p->rows - at < BLOCK ? p->rows - at : BLOCK;
        NAME(block)(p, at, count, w, width, scores, p->total ? part : 0, turned, wide);
        int ends = at + BLOCK >= p->rows || at / BLOCK % BLOCKS == BLOCKS - 1;
        if (p->total && ends) NAME(add)(total, part, parameters);
    }
    if (p->total)
        for (int64_t j = 0; j < p->features; j++)
            memcpy((REAL *)p->total + j * columns, total + j * width, (size_t)columns * sizeof(REAL));
    free(w);
    return 0;
}

#undef LANES
#undef VEC
#undef IVEC

/* What rows_both.h said of the precision. */
#undef PRECISION
#undef REAL
#undef INT
#undef LOG
#undef SQRT
#undef TRUNC
#undef LEAST_EXPONENT
#undef ROUNDING
#undef ROUNDING_BITS
#undef LN2_HIGH
#undef LN2_LOW
#undef EXPONENT_BIAS
#undef MANTISSA
#undef TERMS
#undef MOST_FINITE
