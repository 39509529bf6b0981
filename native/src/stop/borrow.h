/* SPDX-License-Identifier: MIT */
/* borrow.h: one thread of the target, borrowed for system calls. */
#ifndef MARKERJIT_BORROW_H
#define MARKERJIT_BORROW_H

#include "frame.h"

struct borrowed {
    const struct mj_target *target;
    struct mj_report *report;
    struct stopped stopped; /* the one thread */
    int alone;              /* all others stand, too: */
    struct stopped others;
    struct frame frame;
    uint8_t covered[FRAME_ROOM]; /* what was in the place of the frame */
    int in_scratch;              /* otherwise on its own stack */
    uint64_t mask;
    int adrift;        /* it did not come back from a call in time, and finds its own way */
    int at_exit;       /* it stands where its last call has ended */
    uint64_t pause_ns; /* before the first look whether it stands: 0 where we spin instead */
};

/* Stop all threads of the process and borrow one of them. */
int borrow_alone(const struct mj_target *target, struct borrowed *borrowed,
                 struct mj_report *report);

/* Borrow one of those that stand. It is taken out of them, and `stand_again` puts it back. */
int borrow_standing(const struct mj_target *target, struct stopped *standing,
                    struct borrowed *borrowed, struct mj_report *report);

/* Give it back to those that stand, where it was. Where that cannot be done it is let go, and is
   not among them any more. MJ_OK, MJ_GONE, MJ_FAULTED or MJ_BUSY. */
int stand_again(struct borrowed *borrowed, struct stopped *standing);

/* Borrow any thread while the others run; alone, if its frame can only stand on its own stack. */
int borrow_any(const struct mj_target *target, struct borrowed *borrowed, struct mj_report *report);

/* One system call. MJ_OK, also if it fails: then the result is a negated errno; MJ_GONE; MJ_FAULTED
   when the code for it is gone; or MJ_BUSY when it takes too long to wait for: then the thread is
   left to itself. */
int borrow_call(struct borrowed *borrowed, uint64_t number, const uint64_t args[6],
                int64_t *result);

/* Give it back, and let all go on that stand. MJ_OK, MJ_GONE, MJ_FAULTED or MJ_BUSY. */
int borrow_end(struct borrowed *borrowed);

/* The address of a stopped thread's struct rseq, if its sequences have the signature of ours. */
uint64_t usual_rseq_of(pid_t tid);

#endif
