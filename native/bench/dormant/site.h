/* SPDX-License-Identifier: MIT */
/*
 * site.h: one place in a program, in every form that markerjit bench compares.
 *
 *     BENCH_FORM     mark (as MJ_MODE says), nothing, call, nop2, nop5, adds, usdt, lttng, xray
 *     BENCH_ADDS     for adds: how many additions that wait for each other; a cost that is known
 *
 *     BENCH_TRACEPOINTS  for lttng: a header that describes its tracepoints, if not lttng_site.h
 *
 * SITE(a, ...) is the place, with one, two, four or eight arguments of 64 bits. `chain` is a
 * variable of the loop, which only `adds` uses. SITE_NAMED(name, a, ...) is one of many places: a
 * marker has that name.
 */
#ifndef BENCH_SITE_H
#define BENCH_SITE_H

#include <stdint.h>

#define CAT2(a, b) a##b
#define CAT(a, b) CAT2(a, b)
#define COUNT(...) COUNT_(__VA_ARGS__, 8, 7, 6, 5, 4, 3, 2, 1)
#define COUNT_(a, b, c, d, e, f, g, h, count, ...) count
#define STRING2(x) #x
#define STRING(x) STRING2(x)
#define SITE(...) CAT(SITE_, BENCH_FORM)(__VA_ARGS__)
#define SITE_NAMED(name, ...) CAT(NAMED_, IS_FORM)(name, __VA_ARGS__)

#define FORMAT_1 "a %lu"
#define FORMAT_2 FORMAT_1 " b %lu"
#define FORMAT_4 FORMAT_2 " c %lu d %lu"
#define FORMAT_8 FORMAT_4 " e %lu f %lu g %lu h %lu"

#define SITE_nothing(...) (void)0
#define SITE_nop2(...) __asm__ volatile(".byte 0x66, 0x90")
#define SITE_nop5(...) __asm__ volatile(".byte 0x0f, 0x1f, 0x44, 0, 0")

/* Each waits for the one before, and the next round for the last one. Of a register: newer
   processors add small constants while they rename registers, in no time. */
#define SITE_adds(...)                                                                             \
    __asm__ volatile(".rept %c2\n\tadd %1, %0\n\t.endr"                                            \
                     : "+r"(chain)                                                                 \
                     : "r"((uint64_t)1), "i"(BENCH_ADDS))

#define IS_nothing 0
#define IS_nop2 0
#define IS_nop5 0
#define IS_adds 0
#define IS_mark 1
#define IS_call 2
#define IS_usdt 3
#define IS_lttng 4
#define IS_xray 5
#define IS_FORM CAT(IS_, BENCH_FORM)

#define NAMED_0(name, ...) SITE(__VA_ARGS__)
#define NAMED_1(name, ...) MARK(name, CAT(FORMAT_, COUNT(__VA_ARGS__)), __VA_ARGS__)
#define NAMED_2 NAMED_0
#define NAMED_3 NAMED_0
#define NAMED_4(name, ...) lttng_ust_tracepoint(markerjit_bench, name, __VA_ARGS__)
#define NAMED_5 NAMED_0

#if IS_FORM == IS_mark

#include <markerjit/marker.h>
#define SITE_mark(...) MARK(bench_site, CAT(FORMAT_, COUNT(__VA_ARGS__)), __VA_ARGS__)

#elif IS_FORM == IS_call

/* In another section, as a function of another file would be. */
__attribute__((noinline, noipa, section(".text.bench_callee"))) static void bench_callee(uint64_t a,
                                                                                         ...) {
    __asm__ volatile("" : : "r"(a));
}
#define SITE_call(...) bench_callee(__VA_ARGS__)

#elif IS_FORM == IS_usdt

#include <sys/sdt.h>
#define SITE_usdt(...) CAT(DTRACE_PROBE, COUNT(__VA_ARGS__))(markerjit, bench_site, __VA_ARGS__)

#elif IS_FORM == IS_lttng

#define LTTNG_UST_TRACEPOINT_CREATE_PROBES
#define LTTNG_UST_TRACEPOINT_DEFINE
#ifdef BENCH_TRACEPOINTS
#include BENCH_TRACEPOINTS
#else
#include "lttng_site.h"
#endif
#define SITE_lttng(...)                                                                            \
    lttng_ust_tracepoint(markerjit_bench, CAT(site_, COUNT(__VA_ARGS__)), __VA_ARGS__)

#elif IS_FORM == IS_xray

/* Arguments go through memory, as XRay's custom events take them; clang would leave that out, for
   it does not know that somebody reads it. The runtime is not linked: dormant, nothing is called.
 */
#define SITE_xray(...)                                                                             \
    do {                                                                                           \
        uint64_t event[] = {__VA_ARGS__};                                                          \
        __asm__ volatile("" : : "r"(event) : "memory");                                            \
        __xray_customevent((const char *)event, sizeof(event));                                    \
    } while (0)
__attribute__((weak)) void __xray_CustomEvent(void) {}

#endif
#endif
