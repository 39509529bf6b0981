/* SPDX-License-Identifier: MIT */
/* frame.h: the way back for a borrowed thread, as a signal frame. */
#ifndef MARKERJIT_FRAME_H
#define MARKERJIT_FRAME_H

#include "threads.h"

#define FRAME_ROOM 16384 /* extended state is 11 KiB where AMX tiles are in use */

struct frame {
    uint64_t start;   /* where its bytes belong: MJ_CALL_TEXT for a call to point to, and then */
    uint64_t address; /* the stack pointer to run on */
    size_t size;
    _Alignas(64) uint8_t bytes[FRAME_ROOM];
};

/*
 * Lay out, below `limit`, what a `ret` and then rt_sigreturn(2) need to put a stopped thread back
 * where it is: all registers, vector registers too, and the signal mask. 0, or an errno: ESRCH when
 * the thread has ended.
 */
int frame_build(const struct mj_target *target, const struct stopped_thread *thread, uint64_t mask,
                uint64_t limit, struct frame *frame);

#endif
