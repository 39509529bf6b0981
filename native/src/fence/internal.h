/* SPDX-License-Identifier: MIT */
/* internal.h: what the two files of the fence tell one another. */
#ifndef MJ_FENCE_INTERNAL_H
#define MJ_FENCE_INTERNAL_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

/* Tests fill it with what must go wrong at that point. */
#ifndef MJ_RACE
#define MJ_RACE(point, argument) ((void)(argument))
#endif

#ifndef MJ_PROC
#define MJ_PROC "/proc/self" /* tests take it away */
#endif

enum {
    MJ_BATCH = 256,   /* threads that are waited for at a time */
    MJ_OURS = 0x6d6a, /* si_errno of our signals */
    MJ_PATIENCE_MS = 500
};

struct mj_fence {
    int signal;
    int directory; /* /proc/self/task */
    pid_t pid, caller;
    uint64_t
        *known; /* MJ_KNOWN_SIZE bytes: a bit for each thread that was told, or is the caller */
    uint64_t round;
    pid_t told[MJ_BATCH]; /* in this round */
    unsigned count;
    bool late; /* a signal is still to come */
    pid_t slow;
};

enum { MJ_HIGHEST_TID = 1 << 22, MJ_KNOWN_SIZE = MJ_HIGHEST_TID / 8 };

#pragma GCC visibility push(hidden)

/* fence.c: shared by the handler and the threads that wait for it. */
void mj_serialise(void);
uint64_t mj_next_round(void);
bool mj_has_answered(unsigned place, uint64_t round);

/* tell.c: sends the signal to all threads but the caller, and waits for their answers. */
int mj_tell_all(struct mj_fence *fence);

/* Clocks and pauses that are not cancellation points. */
int64_t mj_now_ns(void);
void mj_pause_ns(long ns);

#pragma GCC visibility pop

#endif
