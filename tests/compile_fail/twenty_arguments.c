/* expect: a marker takes at most 12 arguments */
/* SPDX-License-Identifier: MIT */
#include <markerjit/marker.h>

void use(int x);
void use(int x) {
#ifdef FIXED
    MARK(kv_get, "%d", x);
#else
    MARK(kv_get, "", x, x, x, x, x, x, x, x, x, x, x, x, x, x, x, x, x, x, x, x);
#endif
}
