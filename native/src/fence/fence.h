/* SPDX-License-Identifier: MIT */
/*
 * fence.h: "every thread of this process has executed a serialising instruction since now".
 *
 * Two ways, for use after code was changed and before anything relies on the change. fence.c states
 * what each proves and on whose authority. Both are for the calling process only: they cannot be
 * issued for another one. Any thread may call them, several at once too; a signal handler may not.
 * Neither allocates by malloc, prints, or is a cancellation point.
 */
#ifndef MJ_FENCE_H
#define MJ_FENCE_H

#include <sys/types.h>

#pragma GCC visibility push(hidden)

/* By the kernel. Registers the process when it has to, which takes milliseconds, once.
   0, or -errno of membarrier(2): -ENOSYS, -EINVAL (not known, Linux before 4.16), -EPERM. */
int mj_fence_membarrier(void);

/*
 * By a signal to each thread. The program notices: calls that are never restarted after a signal
 * handler (signal(7)) return EINTR in its threads.
 *
 * 0, or
 *   -EAGAIN  the thread *slow blocks the signal, or has not answered for half a second; 0 in *slow
 *            when threads come faster than they can be told
 *   -EBUSY   another thread is in here and does not come out; or no real-time signal is free
 *   -errno   /proc is not there, signals may not be sent...
 * `slow` may be NULL. When a thread did not answer, the handler stays for ever: the signal is still
 * to come, and without a handler it would end the process. The object that holds this code must
 * not be unloaded then.
 */
int mj_fence_signals(pid_t *slow);

#pragma GCC visibility pop

#endif
