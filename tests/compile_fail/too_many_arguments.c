/* expect: too many arguments for format|data argument not used by format string */
/* SPDX-License-Identifier: MIT */
#include <markerjit/marker.h>

void use(int x);
void use(int x) {
#ifdef FIXED
    MARK(kv_get, "a %d b %d", x, x);
#else
    MARK(kv_get, "a %d", x, x);
#endif
}
