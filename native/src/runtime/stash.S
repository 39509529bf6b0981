/* SPDX-License-Identifier: MIT */
/*
 * stash.S: the place where the entry of a function keeps its arguments for the exits.
 *
 * %rax is the stack pointer at the entry, or at the exit, and %rdx a struct mj_stash (abi.h). The
 * answer, in %rax, is a struct mj_kept, or 0 where there is none. %rcx and the flags change, nothing
 * else: stubs call this where a function is entered or left.
 *
 * The table has the numbers of pages of stacks, each at its place or at one of the next ones. A
 * number stays for good, so a place that was found is ours without a lock. Two threads that come
 * with the same page find the same number: the one that is late with its exchange looks again.
 */

#include "../../include/markerjit/abi.h"

.macro look name
    .globl \name
    .hidden \name
    .p2align 5
\name:
    push %r8
    push %r9
    mov %rax, %rcx
    shr $12, %rcx
    movabs $MJ_STASH_SPREAD, %r8
    imul %rcx, %r8
    shr $64 - MJ_STASH_BITS, %r8
    cmp MJ_STASH_TABLE(%rdx, %r8, 8), %rcx
    jne 2f
1:  and $MJ_PAGE - 8, %eax
    shl $MJ_STASH_STRIDE_BITS - 3, %eax
    shl $12 - 3 + MJ_STASH_STRIDE_BITS, %r8
    lea MJ_STASH_KEPT(%rdx, %r8), %r8
    add %r8, %rax
    pop %r9
    pop %r8
    ret
2:  mov $MJ_STASH_TRIES, %r9d
3:  cmpq $0, MJ_STASH_TABLE(%rdx, %r8, 8)
    je 5f
4:  inc %r8d
    and $MJ_STASH_PAGES - 1, %r8d
    cmp MJ_STASH_TABLE(%rdx, %r8, 8), %rcx
    je 1b
    dec %r9d
    jnz 3b
.endm

    .text

look mj_stash_claim
    lock incq MJ_STASH_LOST(%rdx)
    xor %eax, %eax
    pop %r9
    pop %r8
    ret
5:  push %rax
    xor %eax, %eax
    lock cmpxchg %rcx, MJ_STASH_TABLE(%rdx, %r8, 8)
    pop %rax
    je 1b
    cmp MJ_STASH_TABLE(%rdx, %r8, 8), %rcx
    je 1b
    jmp 4b

look mj_stash_find
5:  xor %eax, %eax
    pop %r9
    pop %r8
    ret

    .section .note.GNU-stack, "", @progbits
