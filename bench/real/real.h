/* SPDX-License-Identifier: MIT */
/*
 * real.h: what the places that we put into a program's source become. It is included before
 * everything else, with -include, in the files that have such places.
 *
 *     BENCH_FORM     mark (as MJ_MODE says) or usdt
 *     REAL_TRUTH     with mark: also count each place as it is passed; gate.c says how often
 *
 * REAL_MARK(name, "format", arguments...) is a place. USDT takes at most twelve arguments, too, and
 * evaluates them always.
 */
#ifndef REAL_H
#define REAL_H

#define CAT2(a, b) a##b
#define CAT(a, b) CAT2(a, b)
#define IS_mark 1
#define IS_usdt 2

#if CAT(IS_, BENCH_FORM) == IS_usdt

#include <sys/sdt.h>
#define COUNT(...) COUNT_(__VA_ARGS__, 4, 3, 2, 1, 0)
#define COUNT_(format, a, b, c, d, count, ...) count
#define REAL_MARK(name, ...) CAT(USDT_, COUNT(__VA_ARGS__))(name, __VA_ARGS__)
#define USDT_1(name, format, a) DTRACE_PROBE1(real, name, a)
#define USDT_2(name, format, a, b) DTRACE_PROBE2(real, name, a, b)
#define USDT_3(name, format, a, b, c) DTRACE_PROBE3(real, name, a, b, c)
#define USDT_4(name, format, a, b, c, d) DTRACE_PROBE4(real, name, a, b, c, d)

#elif defined(REAL_TRUTH)

#include "truth.h"
#include <markerjit/marker.h>
#define REAL_MARK(name, ...)                                                                       \
    do {                                                                                           \
        static struct real_place real_place_ __attribute__((section("real_places"))) = {#name, 0}; \
        real_place_.passed++;                                                                      \
        MARK(name, __VA_ARGS__);                                                                   \
    } while (0)

#else

#include <markerjit/marker.h>
#define REAL_MARK MARK

#endif
#endif
