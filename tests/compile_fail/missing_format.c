/* expect: error: static.assert.*markerjit: a marker needs a format behind its name, such as MARK */
/* SPDX-License-Identifier: MIT */
#include <markerjit/marker.h>

void use(void);
void use(void) {
#ifdef FIXED
    MARK(kv_get, "");
#else
    MARK(kv_get);
#endif
}
