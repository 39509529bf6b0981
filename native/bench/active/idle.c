/* SPDX-License-Identifier: MIT */
/* idle.c: a probe in C that does nothing, for markerjit bench: the way to a probe and back. */
#include <markerjit/probe.h>

void nothing(struct mj_slot *slot, int a, int b) {
    (void)slot;
    (void)a;
    (void)b;
}
