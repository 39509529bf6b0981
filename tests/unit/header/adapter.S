/* SPDX-License-Identifier: MIT */
/* The adapter through which selfpatch.h's slots reach C functions: the one of libmarkerjit.a. */
#include <markerjit/abi.h>

#define CPU_FLAGS cpu_flags(%rip)
#include "../../../native/src/call/call.S"

    .data
cpu_flags:
    .long 4 /* MJ_CPU_XSAVE */
