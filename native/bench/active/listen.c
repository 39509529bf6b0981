/* SPDX-License-Identifier: MIT */
/*
 * listen.c: a small loop around one site that is on, for markerjit bench.
 *
 *     BENCH_FORM     nothing, mark (as MJ_MODE says), call, rdtsc, nop1, nop5
 *     BENCH_MARKER   for mark: its name, so that each object's is switched by itself
 *     BENCH_EVENT    for mark: what is recorded, two ints where nothing is said; more of them are
 *                    the same again. ints_1, ints_3, ints_4, ints_8, text_5, text_40
 *     BENCH_SKIP     bytes before the loop, in a page: layout alone may move a result
 *
 * The site has two ints, which the loop needs anyway. As in hot.c the rounds do not wait for each
 * other. nop1 and nop5 are places for another tool's breakpoint, at the symbol `bench_place`; what
 * would copy the place (unrolling) would not assemble. The ints are in edi and esi there.
 */
#include <stdint.h>

#define CAT2(a, b) a##b
#define CAT(a, b) CAT2(a, b)
#define STRING2(x) #x
#define STRING(x) STRING2(x)
#define SITE(a, b) CAT(SITE_, BENCH_FORM)(a, b)

#define IS_nothing 0
#define IS_mark 1
#define IS_call 2
#define IS_rdtsc 0
#define IS_nop1 0
#define IS_nop5 0
#define IS_FORM CAT(IS_, BENCH_FORM)

#define PLACE(bytes)                                                                               \
    __asm__ volatile(".globl bench_place\n"                                                        \
                     "bench_place:\n\t.byte " bytes                                                \
                     :                                                                             \
                     : "D"(a), "S"(b))

#define SITE_nothing(a, b) (void)0
#define SITE_rdtsc(a, b) __asm__ volatile("rdtsc" : : : "eax", "edx")
#define SITE_nop1(a, b) PLACE("0x90")
#define SITE_nop5(a, b) PLACE("0x0f, 0x1f, 0x44, 0, 0")

#if IS_FORM == IS_mark

#include <markerjit/marker.h>
#ifndef BENCH_EVENT
#define BENCH_EVENT ints_2
#endif
#define EVENT_ints_1(name, a, b) MARK(name, "a %d", a)
#define EVENT_ints_2(name, a, b) MARK(name, "a %d b %d", a, b)
#define EVENT_ints_3(name, a, b) MARK(name, "a %d b %d c %d", a, b, a)
#define EVENT_ints_4(name, a, b) MARK(name, "a %d b %d c %d d %d", a, b, a, b)
#define EVENT_ints_8(name, a, b)                                                                   \
    MARK(name, "a %d b %d c %d d %d e %d f %d g %d h %d", a, b, a, b, a, b, a, b)
#define EVENT_text_5(name, a, b) MARK(name, "text %s", "12345")
#define EVENT_text_40(name, a, b) MARK(name, "text %s", "1234567890123456789012345678901234567890")
#define NAMED(name, a, b) CAT(EVENT_, BENCH_EVENT)(name, a, b)
#define SITE_mark(a, b) NAMED(BENCH_MARKER, a, b)

#elif IS_FORM == IS_call

/* In another section, as a function of another file would be. */
__attribute__((noinline, noipa, section(".text.bench_callee"))) static void bench_callee(int a,
                                                                                         int b) {
    __asm__ volatile("" : : "r"(a), "r"(b));
}
#define SITE_call(a, b) bench_callee(a, b)

#endif

__asm__(".text\n\t.p2align 12\n\t.skip " STRING(BENCH_SKIP));

__attribute__((visibility("default"), noinline)) uint64_t run(uint64_t times,
                                                              const uint64_t *data) {
    uint64_t sum = 0;

    for (uint64_t i = 0; i < times; i++) {
        int a = (int)data[i & 7], b = (int)data[(i + 1) & 7];

        __asm__ volatile("" : "+r"(a), "+r"(b));
        SITE(a, b);
        sum += (uint64_t)(unsigned)(a ^ b) ^ i;
    }
    return sum;
}
