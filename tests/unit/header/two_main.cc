/* SPDX-License-Identifier: MIT */
#include "two.h"

/* Nobody calls this one either, and it is the only user of its instance of the template. */
__attribute__((noinline)) double dead_here(double x);
__attribute__((noinline)) double dead_here(double x) { return shared_template(x); }

int main(int argc, char **) {
    MARK(kept, "argc %d", argc);
    return shared(argc) + other(argc) + shared_template(argc) < 0;
}
