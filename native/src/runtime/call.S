/* SPDX-License-Identifier: MIT */
/*
 * call.S: the preserving calls of the runtime (abi.h, struct mj_slot).
 *
 * First the adapters for probes that are C functions. Then the probe `record` as a body with such a
 * call reaches it, and what recorders call in the same way: functions in C that change no register
 * but those that the caller has saved.
 */

#include "../../include/markerjit/abi.h"

#define CPU_FLAGS mj_code_start + MJ_CODE_SIZE + MJ_CONTROL_CPU_FLAGS(%rip)
#include "../call/call.S"

    .text

/* Gates: %rdi is the marker, %r10 the address of the words. They change %rax, %rdi, %r10 and
   %r11. The functions are compiled for general registers only. */
.macro gate name, function
    .globl \name
    .hidden \name
    .p2align 4
\name:
    push %rbp
    mov %rsp, %rbp
    push %rcx
    push %rdx
    push %rsi
    push %r8
    push %r9
    and $-16, %rsp
    mov %r10, %rsi
    call \function
    lea -40(%rbp), %rsp
    pop %r9
    pop %r8
    pop %rsi
    pop %rdx
    pop %rcx
    pop %rbp
    ret
.endm

gate mj_gate_record, mj_record_words
gate mj_gate_pass, mj_pass
gate mj_gate_lose, mj_lose

/* The probe `record` for any marker, which is the data of the slot. (restart.S has `count`.) */
    .globl mj_record_block
    .hidden mj_record_block
    .p2align 4
mj_record_block:
    endbr64
    push %rax
    push %rdi
    push %r10
    push %r11
    mov 32 + MJ_CALL_SLOT(%rsp), %rdi
    mov MJ_SLOT_DATA(%rdi), %rdi
    lea 32 + MJ_CALL_WORDS(%rsp), %r10
    call mj_gate_record
    pop %r11
    pop %r10
    pop %rdi
    pop %rax
    ret

/* void mj_record(struct mj_slot *, ...), void mj_record_event(const struct mj_marker *, ...): C
   calls with variable arguments, whose registers mj_record_arguments gets as it knows them. Vector
   registers are only read, and only if the caller says in %al that there is something in them. */
    .globl mj_record, mj_record_event
    .hidden mj_record, mj_record_event
    .p2align 4
mj_record:
    mov MJ_SLOT_DATA(%rdi), %rdi
    .p2align 4
mj_record_event:
    push %rbp
    mov %rsp, %rbp
    sub $112, %rsp /* struct mj_registers, and a multiple of 16 */
    mov %rsi, (%rsp)
    mov %rdx, 8(%rsp)
    mov %rcx, 16(%rsp)
    mov %r8, 24(%rsp)
    mov %r9, 32(%rsp)
    test %al, %al
    jz 1f
    movsd %xmm0, 40(%rsp)
    movsd %xmm1, 48(%rsp)
    movsd %xmm2, 56(%rsp)
    movsd %xmm3, 64(%rsp)
    movsd %xmm4, 72(%rsp)
    movsd %xmm5, 80(%rsp)
    movsd %xmm6, 88(%rsp)
    movsd %xmm7, 96(%rsp)
1:  mov %rsp, %rsi
    lea 16(%rbp), %rdx
    call mj_record_arguments
    leave
    ret
