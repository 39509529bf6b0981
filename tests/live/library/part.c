/* SPDX-License-Identifier: MIT */
/* part.c: a shared object with two sites of the marker that objects.c has too. */
#include <markerjit/marker.h>

int part_pass(int value);
int part_pass(int value) {
    MARK(shared_name, "value %d", value);
    if (value > 100)
        MARK(shared_name, "value %d", value - 100);
#ifdef MJ_TEST_TRUNCATED_NOTE
    /* the last of the segment: says that it is longer than that is */
    __asm__ volatile(".pushsection .note.markerjit, \"a\", @note\n"
                     ".balign 4\n"
                     ".long 10, 0xfffffff0, 1\n"
                     ".asciz \"markerjit\"\n"
                     ".balign 4\n"
                     ".popsection");
#endif
    return value;
}
