/* expect: MJ_MODE must be jump, nop, pointer, sentinel, direct, immediate, symbol or none */
/* SPDX-License-Identifier: MIT */
#ifdef FIXED
#define MJ_MODE nop
#else
#define MJ_MODE jmp
#endif
#include <markerjit/marker.h>

void use(int x);
void use(int x) { MARK(kv_get, "x %d", x); }
