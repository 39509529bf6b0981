/* expect: markerjit: a field is an integer|use of deleted function|call to deleted */
/* SPDX-License-Identifier: MIT */
#include <markerjit/marker.h>
#include <memory>
void use(const std::unique_ptr<int> &owner);
void use(const std::unique_ptr<int> &owner) {
#ifdef FIXED
    MARK(kv_get, "p %p", static_cast<void *>(owner.get()));
#else
    MARK(kv_get, "p %p", owner);
#endif
}
