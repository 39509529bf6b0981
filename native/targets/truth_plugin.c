/* SPDX-License-Identifier: MIT */
/* truth_plugin: a shared object with a marker, for truth_dlopen to load and unload. */
#include <markerjit/marker.h>

#include "truth.h"

/* The counter is the caller's: it outlives this object. */
__attribute__((visibility("default"))) void truth_plugin(int n, truth_count *count);

void truth_plugin(int n, truth_count *count) {
    MARK(truth_plugin, "n %d", n);
    truth_add(count);
}
