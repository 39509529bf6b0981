/* SPDX-License-Identifier: MIT */
/* borrow.h: one thread of the target, borrowed for system calls. */
#ifndef MARKERJIT_BORROW_H
#define MARKERJIT_BORROW_H

#include "frame.h"

struct borrowed {
    const struct mj_target *target;
    struct mj_report *report;
    struct stopped stopped;
    struct frame frame;
    uint8_t covered[FRAME_ROOM]; /* what was in the place of the frame */
    int in_scratch;              /* otherwise on its own stack */
    uint64_t mask;
    int adrift; /* it did not come back from a call in time, and finds its own way */
};

/* Borrow this thread. MJ_NO_THREAD, MJ_BUSY: another one may do. */
int borrow_begin(const struct mj_target *target, pid_t tid, struct borrowed *borrowed,
                 struct mj_report *report);

/* Borrow one of those that stand, and take it out of them: the others go on standing. */
int borrow_one_of(const struct mj_target *target, struct stopped *others, struct borrowed *borrowed,
                  struct mj_report *report);

/* Whether a status says that nothing was borrowed, and another thread may do; *busy counts those
   that did not stop in time. */
int may_try_another(int status, uint32_t *busy);

/* Borrow any thread of the process. */
int borrow_any(const struct mj_target *target, struct borrowed *borrowed, struct mj_report *report);

/* One system call. MJ_OK, also if it fails: then the result is a negated errno; MJ_GONE; MJ_FAULTED
   when the code for it is gone; or MJ_BUSY when it takes so long that nobody should wait: then the
   thread is left to itself. */
int borrow_call(struct borrowed *borrowed, uint64_t number, const uint64_t args[6],
                int64_t *result);

/* Give it back. MJ_OK, MJ_GONE or MJ_BUSY. */
int borrow_end(struct borrowed *borrowed);

/* The address of a stopped thread's struct rseq, if its sequences have the signature of ours. */
uint64_t usual_rseq_of(pid_t tid);

#endif
