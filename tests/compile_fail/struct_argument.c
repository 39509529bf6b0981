/* expect: markerjit: a field is an integer, an enumeration, a float, a double or a pointer */
/* SPDX-License-Identifier: MIT */
#include <markerjit/marker.h>

struct point {
    int x, y;
};
void use(struct point point);
void use(struct point point) {
#ifdef FIXED
    MARK(kv_get, "x %d y %d", point.x, point.y);
#else
    MARK(kv_get, "point %d", point);
#endif
}
