/* expect: MJ_FORMAT_MUST_BE_A_STRING_LITERAL */
/* SPDX-License-Identifier: MIT */
#include <markerjit/marker.h>

static constexpr char format[] = "x %d";
void use(int x);
void use(int x) {
#ifdef FIXED
    MARK(kv_get, "x %d", x);
#else
    MARK(kv_get, format, x);
#endif
}
