/* expect: markerjit: a field is an integer, an enumeration, a float, a double or a pointer */
/* SPDX-License-Identifier: MIT */
#include <markerjit/marker.h>

struct point {
    int x;
};
void use(int point::*member);
void use(int point::*member) {
#ifdef FIXED
    MARK(kv_get, "is null %d", member == nullptr);
#else
    MARK(kv_get, "p %p", member);
#endif
}
