/* SPDX-License-Identifier: MIT */
/* call.S: how a slot reaches a function of the program. */

#include "../include/markerjit/abi.h"

/* In the slot, with locked instructions: (A) of change.c. */
.macro count_entering self, sequence
    lock incq MJ_SLOT_ENTERED(%rdi)
.endm

.macro check_entered
.endm

.macro count_leaving self, sequence
    lock incq MJ_SLOT_LEFT(%rdi)
.endm

.macro otherwise self
.endm

#define CPU_FLAGS mj_cpu_flags(%rip)
#include "../src/call/call.S"
