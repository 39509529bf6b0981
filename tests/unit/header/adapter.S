/* SPDX-License-Identifier: MIT */
/* The adapter through which selfpatch.h's slots reach C functions: the one of libmarkerjit.a. */
#define mj_cpu_flags cpu_flags
#include "../../../native/lib/call.S"

    .data
cpu_flags:
    .long MJ_CPU_XSAVE
