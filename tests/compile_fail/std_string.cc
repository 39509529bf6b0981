/* expect: markerjit: a field is an integer, an enumeration, a float, a double or a pointer */
/* SPDX-License-Identifier: MIT */
#include <markerjit/marker.h>
#include <string>
void use(const std::string &key);
void use(const std::string &key) {
#ifdef FIXED
    MARK(kv_get, "key %s", key.c_str());
#else
    MARK(kv_get, "key %s", key);
#endif
}
