/* SPDX-License-Identifier: MIT */
/*
 * truth_values: markers with every number of arguments, in registers and on the stack, that tell
 * themselves what they were given.
 *
 *     ints_0 ... ints_12     so many integers, of all sizes
 *     reals_1 ... reals_12   so many doubles and floats
 *     mixed_2 ... mixed_12   both, in various orders
 *
 * The values are functions of the turn, the extreme ones first. Commands: `fire FROM TO`: every
 * marker is passed once in each of these turns, in the order below, by the main thread; `there FROM
 * TO`: by a thread that is made for it. Both are answered with their word and `tid=N turns=N`.
 * `tell TURN`: a line for each marker as printf(3) shows it, `name field=value ...`, and then the
 * line `told`. `quit`. Built once more for each other kind of marker that is switched in another
 * way.
 */
#define _GNU_SOURCE 1
#include <markerjit/marker.h>
#include <sys/syscall.h>

#include "truth.h"

static truth_count turns;

/* Bits that differ in every byte, or are extreme for some size. */
static uint64_t bits(unsigned long turn, unsigned position) {
    static const uint64_t extreme[] = {
        0,
        1,
        ~0ul,
        0x7f,
        0x80,
        0x7fff,
        0x8000,
        0x7ffffffful,
        0x80000000ul,
        0x7ffffffffffffffful,
        0x8000000000000000ul,
        0x0123456789abcdeful,
    };
    const unsigned long which = turn + position;

    if (turn < sizeof extreme / sizeof *extreme)
        return extreme[which % (sizeof extreme / sizeof *extreme)];
    uint64_t mixed = (turn * 16 + position) * 0x9e3779b97f4a7c15ul;
    mixed = (mixed ^ mixed >> 30) * 0xbf58476d1ce4e5b9ul;
    return mixed ^ mixed >> 27;
}

static double real(unsigned long turn, unsigned position) {
    static const double extreme[] = {
        0.0,
        -0.0,
        1.5,
        -1e300,
        4.9e-324,
        1.7976931348623157e308,
        0.1,
        __builtin_inf(),
        -__builtin_inf(),
        __builtin_nan(""),
        3.4028234663852886e38,
        16777217,
    };
    const unsigned long which = turn + position;

    if (turn < sizeof extreme / sizeof *extreme)
        return extreme[which % (sizeof extreme / sizeof *extreme)];
    return (double)(int64_t)bits(turn, position) / 1024;
}

/* One argument of each type. */
#define I8(i) (int8_t) bits(turn, i)
#define U8(i) (uint8_t) bits(turn, i)
#define I16(i) (int16_t) bits(turn, i)
#define U16(i) (uint16_t) bits(turn, i)
#define I32(i) (int32_t) bits(turn, i)
#define U32(i) (uint32_t) bits(turn, i)
#define I64(i) (int64_t) bits(turn, i)
#define U64(i) bits(turn, i)
#define F64(i) real(turn, i)
#define F32(i) (float)real(turn, i)

/* The same values for the marker and for what is told. */
#define PASS(name, format, ...)                                                                    \
    do {                                                                                           \
        if (tell)                                                                                  \
            truth_say(#name " " format, __VA_ARGS__);                                              \
        else                                                                                       \
            MARK(name, format, __VA_ARGS__);                                                       \
    } while (0)

__attribute__((noinline)) static void pass_ints(unsigned long turn, bool tell) {
    if (tell)
        truth_say("ints_0");
    else
        MARK(ints_0, "nothing");
    PASS(ints_1, "a=%hhd", I8(0));
    PASS(ints_2, "a=%hu b=%d", U16(0), I32(1));
    PASS(ints_3, "a=%lu b=%hhu c=%hd", U64(0), U8(1), I16(2));
    PASS(ints_4, "a=%u b=%#lx c=%hhd d=%hhu", U32(0), U64(1), I8(2), U8(3));
    PASS(ints_5, "a=%ld b=%d c=%hd d=%hhd e=%u", I64(0), I32(1), I16(2), I8(3), U32(4));
    PASS(ints_6, "a=%hhu b=%hhu c=%hhu d=%hhu e=%hhu f=%hhu", U8(0), U8(1), U8(2), U8(3), U8(4),
         U8(5));
    PASS(ints_7, "a=%d b=%d c=%d d=%d e=%d f=%hd g=%hhd", I32(0), I32(1), I32(2), I32(3), I32(4),
         I16(5), I8(6));
    PASS(ints_8, "a=%hd b=%ld c=%hd d=%ld e=%hd f=%ld g=%hhu h=%u", I16(0), I64(1), I16(2), I64(3),
         I16(4), I64(5), U8(6), U32(7));
    PASS(ints_9, "a=%lu b=%lu c=%lu d=%lu e=%lu f=%lu g=%lu h=%lu i=%lu", U64(0), U64(1), U64(2),
         U64(3), U64(4), U64(5), U64(6), U64(7), U64(8));
    PASS(ints_10, "a=%hhd b=%hu c=%d d=%lu e=%hhd f=%hu g=%d h=%lu i=%hhd j=%hu", I8(0), U16(1),
         I32(2), U64(3), I8(4), U16(5), I32(6), U64(7), I8(8), U16(9));
    PASS(ints_11, "a=%lx b=%x c=%o d=%lu e=%u f=%d g=%ld h=%hhd i=%hd j=%d k=%ld", U64(0), U32(1),
         U32(2), U64(3), U32(4), I32(5), I64(6), I8(7), I16(8), I32(9), I64(10));
    PASS(ints_12, "a=%hhd b=%hhu c=%hd d=%hu e=%d f=%u g=%ld h=%lu i=%hhd j=%hhu k=%hd l=%hu",
         I8(0), U8(1), I16(2), U16(3), I32(4), U32(5), I64(6), U64(7), I8(8), U8(9), I16(10),
         U16(11));
}

__attribute__((noinline)) static void pass_reals(unsigned long turn, bool tell) {
    PASS(reals_1, "a=%.17g", F64(0));
    PASS(reals_8, "a=%.17g b=%.17g c=%.17g d=%.9g e=%.17g f=%.17g g=%.9g h=%.17g", F64(0), F64(1),
         F64(2), F32(3), F64(4), F64(5), F32(6), F64(7));
    PASS(reals_9, "a=%.9g b=%.9g c=%.9g d=%.9g e=%.9g f=%.9g g=%.9g h=%.9g i=%.9g", F32(0), F32(1),
         F32(2), F32(3), F32(4), F32(5), F32(6), F32(7), F32(8));
    PASS(reals_12,
         "a=%.17g b=%.17g c=%.17g d=%.17g e=%.17g f=%.17g g=%.17g h=%.17g i=%.17g j=%.9g k=%.17g "
         "l=%.9g",
         F64(0), F64(1), F64(2), F64(3), F64(4), F64(5), F64(6), F64(7), F64(8), F32(9), F64(10),
         F32(11));
}

__attribute__((noinline)) static void pass_mixed(unsigned long turn, bool tell) {
    PASS(mixed_2, "a=%.17g b=%hhd", F64(0), I8(1));
    PASS(mixed_4, "a=%d b=%.17g c=%hhu d=%.9g", I32(0), F64(1), U8(2), F32(3));
    PASS(mixed_7, "a=%ld b=%.17g c=%hd d=%.9g e=%lu f=%.17g g=%hhd", I64(0), F64(1), I16(2), F32(3),
         U64(4), F64(5), I8(6));
    PASS(mixed_10, "a=%.17g b=%hd c=%.17g d=%hd e=%.17g f=%hd g=%.17g h=%hd i=%.17g j=%ld", F64(0),
         I16(1), F64(2), I16(3), F64(4), I16(5), F64(6), I16(7), F64(8), I64(9));
    PASS(mixed_11, "a=%d b=%d c=%d d=%d e=%d f=%d g=%.17g h=%ld i=%.9g j=%hhu k=%.17g", I32(0),
         I32(1), I32(2), I32(3), I32(4), I32(5), F64(6), I64(7), F32(8), U8(9), F64(10));
    PASS(mixed_12,
         "a=%.17g b=%.17g c=%.17g d=%.17g e=%.17g f=%.17g g=%.17g h=%.17g i=%.17g j=%hhd k=%.9g "
         "l=%ld",
         F64(0), F64(1), F64(2), F64(3), F64(4), F64(5), F64(6), F64(7), F64(8), I8(9), F32(10),
         I64(11));
}

static void pass(unsigned long turn, bool tell) {
    pass_ints(turn, tell);
    pass_reals(turn, tell);
    pass_mixed(turn, tell);
}

struct span {
    unsigned long from, to;
    long tid;
};

static void *fire(void *argument) {
    struct span *span = argument;

    span->tid = syscall(SYS_gettid);
    for (unsigned long turn = span->from; turn < span->to; turn++) {
        pass(turn, false);
        truth_add(&turns);
    }
    return NULL;
}

int main(void) {
    char line[64];
    const char *rest;

    truth_ready();
    while (truth_next(line, sizeof line)) {
        struct span span = {0, 0, 0};
        pthread_t thread;

        if ((rest = truth_is(line, "tell"))) {
            pass((unsigned long)truth_number(rest, 0), true);
            truth_say("told");
            continue;
        }
        sscanf(line, "%*s %lu %lu", &span.from, &span.to);
        if (!truth_is(line, "there"))
            fire(&span);
        else if (pthread_create(&thread, NULL, fire, &span) != 0 || pthread_join(thread, NULL) != 0)
            return 3;
        line[strcspn(line, " ")] = '\0';
        truth_say("%s tid=%ld turns=%lu", line, span.tid, atomic_load(&turns));
    }
    return 0;
}
