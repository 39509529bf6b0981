/* SPDX-License-Identifier: MIT */
#include "two.h"

__attribute__((noinline)) int other(int x) { return shared(x) + shared_template(x); }

/* Nobody calls this one. */
__attribute__((noinline)) int dead(int x);
__attribute__((noinline)) int dead(int x) {
    MARK(dead, "x %d", x);
    return x;
}
