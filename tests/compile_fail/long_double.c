/* expect: markerjit: a field is an integer, an enumeration, a float, a double or a pointer */
/* SPDX-License-Identifier: MIT */
#include <markerjit/marker.h>

void use(long double x);
void use(long double x) {
#ifdef FIXED
    MARK(kv_get, "x %f", (double)x);
#else
    MARK(kv_get, "x %Lf", x);
#endif
}
