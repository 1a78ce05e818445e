/* One pass over records from a file, for a processor that is emulated: see test_arm64.py, which writes the file. */

#include <stdio.h>
#include <stdlib.h>

#include "rows.h"

int taciturn_pass(const Pass *pass, int level, int bytes);
int64_t taciturn_count(const void *x, int64_t rows, int64_t features, int bytes, int64_t *start);
int taciturn_pack(const void *x, int64_t rows, int64_t features, int bytes, uint16_t *index, uint8_t *code, void *table);

static void *read_some(FILE *file, int64_t count) {
    double *values = malloc((size_t)(count ? count : 1) * sizeof *values);
    if (!values || fread(values, sizeof *values, (size_t)count, file) != (size_t)count) exit(2);
    return values;
}

int main(int argc, char **argv) {
    int64_t n[6]; /* rows, features, runs, classes, loss, whether it lies sparse */
    double cut, table[256] = {0};
    FILE *file = argc == 2 ? fopen(argv[1], "rb") : 0;
    if (!file || fread(n, sizeof *n, 6, file) != 6 || fread(&cut, sizeof cut, 1, file) != 1) return 2;
    Pass pass = {.rows = n[0], .features = n[1], .runs = n[2], .classes = n[3], .loss = n[4], .cut = cut};
    int64_t parameters = n[1] * n[2] * n[3];
    double *x = read_some(file, n[0] * n[1]);
    pass.y = read_some(file, n[0] * n[3]);
    pass.norm1 = read_some(file, n[0]);
    pass.norm2 = read_some(file, n[0]);
    pass.l2 = read_some(file, n[2]);
    pass.unit = read_some(file, n[2]);
    pass.w = read_some(file, parameters);
    pass.x = x;
    pass.total = calloc((size_t)parameters, sizeof(double));
    pass.longest = calloc((size_t)n[2], sizeof(double));
    if (n[5]) {
        int64_t *start = malloc((size_t)(n[0] + 1) * sizeof *start);
        int64_t entries = taciturn_count(x, n[0], n[1], sizeof(double), start);
        uint16_t *index = malloc((size_t)(entries + 4) * sizeof *index);
        uint8_t *code = malloc((size_t)(entries + 4));
        if (taciturn_pack(x, n[0], n[1], sizeof(double), index, code, table) < 0) return 3;
        pass.x = 0, pass.start = start, pass.index = index, pass.code = code, pass.value = table;
    }
    if (taciturn_pass(&pass, 1, sizeof(double))) return 4;
    return fwrite(pass.total, sizeof(double), (size_t)parameters, stdout) != (size_t)parameters;
}
