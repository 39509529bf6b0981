/* SPDX-License-Identifier: MIT */
/* launch.h: the hold of a program that stands in execve, before its first instruction. */
#ifndef MARKERJIT_LAUNCH_H
#define MARKERJIT_LAUNCH_H

#include "stop.h"

/* Have a program that we have not made ourselves, and that its tracer, the calling thread, has
   stopped in execve, wait at its entry point, for so long at most. One that is `filtered` has
   seccomp filters, which are asked about the calls of the wait. Returns an mj_status. */
int hold_stranger(pid_t pid, int filtered, int32_t patience_ms, struct mj_launched *launched,
                  struct mj_report *report);

#endif
