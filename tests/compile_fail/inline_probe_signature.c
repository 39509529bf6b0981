/* expect: too few arguments to function|no matching function */
/* SPDX-License-Identifier: MIT */
#include <markerjit/marker.h>

static inline void probe(int x, const char *key) {
    (void)x;
    (void)key;
}
void use(int x);
void use(int x) {
#ifdef FIXED
    MARK_INLINE(kv_get, probe, "x %d key %s", x, "");
#else
    MARK_INLINE(kv_get, probe, "x %d", x);
#endif
}
