/* SPDX-License-Identifier: MIT */
/*
 * truth_inline: one marker at many sites, and markers with fields of all types.
 *
 *     truth_inline  "where %d i %d": in an inlined function, called from three places and from a
 *                   loop that gcc unrolls four times
 *     truth_types   twelve fields, see fire()
 *     truth_more    the types that did not find room there
 *
 * Commands: `run N`: each of the three places once (where 0 to 2, i = N), the loop N times (where
 * 3, i from 0). `fire N`: truth_types and truth_more N times; with k from 0 the values are those
 * in fire(), and the answer says the address of its `pointer` field. `counts`, `quit`.
 */
#include <limits.h>
#include <markerjit/marker.h>

#include "truth.h"

enum color { RED = -3, GREEN = 7 };

static truth_count inlined, types, more;

__attribute__((always_inline)) static inline void pass(int where, int i) {
    MARK(truth_inline, "where %d i %d", where, i);
    truth_add(&inlined);
}

__attribute__((noinline)) static void run(int times) {
    pass(0, times);
    if (times & 1)
        pass(1, times);
    else
        pass(1, times);
    pass(2, times);
#if !defined(__clang__) /* clang 14 does not unroll a loop with an asm goto, and says so */
#pragma GCC unroll 4
#endif
    for (int i = 0; i < times; i++)
        pass(3, i);
}

__attribute__((noinline)) static void fire(int k) {
    static const char *const keys[] = {"", "key", "gr\303\266\303\237e \"1\"\n"};
    struct {
        unsigned narrow : 3;
        int signed_narrow : 5;
    } bits = {(unsigned)k & 7u, -(k & 15)};

    MARK(truth_types,
         "flag %d schar %hhd uchar %hhu short %hd ushort %hu int %d uint %u long %ld ulong %lu "
         "float %f double %f key %s",
         (_Bool)(k & 1), (signed char)(-1 - k % 128), (unsigned char)(255 - k % 256),
         (short)(SHRT_MIN + k), (unsigned short)(USHRT_MAX - k), INT_MIN + k,
         UINT_MAX - (unsigned)k, LONG_MIN + k, ULONG_MAX - (unsigned long)k, (float)k + 0.5f,
         -(double)k - 0.25, keys[k % 3]);
    truth_add(&types);
    MARK(truth_more,
         "char %c llong %lld ullong %llu part %.*s pointer %p color %d narrow %u signed_narrow %d "
         "nothing %s",
         (char)('a' + k % 26), LLONG_MIN + k, ULLONG_MAX - (unsigned)k, k % 7, "sixsix",
         (void *)&more, k & 1 ? RED : GREEN, bits.narrow, bits.signed_narrow, (const char *)NULL);
    truth_add(&more);
}

int main(void) {
    char line[64];
    const char *rest;

    truth_ready();
    while (truth_next(line, sizeof(line)))
        if ((rest = truth_is(line, "run"))) {
            long times = truth_number(rest, 1);

            run((int)times);
            truth_say("run n=%ld", times);
        } else if ((rest = truth_is(line, "fire"))) {
            long times = truth_number(rest, 1);

            for (int k = 0; k < times; k++)
                fire(k);
            truth_say("fire n=%ld pointer=%lu", times, (unsigned long)&more);
        } else {
            truth_say("%s truth_inline=%lu truth_types=%lu truth_more=%lu", line,
                      atomic_load(&inlined), atomic_load(&types), atomic_load(&more));
        }
    return 0;
}
