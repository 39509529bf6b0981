/* expect: MJ_FORMAT_MUST_BE_A_STRING_LITERAL */
/* SPDX-License-Identifier: MIT */
#include <markerjit/marker.h>

void use(const char *format, int x);
void use(const char *format, int x) {
#ifdef FIXED
    MARK(kv_get, "x %d", x);
#else
    MARK(kv_get, format, x);
#endif
}
