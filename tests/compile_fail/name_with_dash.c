/* expect: MJ_NAME_MUST_BE_AN_IDENTIFIER */
/* SPDX-License-Identifier: MIT */
#include <markerjit/marker.h>

void use(int x);
void use(int x) {
#ifdef FIXED
    MARK(kv_get, "x %d", x);
#else
    MARK(kv - get, "x %d", x);
#endif
}
