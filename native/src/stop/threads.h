/* SPDX-License-Identifier: MIT */
/* threads.h: all threads of a process, stopped. */
#ifndef MARKERJIT_THREADS_H
#define MARKERJIT_THREADS_H

#include "stop.h"

#include <signal.h>
#include <sys/ptrace.h>
#include <sys/user.h>

/* Not in every sys/ptrace.h; Linux 3.11 */
#ifndef PTRACE_GETSIGMASK
#define PTRACE_GETSIGMASK 0x420a
#define PTRACE_SETSIGMASK 0x420b
#endif

/* The status of a stop by waitid(2): for our own PTRACE_INTERRUPT, and at a system call. */
#define INTERRUPT_STOP (SIGTRAP | PTRACE_EVENT_STOP << 8)
#define SYSCALL_STOP (SIGTRAP | 0x80)

#define SYSCALL_SIZE 2 /* bytes of the instruction */

struct stopped_thread {
    pid_t tid;
    int stands;
    int asked;          /* it was interrupted before, or stands already */
    int pending_signal; /* it stopped to take this signal: handed back when it is resumed */
    int resend_signal;  /* it came while the thread was borrowed, and cannot be blocked */
    int plain;          /* stopped by our interrupt, not by a signal or a job-control stop */
    int repeats_sleep;  /* it was to go on by restart_syscall, and begins its call again instead */
    int followed;       /* the follower, which we are, traces it for good */
    int listens;        /* it stands for job control, and stays so when it is resumed */
    int executed;       /* of one that is followed: it stands in execve, with another program */
    struct user_regs_struct regs;
};

struct stopped {
    pid_t pid;
    int pidfd;
    int repeats_sleeps; /* as struct mj_target has it */
    uint64_t scratch;   /* the same */
    struct stopped_thread *threads;
    uint32_t count;
    uint32_t room;
    uint32_t standing; /* the first so many stand */
    int old_slack;
    int old_policy;
    int old_priority;
    int raised;          /* we run SCHED_FIFO for the moment */
    uint64_t seized_ns;  /* none was seized before */
    uint64_t started_ns; /* none stood before */
    uint64_t stopped_ns;
};

/*
 * Do the work in a thread made for it. Whatever it traces is let go by the kernel when it ends:
 * also a thread that never came to its stop (one in vfork does not), which PTRACE_DETACH cannot
 * free and which would stop for good once it could. The priority that is raised here goes with it,
 * too. For a process that is followed the work is done by the follower, which goes on tracing it.
 */
int in_own_thread(pid_t pid, int (*work)(void *arguments), void *arguments,
                  struct mj_report *report);

/* Stop every thread, new ones too, until none is new. On failure all that were stopped run again.
   Returns an mj_status. */
int stop_all(const struct mj_target *target, struct stopped *stopped, struct mj_report *report);

/* Stop one thread; MJ_GONE when it has ended. */
int stop_one(const struct mj_target *target, pid_t tid, struct stopped *stopped,
             struct mj_report *report);

/* Whether a thread with these registers stands in an interrupted system call that the kernel may
   begin again: then it goes on SYSCALL_SIZE bytes before its instruction pointer. */
int begins_call_again(const struct user_regs_struct *regs);

/* A thread that was to begin its call again goes on by restart_syscall: its sleep ends in time. */
void leave_sleep(struct stopped_thread *thread);

/* Whether all seccomp filters of a thread that its tracer, the caller, has stopped allow these
   calls. 0 where they cannot be read. */
int filters_allow(pid_t tid, const struct seccomp_data *calls, uint32_t count);

/* Room for one thread of these, without a priority to give back. 0 without memory. */
int stopped_alone(const struct stopped *all, struct stopped *one);

/* Resume all and give back everything; fills in the times. Harmless on a zeroed structure. */
void resume_all(struct stopped *stopped, struct mj_report *report);

uint64_t now_ns(void);

#endif
