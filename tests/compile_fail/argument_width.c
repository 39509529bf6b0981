/* expect: %d.* expects .*'int'.*long|type 'int' but the argument has type .*long */
/* SPDX-License-Identifier: MIT */
#include <markerjit/marker.h>
#include <stddef.h>
void use(size_t size);
void use(size_t size) {
#ifdef FIXED
    MARK(kv_get, "size %zu", size);
#else
    MARK(kv_get, "size %d", size);
#endif
}
