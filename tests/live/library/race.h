/* SPDX-License-Identifier: MIT */
/* race.h: included before the library's own files, puts a program of ours at its dangerous points.
 */
#define MJ_RACE(point, argument) mj_test_race(point, argument)
#ifndef __ASSEMBLER__
void mj_test_race(const char *point, const void *argument);
#endif
