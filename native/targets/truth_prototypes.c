/* SPDX-License-Identifier: MIT */
/*
 * truth_prototypes: functions whose debugging information says what they take.
 *
 *     numbers   all sizes and signs of integers, a bool, an enumeration, a char
 *     floats    doubles, floats, a long double, and an integer behind them
 *     many      more integers and doubles than there are registers for
 *     texts     a text, bytes, a pointer to anything
 *     small     structures of up to two words, in general registers, in vector registers, in both
 *     spilled   a structure for which there are not enough registers, and what comes behind it
 *     large     a structure of more than two words, and a result that the caller has room for
 *     nothing   takes nothing
 *
 * Command: `run N` calls each of them N times, with values that follow from the number of the turn.
 */
#include <stdbool.h>

#include "truth.h"

#define FUNCTION __attribute__((noinline, noclone, noipa))

enum colour { RED = -1, GREEN = 1 };
struct span {
    const char *start;
    unsigned long length;
};
struct point {
    double x, y;
};
struct mixed {
    double weight;
    int number;
};
struct bits {
    unsigned first : 3;
    int rest;
};
struct table {
    long entries[5];
};

FUNCTION void numbers(signed char c, unsigned short s, int i, unsigned long l, bool b,
                      enum colour e) {
    __asm__ volatile("" ::"r"((int)c), "r"((int)s), "r"(i), "r"(l), "r"((int)b), "r"((int)e));
}

FUNCTION void floats(double d, float f, long double wide, int after) {
    __asm__ volatile("" ::"x"(d), "x"(f), "m"(wide), "r"(after));
}

FUNCTION void many(long a, long b, long c, long d, long e, long f, int g, short h, double x) {
    __asm__ volatile("" ::"r"(a), "r"(b), "r"(c), "r"(d), "r"(e), "r"(f), "r"(g), "r"((int)h),
                     "x"(x));
}

FUNCTION void texts(const char *text, const unsigned char *bytes, void *anything) {
    __asm__ volatile("" ::"r"(text), "r"(bytes), "r"(anything));
}

FUNCTION void small(struct span span, struct point point, struct mixed mixed, struct bits bits) {
    __asm__ volatile("" ::"r"(span.start), "r"(span.length), "x"(point.x), "x"(point.y),
                     "x"(mixed.weight), "r"(mixed.number), "r"(bits.rest));
}

FUNCTION void spilled(long a, long b, long c, long d, long e, struct span span, long f, long g) {
    __asm__ volatile("" ::"r"(a), "r"(b), "r"(c), "r"(d), "r"(e), "m"(span), "r"(f), "r"(g));
}

FUNCTION struct table large(struct table table, int number) {
    table.entries[1] = number;
    return table;
}

FUNCTION void nothing(void) { __asm__ volatile(""); }

static void call_each(int i) {
    static const char *const words[] = {"zero", "one", "two"};
    const struct table table = {{i, i, i, i, i}};

    numbers((signed char)-i, (unsigned short)(60000 + i), -1000000 * i, 1ul << 63 | (unsigned)i,
            i % 2, i % 2 ? GREEN : RED);
    floats(i / 2.0, (float)i / 4, i, i);
    many(1, 2, 3, 4, 5, 6, -i, (short)(i + 1), i / 8.0);
    texts(words[i % 3], (const unsigned char *)words[0], (void *)(unsigned long)i);
    small((struct span){words[i % 3], (unsigned long)i}, (struct point){i, -i},
          (struct mixed){i / 2.0, i}, (struct bits){1, i});
    spilled(1, 2, 3, 4, 5, (struct span){words[0], 4}, 6, i);
    if (large(table, i).entries[1] != i)
        abort();
    nothing();
}

int main(void) {
    char line[64];

    truth_ready();
    while (truth_next(line, sizeof line)) {
        const char *times = truth_is(line, "run");

        if (truth_is(line, "quit"))
            break;
        if (times) {
            for (int i = 0; i < truth_number(times, 0); i++)
                call_each(i);
        }
        line[strcspn(line, " ")] = '\0';
        truth_say("%s", line);
    }
    return 0;
}
