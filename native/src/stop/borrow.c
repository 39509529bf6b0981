/* SPDX-License-Identifier: MIT */
/*
 * borrow.c: system calls made by a thread of the target, on our behalf.
 *
 *   1  one thread is stopped, and taken if our interrupt stopped it in 64-bit code, outside a
 *      restartable sequence (whose abort would be lost while its rip is elsewhere); otherwise it
 *      goes on and the next one is tried. The others run: under load each switch to the borrowed
 *      thread and back can take milliseconds
 *   2  all signals are blocked for it, so that none is delivered on borrowed registers
 *   3  each call: rip to a `syscall` instruction, orig_rax to -1 so that the kernel does not take
 *      our registers for those of an interrupted call, and PTRACE_SYSCALL through entry and exit.
 *      Not PTRACE_SINGLESTEP: its SIGTRAP would reset a blocked or ignored action of the target
 *   4  PTRACE_INTERRUPT and continue: it stops again before any instruction, at the same place in
 *      the kernel as in 1, so that with the old registers an interrupted call is restarted as usual
 *   5  old registers, old signal mask
 */

#define _GNU_SOURCE
#include "threads.h"

#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>

#define CODE_64 0x33 /* cs of 64-bit user code */

#ifndef PTRACE_GETSIGMASK
#define PTRACE_GETSIGMASK 0x420a
#define PTRACE_SETSIGMASK 0x420b
#endif
#ifndef PTRACE_GET_RSEQ_CONFIGURATION
#define PTRACE_GET_RSEQ_CONFIGURATION 0x420f
#endif

/* include/uapi/linux/ptrace.h and linux/rseq.h, kernel 5.13 */
struct rseq_configuration {
    uint64_t address;
    uint32_t size, signature, flags, pad;
};
struct rseq_section {
    uint32_t version, flags;
    uint64_t start, length, abort;
};

static int in_restartable_sequence(int mem_fd, const struct stopped_thread *thread) {
    struct rseq_configuration area = {0};
    struct rseq_section section;
    uint64_t current;

    if (ptrace(PTRACE_GET_RSEQ_CONFIGURATION, thread->tid, sizeof area, &area) < 0 || !area.address)
        return 0;
    if (pread(mem_fd, &current, sizeof current, (off_t)area.address + 8) != sizeof current ||
        !current)
        return 0;
    if (pread(mem_fd, &section, sizeof section, (off_t)current) != sizeof section)
        return 1; /* cannot tell */
    return thread->regs.rip - section.start < section.length;
}

/* 1 */
static int may_borrow(const struct stopped_thread *thread, int mem_fd) {
    if (thread->regs.cs != CODE_64)
        return MJ_NOT_64_BIT;
    if (!thread->plain || in_restartable_sequence(mem_fd, thread))
        return MJ_NO_THREAD;
    return MJ_OK;
}

/* Signals are blocked in our thread; whatever else may end a wait does not end this one. */
static int wait_for(pid_t tid, int what, siginfo_t *info) {
    int failed;

    do
        failed = waitid(P_PID, (id_t)tid, info, what | __WALL);
    while (failed && errno == EINTR);
    return failed;
}

/*
 * Let a thread whose signals are blocked run to its next stop of the wanted kind; 0 when it is
 * gone. What cannot be blocked is SIGSTOP, and job-control stops that follow from one: it is taken
 * away here and sent again in the end.
 */
static int run_to(struct stopped_thread *thread, enum __ptrace_request request, int wanted) {
    for (;;) {
        siginfo_t info;

        /* Look first, and take only a stop: an end is for the parent, see wait_all. */
        if (ptrace(request, thread->tid, 0, 0) ||
            wait_for(thread->tid, WSTOPPED | WEXITED | WNOWAIT, &info) ||
            info.si_code != CLD_TRAPPED || wait_for(thread->tid, WSTOPPED, &info))
            return 0;
        if (info.si_status == wanted)
            return 1;
        if (info.si_status == SIGSTOP)
            thread->resend_signal = SIGSTOP;
    }
}

/* 3 */
static int make_call(struct stopped_thread *thread, uint64_t syscall_address, struct mj_call *calls,
                     uint32_t index) {
    struct user_regs_struct regs = thread->regs;
    struct mj_call *call = &calls[index];
    uint64_t args[6];

    for (int i = 0; i < 6; i++)
        args[i] = call->args[i] + (call->refs[i] >= 0 && (uint32_t)call->refs[i] < index
                                       ? (uint64_t)calls[call->refs[i]].result
                                       : 0);
    regs.rip = syscall_address;
    regs.orig_rax = (uint64_t)-1;
    regs.rax = call->number;
    regs.rdi = args[0];
    regs.rsi = args[1];
    regs.rdx = args[2];
    regs.r10 = args[3];
    regs.r8 = args[4];
    regs.r9 = args[5];
    if (ptrace(PTRACE_SETREGS, thread->tid, 0, &regs) ||
        !run_to(thread, PTRACE_SYSCALL, SYSCALL_STOP) ||
        !run_to(thread, PTRACE_SYSCALL, SYSCALL_STOP) ||
        ptrace(PTRACE_GETREGS, thread->tid, 0, &regs))
        return 0;
    call->result = (int64_t)regs.rax;
    return 1;
}

static int make_calls(struct stopped_thread *thread, uint64_t syscall_address,
                      struct mj_call *calls, uint32_t count, struct mj_report *report) {
    uint64_t mask, all = ~0ul;
    int status = MJ_OK;

    report->borrowed = 1;
    if (ptrace(PTRACE_GETSIGMASK, thread->tid, sizeof mask, &mask) ||
        ptrace(PTRACE_SETSIGMASK, thread->tid, sizeof all, &all)) { /* 2 */
        report->error = errno;
        return errno == ESRCH ? MJ_GONE : MJ_ERRNO;
    }
    for (uint32_t i = 0; i < count && status == MJ_OK; i++) {
        if (!make_call(thread, syscall_address, calls, i)) {
            status = MJ_GONE;
        } else if (calls[i].result < 0 && calls[i].result > -4096) {
            report->index = i;
            report->error = (int)-calls[i].result;
            status = MJ_CALL_FAILED;
        }
    }
    if (status != MJ_GONE && (ptrace(PTRACE_INTERRUPT, thread->tid, 0, 0) || /* 4 */
                              !run_to(thread, PTRACE_CONT, INTERRUPT_STOP)))
        status = MJ_GONE;
    if (ptrace(PTRACE_SETREGS, thread->tid, 0, &thread->regs) || /* 5 */
        ptrace(PTRACE_SETSIGMASK, thread->tid, sizeof mask, &mask))
        status = MJ_GONE;
    return status;
}

struct borrowing {
    pid_t pid;
    const struct mj_thread *threads;
    uint32_t thread_count;
    int mem_fd;
    uint64_t syscall_address;
    struct mj_call *calls;
    uint32_t count;
    struct mj_report *report;
};

static int borrow_one(const struct borrowing *all, pid_t tid) {
    struct stopped stopped;
    int status = stop_one(all->pid, tid, &stopped, all->report);

    if (status != MJ_OK)
        return status;
    status = may_borrow(&stopped.threads[0], all->mem_fd);
    if (status == MJ_OK)
        status = make_calls(&stopped.threads[0], all->syscall_address, all->calls, all->count,
                            all->report);
    resume_all(&stopped, all->report);
    return status;
}

static int borrow_any(void *arguments) {
    const struct borrowing *all = arguments;
    int status = MJ_NO_THREAD;

    /* Only these say that nothing was borrowed and another thread may do. */
    for (uint32_t i = 0; i < all->thread_count; i++) {
        status = borrow_one(all, all->threads[i].tid);
        if (status != MJ_NO_THREAD && status != MJ_BUSY &&
            (status != MJ_GONE || all->report->borrowed))
            break;
    }
    return status;
}

int mj_borrow(pid_t pid, const struct mj_thread *threads, uint32_t thread_count, int mem_fd,
              uint64_t syscall_address, struct mj_call *calls, uint32_t count,
              struct mj_report *report) {
    struct borrowing all = {pid,   threads, thread_count, mem_fd, syscall_address,
                            calls, count,   report};

    return in_own_thread(borrow_any, &all, report);
}

struct listing {
    pid_t pid;
    struct mj_thread *threads;
    uint32_t *count;
    struct mj_report *report;
};

static int list_threads(void *arguments) {
    const struct listing *all = arguments;
    struct stopped stopped;
    const int status = stop_all(all->pid, &stopped, all->report);

    if (status != MJ_OK)
        return status;
    if (*all->count > stopped.count)
        *all->count = stopped.count;
    for (uint32_t i = 0; i < *all->count; i++)
        all->threads[i] = (struct mj_thread){.tid = stopped.threads[i].tid,
                                             .fs_base = stopped.threads[i].regs.fs_base};
    resume_all(&stopped, all->report);
    return MJ_OK;
}

int mj_threads(pid_t pid, struct mj_thread *threads, uint32_t *count, struct mj_report *report) {
    struct listing all = {pid, threads, count, report};

    return in_own_thread(list_threads, &all, report);
}
