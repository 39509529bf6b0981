/* expect: markerjit: a field is an integer|'(%lld|long long)' (expects|but) .*'__int128' */
/* SPDX-License-Identifier: MIT */
#include <markerjit/marker.h>

void use(__int128 x);
void use(__int128 x) {
#ifdef FIXED
    MARK(kv_get, "low %lld", (long long)x);
#else
    MARK(kv_get, "x %lld", x);
#endif
}
