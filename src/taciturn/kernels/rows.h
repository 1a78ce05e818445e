/* What one pass over the records of an agent is given and gives back; row_pass.py mirrors it field by field. */
#ifndef TACITURN_ROWS_H
#define TACITURN_ROWS_H

#include <stdint.h>

enum { SOFTMAX = 0, HINGE = 1, SQUARED = 2 };

typedef struct {
    int64_t rows, features, runs, classes; /* n, J, R, K */
    int64_t loss;
    int64_t narrow;         /* in double precision: whether x is of single precision nevertheless */
    const void *x;         /* dense: [n, J] */
    const int64_t *start;  /* sparse: [n + 1], where a row's entries begin */
    const uint16_t *index; /* [entries]  their features */
    const uint8_t *code;   /* [entries]  their values' places in the table, or NULL */
    const void *value;     /* the table of values, or [entries] the values themselves */
    const void *y;         /* [n, K] */
    const void *norm1;     /* [n] or NULL: no L1 norms are wanted */
    const void *norm2;     /* [n] or NULL: no L2 bound */
    const void *weights;   /* [n] or NULL: factors on losses and residuals, before any bound */
    const void *l2, *l1;   /* [R] or NULL: bounds on ||x r^T|| */
    const void *scale;     /* [n] or NULL: a factor on x */
    const void *unit;      /* [R] or NULL: a factor on the scores */
    double cut;            /* 0, or: residuals become trunc(cut r) */
    const void *w;         /* [J, R K] */
    void *total;           /* [J, R K]  sum_i x_i r_i^T, or NULL: only the losses are wanted */
    void *longest;         /* [R]  max_i ||x_i||_1 ||r_i||_1, where norm1 is given */
    double *losses;        /* [R]  sum_i m_i l_i with the weights m_i, or NULL */
} Pass;

#endif
