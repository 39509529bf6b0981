/* SPDX-License-Identifier: MIT */
/* truth_values_nop: truth_values with its markers compiled as `nop`. */
#define MJ_MODE nop
#include "truth_values.c"
