/* SPDX-License-Identifier: MIT */
/*
 * frame.c: the way back for a borrowed thread, as a signal frame.
 *
 * While a thread makes calls for us, its own registers are with us only, and we may be killed. So
 * they are also laid out in its memory as the kernel does for a signal handler, and it is borrowed
 * on a stack from which a `ret` leads to rt_sigreturn(2). If we die, the kernel lets it go on: it
 * finishes the call, returns, and is back where it was. If we do not, none of this is executed.
 *
 * Layout: arch/x86/include/asm/sigframe.h (struct rt_sigframe), uapi/asm/sigcontext.h, ucontext.h;
 * struct _fpx_sw_bytes stands in bytes 464 to 511 of the legacy area. Extended state as
 * PTRACE_GETREGSET gives it: the standard form of XSAVE, Intel SDM volume 1, 13.4.
 *
 * Not covered: a program with a shadow stack (CET), which refuses such a `ret`. It is executed
 * only if we die in the middle.
 */

#define _GNU_SOURCE
#include "frame.h"

#include <cpuid.h>
#include <elf.h>
#include <errno.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#ifndef NT_X86_XSTATE
#define NT_X86_XSTATE 0x202
#endif

struct user_context { /* struct ucontext, with the kernel's signal set */
    uint64_t flags, link;
    stack_t stack;
    struct sigcontext registers;
    uint64_t mask;
};

enum {
    UC_FP_XSTATE = 1,
    UC_SIGCONTEXT_SS = 2,
    UC_STRICT_RESTORE_SS = 4,
    NO_SUCH_STACK_FLAG = 0x55, /* refused by sigaltstack, so that the thread keeps the one it has */
    LEGACY_SIZE = 512,
    SOFTWARE_AT = 464,
    HEADER_SIZE = 64,
    FIRST_EXTENDED = 2,
    FEATURES = 63,
};

/*
 * The call that a thread is in which the kernel has sent to restart_syscall, before the `syscall`
 * instruction at `rip`: rt_sigreturn disarms that, and it would end with EINTR. Which one it was at
 * first is told by the code only, `mov $number, %eax; syscall`, as C libraries have it. Where there
 * is other code, EINTR it is.
 */
static uint64_t restarted_call(int mem_fd, uint64_t rip) {
    struct __attribute__((packed)) {
        uint8_t mov;
        uint32_t number;
        uint8_t syscall[2];
    } code;
    const uint64_t start = rip + sizeof code.syscall - sizeof code;

    if (pread(mem_fd, &code, sizeof code, (off_t)start) != sizeof code || code.mov != 0xb8 ||
        memcmp(code.syscall, "\x0f\x05", sizeof code.syscall))
        return SYS_restart_syscall;
    switch (code.number) { /* the calls that the kernel restarts so */
    case SYS_clock_nanosleep:
    case SYS_futex:
    case SYS_nanosleep:
    case SYS_poll:
        return code.number;
    }
    return SYS_restart_syscall;
}

/* As the thread would find itself after the stop: rt_sigreturn restarts no system call, so one that
   was interrupted is begun again by hand, two bytes before. A sleep starts with its whole time. So
   does one that the kernel had sent back already, after a stop that was only just over. */
static struct user_regs_struct after_restart(int mem_fd, struct user_regs_struct regs) {
    if (begins_call_again(&regs)) {
        regs.rax = regs.orig_rax;
        regs.rip -= SYSCALL_SIZE;
    }
    if (regs.rax == SYS_restart_syscall)
        regs.rax = restarted_call(mem_fd, regs.rip);
    return regs;
}

/* Bytes of extended state up to the last component that is not in its initial state. */
static size_t extended_size(uint64_t in_use) {
    size_t size = LEGACY_SIZE + HEADER_SIZE;

    for (unsigned i = FIRST_EXTENDED; i < FEATURES; i++) {
        uint32_t length, offset, flags, unused;

        if (!(in_use >> i & 1))
            continue;
        __cpuid_count(0xd, i, length, offset, flags, unused);
        if (!(flags & 1) && offset + length > size) /* flag 0: a component for the kernel only */
            size = offset + length;
    }
    return size;
}

/* Puts the extended state at the start of `area`, magic at the end included. 0, or an errno. */
static int put_extended(pid_t tid, uint8_t *area, size_t room, size_t *bytes) {
    struct iovec got = {.iov_base = area, .iov_len = room - sizeof(uint64_t)};
    const uint32_t end = FP_XSTATE_MAGIC2;
    uint64_t in_use;

    if (ptrace(PTRACE_GETREGSET, tid, NT_X86_XSTATE, &got))
        return errno == ESRCH ? ESRCH : ENOTSUP;
    if (got.iov_len < LEGACY_SIZE + HEADER_SIZE)
        return ENOTSUP;
    memcpy(&in_use, area + LEGACY_SIZE, sizeof in_use);
    const size_t size = extended_size(in_use);
    const struct _fpx_sw_bytes software = {.magic1 = FP_XSTATE_MAGIC1,
                                           .extended_size = (uint32_t)(size + sizeof end),
                                           .xstate_bv = in_use | 3, /* x87 and SSE always */
                                           .xstate_size = (uint32_t)size};

    if (size > got.iov_len)
        return ENOTSUP;
    memcpy(area + SOFTWARE_AT, &software, sizeof software);
    memcpy(area + size, &end, sizeof end);
    *bytes = size + sizeof end;
    return 0;
}

static struct user_context context_of(const struct user_regs_struct *regs, uint64_t mask,
                                      uint64_t fp_state) {
    return (struct user_context){
        .flags = UC_FP_XSTATE | UC_SIGCONTEXT_SS | UC_STRICT_RESTORE_SS,
        .stack = {.ss_flags = NO_SUCH_STACK_FLAG},
        .registers = {.r8 = regs->r8,
                      .r9 = regs->r9,
                      .r10 = regs->r10,
                      .r11 = regs->r11,
                      .r12 = regs->r12,
                      .r13 = regs->r13,
                      .r14 = regs->r14,
                      .r15 = regs->r15,
                      .rdi = regs->rdi,
                      .rsi = regs->rsi,
                      .rbp = regs->rbp,
                      .rbx = regs->rbx,
                      .rdx = regs->rdx,
                      .rax = regs->rax,
                      .rcx = regs->rcx,
                      .rsp = regs->rsp,
                      .rip = regs->rip,
                      .eflags = regs->eflags,
                      .cs = (uint16_t)regs->cs,
                      .__pad0 = (uint16_t)regs->ss,
                      .__fpstate_word = fp_state},
        .mask = mask,
    };
}

int frame_build(const struct mj_target *target, const struct stopped_thread *thread, uint64_t mask,
                uint64_t limit, struct frame *frame) {
    static const size_t alignment = 64; /* XRSTOR's */
    _Alignas(64) uint8_t extended[FRAME_ROOM - 1024 - MJ_CALL_TEXT];
    const struct user_regs_struct regs = after_restart(target->mem_fd, thread->regs);
    size_t extended_bytes;
    const int error = put_extended(thread->tid, extended, sizeof extended, &extended_bytes);
    /* `ret` takes the first word; with sigreturn's own code behind it, or by way of rax */
    const uint64_t by_code[] = {target->sigreturn};
    const uint64_t by_rax[] = {target->pop_rax_ret, SYS_rt_sigreturn, target->syscall_ret};
    const uint64_t *chain = target->sigreturn ? by_code : by_rax;
    const size_t chain_bytes = target->sigreturn ? sizeof by_code : sizeof by_rax;

    if (error)
        return error;
    const uint64_t fp_state = (limit - extended_bytes) & -alignment;
    const uint64_t context_at = (fp_state - sizeof(struct user_context)) & -16ul;
    const struct user_context context = context_of(&regs, mask, fp_state);

    frame->address = context_at - chain_bytes;
    frame->start = frame->address - MJ_CALL_TEXT;
    frame->size = fp_state + extended_bytes - frame->start;
    memset(frame->bytes, 0, frame->size);
    memcpy(frame->bytes + MJ_CALL_TEXT, chain, chain_bytes);
    memcpy(frame->bytes + MJ_CALL_TEXT + chain_bytes, &context, sizeof context);
    memcpy(frame->bytes + (fp_state - frame->start), extended, extended_bytes);
    return 0;
}
