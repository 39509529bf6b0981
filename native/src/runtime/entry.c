/* SPDX-License-Identifier: MIT */
/* entry.c: struct mj_entry, the first bytes of the image; the linker fills in the distances. */

#include "runtime.h"

#define STR2(x) #x
#define STR(x) STR2(x)

__asm__(".pushsection .entry, \"a\"\n"
        ".globl mj_entry, mj_code_start\n"
        ".hidden mj_code_start\n"
        "mj_entry:\n"
        "mj_code_start:\n"
        ".quad " STR(MJ_ARENA_MAGIC) "\n"
                                     ".long " STR(
                                         MJ_ARENA_VERSION) "\n"
                                                           ".long mj_code_end - mj_code_start\n"
                                                           ".long mj_record - mj_code_start\n"
                                                           ".long mj_count - mj_code_start\n"
                                                           ".long mj_trap - mj_code_start\n"
                                                           ".long mj_restorer - mj_code_start\n"
                                                           ".popsection\n");
