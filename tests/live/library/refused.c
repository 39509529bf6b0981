/* SPDX-License-Identifier: MIT */
/* refused.c: built with a kind that cannot be switched from inside. */
#include "check.h"

static int calls;

static void on_any(struct mj_slot *slot, int value) {
    (void)slot;
    (void)value;
    calls++;
}

__attribute__((noinline)) static void pass(int value) { MARK(fixed, "value %d", value); }

static void refused(void) {
    const uint64_t text = text_hash();
    const struct found found = find_sites("fixed");

    CHECK_EQUAL(found.count, 1);
    CHECK_EQUAL(found.on, MJ_KIND == MJ_KIND_direct);
    CHECK_EQUAL(marker_set_probe("fixed", MARKER_PROBE(on_any), MARKER_CALL), -ENOTSUP);
    CHECK_EQUAL(marker_disable_probe("fixed"), -ENOENT);
    pass(1);
    CHECK_EQUAL(calls, 0);
    CHECK_EQUAL(text_hash(), text);
}

MAIN(CASE(refused))
