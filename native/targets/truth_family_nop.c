/* SPDX-License-Identifier: MIT */
/* truth_family_nop: truth_family with its marker compiled as `nop`. */
#define MJ_MODE nop
#include "truth_family.c"
