/* SPDX-License-Identifier: MIT */
/* follow.h: processes that are followed, as the code that stops threads has to know them. */
#ifndef MARKERJIT_FOLLOW_H
#define MARKERJIT_FOLLOW_H

#include "threads.h"

#define FOLLOW_OPTIONS                                                                             \
    (PTRACE_O_TRACESYSGOOD | PTRACE_O_TRACEFORK | PTRACE_O_TRACEVFORK | PTRACE_O_TRACECLONE |      \
     PTRACE_O_TRACEEXEC)

/* Whether a process is followed: its threads are traced by the follower for good. */
int is_followed(pid_t pid);

/* Whether a process is followed and stands before its first instruction. */
int is_held(pid_t pid);

/* Do the work in the follower, which traces the threads that it is about. */
int in_follower(int (*work)(void *arguments), void *arguments);

/* Let a stopped thread of a followed process go on, and traced. One that is held stays. */
void resume_followed(const struct stopped_thread *thread);

#endif
