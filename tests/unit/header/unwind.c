/* SPDX-License-Identifier: MIT */
/* unwind.c: two functions of which one has a frame and the other is a leaf, with probes of the
   program's own. A debugger that stops in in_probe has to find its callers. */
#include <markerjit/marker.h>
#include <markerjit/probes.h>

#define NOINLINE __attribute__((noinline))

static volatile int sink;

NOINLINE void in_probe(void) { sink++; }

__attribute__((aligned(16), noinline)) static void on_framed(struct mj_slot *slot, int a,
                                                             double b) {
    (void)slot;
    sink += a + (int)b;
    in_probe();
    sink++;
}

__attribute__((aligned(16), noinline)) static void on_leaf(struct mj_slot *slot, int a) {
    (void)slot;
    sink += a;
    in_probe();
    sink++;
}

NOINLINE int framed(int a, double b) {
    volatile char room[200];

    room[a] = 1;
    MARK(framed, "a %d b %f", a, b);
    return room[a] + a;
}

NOINLINE int leaf(int a) {
    MARK(leaf, "a %d", a);
    return a + sink;
}

NOINLINE int caller(int a) {
    const int result = framed(a, 2.0) + 1;

    return leaf(result) + result;
}

int main(void) {
    if (marker_set_probe("framed", MARKER_PROBE(on_framed), MARKER_CALL) ||
        marker_set_probe("leaf", MARKER_PROBE(on_leaf), MARKER_CALL))
        return 2;
    return caller(3) == 0;
}
