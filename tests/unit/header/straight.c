/* SPDX-License-Identifier: MIT */
/*
 * straight: functions without a branch of their own, so that every jump on the way from the first
 * instruction to the return is a marker's. Each `straight_*` has as many markers as its digit says.
 */
#include <markerjit/marker.h>

#ifdef __cplusplus
#define FUNCTION extern "C" __attribute__((noinline))
#else
#define FUNCTION __attribute__((noinline))
#endif

volatile int before, after;

FUNCTION int straight_1(int x);
FUNCTION int straight_1(int x) {
    before = x;
    MARK(bare, "");
    after = x;
    return 3 * x + 1;
}

FUNCTION double straight_2(int x, const char *s, double d);
FUNCTION double straight_2(int x, const char *s, double d) {
    before = x;
    MARK(one, "x %d s %s d %f", x * x, s, d * 2);
    after = x;
    MARK(two, "s %.*s d %f", x, s, d);
    before = x + 1;
    return d * x;
}

FUNCTION long straight_3(long a, long b, long c, long d, long e, long f, long g);
FUNCTION long straight_3(long a, long b, long c, long d, long e, long f, long g) {
    before = 1;
    MARK(wide, "%ld %ld %ld %ld %ld %ld %ld %ld %ld %ld %ld %ld", a, b, c, d, e, f, g, a + b, c + d,
         e + f, g + a, b * c);
    after = 1;
    MARK(sum, "s %ld p %p", a + b + c + d + e + f + g, (void *)&before);
    after = 2;
    MARK(sum, "s %ld p %p", a * b * c * d * e * f * g, (void *)&after);
    before = 2;
    return a ^ b ^ c ^ d ^ e ^ f ^ g;
}

int main(void) {
    return (int)(straight_1(1) + straight_2(1, "a", 1) + (double)straight_3(1, 2, 3, 4, 5, 6, 7)) ==
           -1;
}
