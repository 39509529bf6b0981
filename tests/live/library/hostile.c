/* SPDX-License-Identifier: MIT */
/* hostile.c: notes that must not be believed, and one in their middle that may. */
#include "check.h"

#define NOTE(version, kind, argc, size, site, slot, text, name)                                    \
    ".balign 4\n"                                                                                  \
    ".long 10, 995f-994f, 1\n"                                                                     \
    ".asciz \"markerjit\"\n"                                                                       \
    ".balign 4\n"                                                                                  \
    "994: .byte " #version ", " #kind ", " #argc ", 0\n"                                           \
    ".short " #size ", 0\n"                                                                        \
    ".long " site ", " site "-4, 995f-., " slot ", " text ", 1, 0, 0, 0\n"                         \
    "." name "\n"                                                                                  \
    "995: .balign 4\n"

#define CODE "here-."
#define SLOT "__mj_block_slot_good-."
#define TEXT "text-."
#define NAME "asciz \"bad\""

__asm__(".pushsection .rodata\n"
        "text: .asciz \"format\"\n"
        ".asciz \"file\"\n"
        ".popsection\n"
        ".text\n"
        "here: .skip 16, 0x90\n"
        ".pushsection .note.markerjit, \"a\", @note\n" NOTE(9, 1, 0, 44, CODE, SLOT, TEXT,
                                                            NAME) /* 1: a version of tomorrow  */
        NOTE(1, 0, 0, 44, CODE, SLOT, TEXT, NAME)                 /* 2: no kind                */
        NOTE(1, 99, 0, 44, CODE, SLOT, TEXT, NAME)                /* 3: no known kind          */
        NOTE(1, 1, 13, 44, CODE, SLOT, TEXT, NAME)                /* 4: too many arguments     */
        NOTE(1, 1, 0, 20, CODE, SLOT, TEXT, NAME)                 /* 5: a name inside fields   */
        NOTE(1, 1, 0, 4444, CODE, SLOT, TEXT, NAME)               /* 6: a name outside         */
        NOTE(1, 1, 0, 44, CODE, SLOT, TEXT, "ascii \"bad\"")      /* 7: a name without end     */
        NOTE(1, 1, 0, 44, "0x7ffffff0", SLOT, TEXT, NAME)         /* 8: code at the far end    */
        NOTE(1, 1, 0, 44, "__mj_block_slot_good-.", SLOT, TEXT, NAME) /* 9: code that is data     */
        NOTE(1, 1, 0, 44, CODE, "0", TEXT, NAME) /* 10: no slot               */
        NOTE(1, 1, 0, 44, CODE, "__mj_block_slot_good+1-.", TEXT, NAME) /* 11: a crooked slot     */
        NOTE(1, 1, 0, 44, CODE, "here-.", TEXT, NAME)      /* 12: a slot that is code   */
        NOTE(1, 1, 0, 44, CODE, SLOT, "-0x7ffffff0", NAME) /* 13: text at the other end */
        NOTE(1, 1, 0, 44, CODE, SLOT, TEXT, "byte 0")      /* a name of no letters: a site */
        ".long 10, 0, 1\n"                                 /* 14: nothing in it         */
        ".asciz \"markerjit\"\n"
        ".balign 4\n"
        ".long 6, 4, 1\n" /* somebody else's */
        ".asciz \"other\"\n"
        ".balign 4\n"
        ".long 0\n"
        ".popsection\n");

static int calls;

static void on_good(struct mj_slot *slot) {
    (void)slot;
    calls++;
}

__attribute__((noinline)) static void good(void) { MARK(good, "good"); }

static void bad_notes_are_skipped(void) {
    struct marker_statistics numbers;
    const uint64_t text = text_hash();

    good();
    CHECK_EQUAL(find_sites("bad").count, 0);
    CHECK_EQUAL(marker_set_probe("bad", MARKER_PROBE(on_good), MARKER_CALL), -ENOENT);
    CHECK_EQUAL(marker_set_probe("", MARKER_PROBE(on_good), MARKER_CALL), -EILSEQ);
    CHECK_EQUAL(text_hash(), text);
    CHECK_EQUAL(marker_set_probe("good", MARKER_PROBE(on_good), MARKER_CALL), 0);
    good();
    CHECK_EQUAL(calls, 1);
    marker_get_statistics(&numbers);
    CHECK_EQUAL(numbers.skipped_notes, 14);
    CHECK_EQUAL(numbers.sites, 2);
}

MAIN(CASE(bad_notes_are_skipped))
