/* SPDX-License-Identifier: MIT */
/* truth_family_pointer: truth_family with its marker compiled as `pointer`. */
#define MJ_MODE pointer
#include "truth_family.c"
