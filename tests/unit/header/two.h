/* SPDX-License-Identifier: MIT */
/* What two.cc and two_main.cc share: an inline function, and a template, with a marker in each. */
#ifndef TWO_H
#define TWO_H

#include <markerjit/marker.h>

inline int shared(int x) {
    MARK(shared, "x %d", x);
    return x + 1;
}

template <class T> T shared_template(T x) {
    MARK(shared_template, "size %zu", sizeof(x));
    return x;
}

int other(int x);

#endif
