/* SPDX-License-Identifier: MIT */
/* truth_values_pointer: truth_values with its markers compiled as `pointer`. */
#define MJ_MODE pointer
#include "truth_values.c"
