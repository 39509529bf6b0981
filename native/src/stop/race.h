/* SPDX-License-Identifier: MIT */
/* race.h: points where tests make something go wrong. Empty in what we ship. */
#ifndef MARKERJIT_RACE_H
#define MARKERJIT_RACE_H

#ifdef MJ_RACE_HOOKS
/* Defined by the tests: kills, waits, or says that the next operation is to fail (1, with errno).
 */
int mj_race(const char *point);
#define MJ_RACE(point) ((void)mj_race(point))
#define MJ_FAILS(point) mj_race(point)
#else
#define MJ_RACE(point) ((void)0)
#define MJ_FAILS(point) 0
#endif

#endif
