/* Sparse rows: the indices of the nonzero values, and the values as codes where few of them are distinct. */

#include <stdint.h>
#include <string.h>

#define MOST 256   /* values that a byte can name */
#define SLOTS 1024 /* of the hash table; a power of two well above MOST */

/* start[i]: how many entries the rows before i have; returns how many there are in all. */
#define COUNT(REAL)                                                                                                    \
    for (int64_t i = 0; i < rows; i++) {                                                                               \
        const REAL *row = (const REAL *)x + i * features;                                                              \
        int64_t found = 0;                                                                                             \
        for (int64_t j = 0; j < features; j++) found += row[j] != 0;                                                   \
        start[i + 1] = start[i] + found;                                                                               \
    }

int64_t taciturn_count(const void *x, int64_t rows, int64_t features, int bytes, int64_t *start) {
    start[0] = 0;
    if (bytes == sizeof(double)) {
        COUNT(double)
    } else {
        COUNT(float)
    }
    return start[rows];
}

/* Where a value stands in the table, which takes it up if it is new; MOST where there is no room. */
static int place(uint64_t bits, uint64_t *keys, int16_t *slots, int *known) {
    uint64_t at = (bits * 0x9E3779B97F4A7C15u) >> 54;
    while (slots[at] >= 0 && keys[slots[at]] != bits) at = (at + 1) % SLOTS;
    if (slots[at] < 0) {
        if (*known == MOST) return MOST;
        keys[*known] = bits;
        slots[at] = (int16_t)(*known)++;
    }
    return slots[at];
}

#define PACK(REAL)                                                                                                     \
    for (int64_t i = 0; i < rows; i++)                                                                                 \
        for (int64_t j = 0; j < features; j++) {                                                                       \
            REAL value = ((const REAL *)x)[i * features + j];                                                          \
            if (value == 0) continue;                                                                                  \
            uint64_t bits = 0;                                                                                         \
            memcpy(&bits, &value, sizeof value);                                                                       \
            int at = place(bits, keys, slots, &known);                                                                 \
            if (at == MOST) return -1;                                                                                 \
            ((REAL *)table)[at] = value;                                                                               \
            index[entry] = (uint16_t)j;                                                                                \
            code[entry++] = (uint8_t)at;                                                                               \
        }

/* index and code of every entry, table [MOST]; -1 where there are more values than the table holds. */
int taciturn_pack(const void *x, int64_t rows, int64_t features, int bytes, uint16_t *index, uint8_t *code, void *table) {
    uint64_t keys[MOST];
    int16_t slots[SLOTS];
    int known = 0;
    int64_t entry = 0;
    memset(slots, -1, sizeof slots);
    if (bytes == sizeof(double)) {
        PACK(double)
    } else {
        PACK(float)
    }
    return known;
}
