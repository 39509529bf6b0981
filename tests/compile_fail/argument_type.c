/* expect: '%d' expects .*'const char ?\*'|'int' but the argument has type 'const char \*' */
/* SPDX-License-Identifier: MIT */
#include <markerjit/marker.h>

void use(const char *key);
void use(const char *key) {
#ifdef FIXED
    MARK(kv_get, "key %s", key);
#else
    MARK(kv_get, "key %d", key);
#endif
}
