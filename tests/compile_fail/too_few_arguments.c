/* expect: expects a matching 'int' argument|more '%' conversions than data arguments */
/* SPDX-License-Identifier: MIT */
#include <markerjit/marker.h>

void use(int x);
void use(int x) {
#ifdef FIXED
    MARK(kv_get, "a %d b %d", x, x);
#else
    MARK(kv_get, "a %d b %d", x);
#endif
}
