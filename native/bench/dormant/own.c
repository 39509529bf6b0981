/* SPDX-License-Identifier: MIT */
/*
 * own.c: a loop around a function of the user's source, for markerjit bench --source.
 *
 *     BENCH_SOURCE     the file; its markers are compiled as MJ_MODE says
 *     BENCH_FUNCTION   void or not, without arguments
 *     BENCH_CALL       each round calls an empty function, too: the control
 */
#include BENCH_SOURCE

#include <stdint.h>

#define STRING2(x) #x
#define STRING(x) STRING2(x)

__asm__(".text\n\t.p2align 12\n\t.skip " STRING(BENCH_SKIP));

#ifdef BENCH_CALL
/* In another section, as a function of another file would be. */
__attribute__((noinline, section(".text.bench_callee"))) static void bench_callee(void) {
    __asm__ volatile("");
}
#else
#define bench_callee() (void)0
#endif

__attribute__((visibility("default"), noinline)) uint64_t run(uint64_t times,
                                                              const uint64_t *data) {
    (void)data;
    for (uint64_t i = 0; i < times; i++) {
        BENCH_FUNCTION();
        bench_callee();
        __asm__ volatile("" ::: "memory"); /* else an empty loop is removed */
    }
    return 0;
}
