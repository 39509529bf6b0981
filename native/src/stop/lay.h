/* SPDX-License-Identifier: MIT */
/* lay.h: where the way back of a borrowed thread stands. */
#ifndef MARKERJIT_LAY_H
#define MARKERJIT_LAY_H

#include "borrow.h"

/* Whether a frame has a place of ours. Otherwise it goes onto the thread's own stack, and only
   while the other threads stand. */
int has_free_scratch(const struct mj_target *target);

/* Put the frame of a stopped thread, whose mask is known, into its memory. MJ_OK, MJ_ERRNO, or
   MJ_NO_THREAD when there is no room for it. */
int lay_frame(struct borrowed *borrowed);

/* Put a call's text below the stack pointer of a borrowed thread, where its frame begins. 0: that
   failed. It goes with the frame. */
int lay_text(const struct borrowed *borrowed, const char text[MJ_CALL_TEXT]);

/* The thread has its own registers again. */
void take_frame_away(const struct borrowed *borrowed);

#endif
