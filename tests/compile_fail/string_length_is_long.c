/* expect: \.\*.* type 'int', but argument|should have type 'int', but argument has type 'long' */
/* SPDX-License-Identifier: MIT */
#include <markerjit/marker.h>

void use(const char *key, long size);
void use(const char *key, long size) {
#ifdef FIXED
    MARK(kv_get, "key %.*s", (int)size, key);
#else
    MARK(kv_get, "key %.*s", size, key);
#endif
}
