/* expect: a marker takes at most 12 arguments */
/* SPDX-License-Identifier: MIT */
#include <markerjit/marker.h>

void use(int x);
void use(int x) {
#ifdef FIXED
    MARK(kv_get, "%d %d %d %d %d %d %d %d %d %d %d %d", x, x, x, x, x, x, x, x, x, x, x, x);
#else
    MARK(kv_get, "%d %d %d %d %d %d %d %d %d %d %d %d %d", x, x, x, x, x, x, x, x, x, x, x, x, x);
#endif
}
