/* expect: valid preprocessing token|invalid preprocessing token|MJ_NAME_MUST_BE */
/* SPDX-License-Identifier: MIT */
#include <markerjit/marker.h>

void use(int x);
void use(int x) {
#ifdef FIXED
    MARK(kv_get, "x %d", x);
#else
    MARK("kv_get", "x %d", x);
#endif
}
