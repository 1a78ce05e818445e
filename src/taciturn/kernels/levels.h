/* The sets of instructions that a function is compiled for, and the call of the one that a processor has. */
#ifndef TACITURN_LEVELS_H
#define TACITURN_LEVELS_H

#if defined(__x86_64__)
#define V4 __attribute__((target("avx512f,avx512dq,avx512bw,avx512vl,avx2,fma")))
#define V3 __attribute__((target("avx2,fma")))
#define CALL(NAME, LEVEL, ...)                                                                                         \
    ((LEVEL) == 4 ? NAME##_v4(__VA_ARGS__) : (LEVEL) == 3 ? NAME##_v3(__VA_ARGS__) : NAME##_v1(__VA_ARGS__))
#else
#define CALL(NAME, LEVEL, ...) ((void)(LEVEL), NAME##_v1(__VA_ARGS__))
#endif

#endif
