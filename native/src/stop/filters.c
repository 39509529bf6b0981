/* SPDX-License-Identifier: MIT */
/*
 * filters.c: the seccomp filters of a thread, read while it is stopped.
 *
 *   1  the thread is stopped. One that sleeps with a relative timeout would go on by
 *      restart_syscall, which its filters may kill it for: so it is to begin its call again
 *      (threads.c), until we know better
 *   2  its filters are copied
 *   3  where all of them allow restart_syscall with the registers that it has, it is sent there
 *      again, and its sleep ends when it would have
 *   4  it goes on
 *
 * For 3 there is a small interpreter here: a decision in Python would keep the thread waiting. The
 * hold of a program that executes a file asks it, too (launch.c). Everything else is decided in
 * Python (markerjit/proc/bpf.py), when the thread runs again.
 *
 * A controller that is killed between 1 and 3 leaves a sleep that begins again with its whole time.
 */

#define _GNU_SOURCE
#include "stop.h"
#include "threads.h"

#include <errno.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>

/* Not in every sys/ptrace.h; Linux 4.4 */
#ifndef PTRACE_SECCOMP_GET_FILTER
#define PTRACE_SECCOMP_GET_FILTER 0x420c
#endif

static uint32_t word_of(const struct seccomp_data *call, uint32_t offset) {
    uint32_t word = 0;

    if (offset <= sizeof *call - sizeof word)
        memcpy(&word, (const char *)call + offset, sizeof word);
    return word;
}

/* 0 and *a changed, or -1: the filter ends here with 0, or the operation is none of seccomp's. */
static int calculate(uint16_t code, uint32_t *a, uint32_t by) {
    switch (BPF_OP(code)) {
    case BPF_ADD:
        *a += by;
        return 0;
    case BPF_SUB:
        *a -= by;
        return 0;
    case BPF_MUL:
        *a *= by;
        return 0;
    case BPF_DIV:
        if (!by)
            return -1;
        *a /= by;
        return 0;
    case BPF_OR:
        *a |= by;
        return 0;
    case BPF_AND:
        *a &= by;
        return 0;
    case BPF_XOR:
        *a ^= by;
        return 0;
    case BPF_LSH:
        *a <<= by & 31;
        return 0;
    case BPF_RSH:
        *a >>= by & 31;
        return 0;
    case BPF_NEG:
        *a = -*a;
        return 0;
    }
    return -1;
}

static uint32_t step_of_jump(const struct sock_filter *at, uint32_t a, uint32_t x) {
    const uint32_t other = BPF_SRC(at->code) == BPF_X ? x : at->k;
    int holds = 0;

    switch (BPF_OP(at->code)) {
    case BPF_JA:
        return at->k;
    case BPF_JEQ:
        holds = a == other;
        break;
    case BPF_JGT:
        holds = a > other;
        break;
    case BPF_JGE:
        holds = a >= other;
        break;
    case BPF_JSET:
        holds = (a & other) != 0;
        break;
    }
    return holds ? at->jt : at->jf;
}

static uint32_t loaded(const struct sock_filter *at, const uint32_t memory[BPF_MEMWORDS],
                       const struct seccomp_data *call) {
    switch (BPF_MODE(at->code)) {
    case BPF_ABS:
        return word_of(call, at->k);
    case BPF_LEN:
        return sizeof *call;
    case BPF_MEM:
        return memory[at->k % BPF_MEMWORDS];
    }
    return at->k;
}

uint32_t mj_run_filter(const struct sock_filter *code, uint32_t count,
                       const struct seccomp_data *call) {
    uint32_t a = 0, x = 0, memory[BPF_MEMWORDS] = {0};

    for (uint64_t i = 0; i < count; i++) {
        const struct sock_filter *at = &code[i];

        switch (BPF_CLASS(at->code)) {
        case BPF_LD:
            a = loaded(at, memory, call);
            break;
        case BPF_LDX:
            x = loaded(at, memory, call);
            break;
        case BPF_ST:
            memory[at->k % BPF_MEMWORDS] = a;
            break;
        case BPF_STX:
            memory[at->k % BPF_MEMWORDS] = x;
            break;
        case BPF_ALU:
            if (calculate(at->code, &a, BPF_SRC(at->code) == BPF_X ? x : at->k))
                return SECCOMP_RET_KILL_THREAD;
            break;
        case BPF_JMP:
            i += step_of_jump(at, a, x);
            break;
        case BPF_RET:
            return BPF_RVAL(at->code) == BPF_A ? a : at->k;
        case BPF_MISC:
            if (BPF_MISCOP(at->code) == BPF_TAX)
                x = a;
            else
                a = x;
            break;
        }
    }
    return SECCOMP_RET_KILL_PROCESS; /* there is no such filter */
}

/* 2. 0, or an errno. */
static int copy_filters(pid_t tid, struct mj_filters *filters) {
    uint32_t used = 0;

    for (filters->count = 0;; filters->count++) {
        const long length = ptrace(PTRACE_SECCOMP_GET_FILTER, tid, filters->count, 0);

        if (length < 0)
            return errno == ENOENT ? 0 : errno;
        if (filters->count == MJ_FILTERS || (uint64_t)length > MJ_FILTER_ROOM - used)
            return E2BIG;
        if (ptrace(PTRACE_SECCOMP_GET_FILTER, tid, filters->count, &filters->code[used]) != length)
            return errno;
        filters->lengths[filters->count] = (uint32_t)length;
        used += (uint32_t)length;
    }
}

static int allow(const struct mj_filters *filters, const struct seccomp_data *call) {
    const uint64_t *code = filters->code;

    for (uint32_t i = 0; i < filters->count; code += filters->lengths[i++]) {
        const uint32_t action =
            mj_run_filter((const struct sock_filter *)code, filters->lengths[i], call);

        if ((int32_t)(action & SECCOMP_RET_ACTION_FULL) < (int32_t)SECCOMP_RET_LOG)
            return 0;
    }
    return 1;
}

static int allow_restart(const struct mj_filters *filters, const struct user_regs_struct *regs) {
    const struct seccomp_data call = {
        .nr = SYS_restart_syscall,
        .arch = AUDIT_ARCH_X86_64,
        .instruction_pointer = regs->rip,
        .args = {regs->rdi, regs->rsi, regs->rdx, regs->r10, regs->r8, regs->r9},
    };

    return allow(filters, &call);
}

int filters_allow(pid_t tid, const struct seccomp_data *calls, uint32_t count) {
    struct mj_filters *filters = malloc(sizeof *filters);
    int allowed = filters && !copy_filters(tid, filters);

    for (uint32_t i = 0; i < count && allowed; i++)
        allowed = allow(filters, &calls[i]);
    free(filters);
    return allowed;
}

struct reading {
    const struct mj_target *target;
    pid_t tid;
    struct mj_filters *filters;
    struct mj_report *report;
};

static int read_filters(void *arguments) {
    const struct reading *all = arguments;
    struct mj_target target = *all->target;
    struct stopped stopped;

    target.repeats_sleeps = 1; /* 1 */
    int status = stop_one(&target, all->tid, &stopped, all->report);

    if (status != MJ_OK)
        return status;
    const int error = copy_filters(all->tid, all->filters); /* 2 */

    if (error) {
        all->report->error = error;
        all->report->tid = all->tid;
        status = error == ESRCH ? MJ_GONE : MJ_ERRNO;
    } else if (allow_restart(all->filters, &stopped.threads[0].regs)) {
        leave_sleep(&stopped.threads[0]); /* 3 */
    }
    resume_all(&stopped, all->report); /* 4 */
    return status;
}

int mj_read_filters(const struct mj_target *target, int32_t tid, struct mj_filters *filters,
                    struct mj_report *report) {
    struct reading all = {target, tid, filters, report};

    return in_own_thread(target->pid, read_filters, &all, report);
}
