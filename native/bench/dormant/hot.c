/* SPDX-License-Identifier: MIT */
/*
 * hot.c: a small loop with one site in it, for markerjit bench.
 *
 *     BENCH_ARGS     how many arguments the site has: 1, 2, 4 or 8
 *     BENCH_COMPUTED 0: the loop needs their values anyway; 1: only the site does, and each is some
 *                    instructions
 *     BENCH_SKIP     bytes before the loop, in a page: layout alone may move a result
 *
 * The rounds of the loop do not wait for each other: else whatever stands in it would hide in the
 * time that the processor waits. So a call shows, and is measured along as the control.
 */
#include "site.h"

#if BENCH_COMPUTED
#define VALUE(n) ((v##n ^ times) * (2 * n + 3) >> n)
#else
#define VALUE(n) v##n
#endif

#define DO_1(f) f(0)
#define DO_2(f) DO_1(f) f(1)
#define DO_4(f) DO_2(f) f(2) f(3)
#define DO_8(f) DO_4(f) f(4) f(5) f(6) f(7)
#define DO CAT(DO_, BENCH_ARGS)

#define LOAD(n)                                                                                    \
    uint64_t v##n = data[(i + n) & 7];                                                             \
    __asm__ volatile("" : "+r"(v##n));
#define USE(n) sum += v##n ^ i;

#define VALUES_1 VALUE(0)
#define VALUES_2 VALUES_1, VALUE(1)
#define VALUES_4 VALUES_2, VALUE(2), VALUE(3)
#define VALUES_8 VALUES_4, VALUE(4), VALUE(5), VALUE(6), VALUE(7)

__asm__(".text\n\t.p2align 12\n\t.skip " STRING(BENCH_SKIP));

__attribute__((visibility("default"), noinline)) uint64_t run(uint64_t times,
                                                              const uint64_t *data) {
    uint64_t sum = 0, chain = 0;

    for (uint64_t i = 0; i < times; i++) {
        DO(LOAD)
        SITE(CAT(VALUES_, BENCH_ARGS));
        DO(USE)
    }
    return sum + chain;
}
