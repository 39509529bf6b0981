/* SPDX-License-Identifier: MIT */
/* entry.c: struct mj_entry, the first bytes of the image; the linker fills in the distances. */

#include "runtime.h"

#define STR2(x) #x
#define STR(x) STR2(x)
#define OFFSET(symbol) ".long " #symbol " - mj_code_start\n"
#define SEQUENCE(name) OFFSET(name##_start) OFFSET(name##_end) OFFSET(name##_abort)

// clang-format off
__asm__(".pushsection .entry, \"a\"\n"
        ".globl mj_entry, mj_code_start\n"
        ".hidden mj_code_start\n"
        "mj_entry:\n"
        "mj_code_start:\n"
        ".quad " STR(MJ_ARENA_MAGIC) "\n"
        ".long " STR(MJ_ARENA_VERSION) "\n"
        OFFSET(mj_code_end)
        OFFSET(mj_record)
        OFFSET(mj_count)
        OFFSET(mj_trap)
        OFFSET(mj_restorer)
        OFFSET(mj_record_event)
        OFFSET(mj_pass)
        OFFSET(mj_turn)
        OFFSET(mj_lose)
        OFFSET(mj_fetch)
        OFFSET(mj_record_block)
        OFFSET(mj_count_block)
        OFFSET(mj_call)
        OFFSET(mj_call_saving_vectors)
        OFFSET(mj_gate_record)
        OFFSET(mj_gate_pass)
        OFFSET(mj_gate_lose)
        OFFSET(mj_gate_ask)
        SEQUENCE(mj_append)
        SEQUENCE(mj_turn)
        SEQUENCE(mj_tally)
        SEQUENCE(mj_count_block)
        SEQUENCE(mj_call_enter)
        SEQUENCE(mj_call_leave)
        SEQUENCE(mj_call_saving_vectors_enter)
        SEQUENCE(mj_call_saving_vectors_leave)
        OFFSET(mj_gate_load)
        OFFSET(mj_gate_clock)
        OFFSET(mj_gate_aggregate)
        SEQUENCE(mj_cell_add)
        SEQUENCE(mj_cell_set)
        OFFSET(mj_gate_pair)
        OFFSET(mj_stash_claim)
        OFFSET(mj_stash_find)
        OFFSET(mj_gate_stack)
        ".popsection\n");
// clang-format on
