/* SPDX-License-Identifier: MIT */
/* call.S: how a slot reaches a function of the program. */

#include "../include/markerjit/abi.h"

#define CPU_FLAGS mj_cpu_flags(%rip)
#include "../src/call/call.S"
