/* SPDX-License-Identifier: MIT */
/*
 * call.S: the preserving calls of the runtime (abi.h, struct mj_slot).
 *
 * First the adapters for probes that are C functions. Then the probe `record` as a body with such a
 * call reaches it, and what recorders call in the same way: functions in C that change no register
 * but those that the caller has saved.
 */

#include "../../include/markerjit/abi.h"

#define CONTROL mj_code_start + MJ_CODE_SIZE
#define PART(number) CONTROL + MJ_CONTROL_PARTS + number * MJ_PART_SIZE
#define ALIVE mj_code_start + MJ_ALIVE
#define COUNTS_OF_CALL (-96) /* from %rbp: the counters of the marker in the row of CPU 0 */
#define DATA_OF_CALL (-104)

/*
 * A call is counted for the marker in the slot's data and for the CPU, by a plain instruction in a
 * restartable sequence. So a look at the counters from outside needs a barrier in all threads, which
 * is the controller's (docs/decisions/0025-who-is-inside.md).
 *
 * Without sequences, or when it was interrupted in one, a thread counts in the first shared row, by
 * a locked instruction. In the child of a fork nothing is counted and nothing called.
 *
 * The data may be of another kind by now, if the body was held up since it loaded our address: the
 * program's own, or another entry of the same marker. What is not in the arena is not looked at.
 * And the data is loaded again after the probe: a probe is called only if it came with the data
 * that was counted for, because data is written before the probe that it belongs to.
 */
.macro count_entering self, sequence
    mov MJ_SLOT_DATA(%rdi), %rcx
    mov %rcx, DATA_OF_CALL(%rbp)
    lea mj_code_start(%rip), %r8
    lea MJ_MARKER_ID + 4(%rcx), %rax
    sub %r8, %rax
    cmp CONTROL + MJ_CONTROL_ARENA_SIZE(%rip), %rax
    ja 10f
    mov PART(MJ_PART_MARKERS) + MJ_PART_COUNT(%rip), %esi
    lea -1(%rsi), %eax
    and MJ_MARKER_ID(%rcx), %eax
    shl $4, %rax
    shl $4, %rsi
    add PART(MJ_PART_CALLS)(%rip), %r8
    add %rax, %r8
    mov %r8, COUNTS_OF_CALL(%rbp)
    movslq CONTROL + MJ_CONTROL_RSEQ_OFFSET(%rip), %rdx
    test %rdx, %rdx
    jz \self\()_enter_otherwise
    lea CONTROL + MJ_CONTROL_SEQUENCES + 32 * \sequence(%rip), %rax
    mov %rax, %fs:MJ_RSEQ_SEQUENCE(%rdx)
    .globl \self\()_enter_start, \self\()_enter_end
\self\()_enter_start:
    mov %fs:MJ_RSEQ_CPU(%rdx), %eax
    cmp ALIVE(%rip), %eax
    jae \self\()_enter_otherwise
    imul %rsi, %rax
    incq (%r8, %rax)
\self\()_enter_end:
.endm

.macro check_entered
    mov MJ_SLOT_DATA(%rdi), %rax
    cmp DATA_OF_CALL(%rbp), %rax
    jne 9f
.endm

.macro count_leaving self, sequence
    mov COUNTS_OF_CALL(%rbp), %r8
    mov PART(MJ_PART_MARKERS) + MJ_PART_COUNT(%rip), %esi
    shl $4, %rsi
    movslq CONTROL + MJ_CONTROL_RSEQ_OFFSET(%rip), %rdx
    test %rdx, %rdx
    jz \self\()_leave_otherwise
    lea CONTROL + MJ_CONTROL_SEQUENCES + 32 * \sequence(%rip), %rax
    mov %rax, %fs:MJ_RSEQ_SEQUENCE(%rdx)
    .globl \self\()_leave_start, \self\()_leave_end
\self\()_leave_start:
    mov %fs:MJ_RSEQ_CPU(%rdx), %eax
    cmp ALIVE(%rip), %eax
    jae \self\()_leave_otherwise
    imul %rsi, %rax
    incq 8(%r8, %rax)
\self\()_leave_end:
.endm

.macro otherwise_of self, way, field
    .byte 0x0f, 0xb9, 0x3d /* as abort_handler of restart.S */
    .long MJ_RSEQ_SIGNATURE
    .globl \self\()_\way\()_abort
\self\()_\way\()_abort:
\self\()_\way\()_otherwise:
    mov CONTROL + MJ_CONTROL_CPUS(%rip), %eax
    imul %rsi, %rax
    cmpq $0, ALIVE(%rip)
    je \self\()_\way\()_child
    lock incq \field(%r8, %rax)
    jmp \self\()_\way\()_end
.endm

.macro otherwise self
    otherwise_of \self, enter, 0
\self\()_enter_child:
    jmp \self\()_leave_end
    otherwise_of \self, leave, 8
\self\()_leave_child:
    jmp \self\()_leave_end
.endm

#define CPU_FLAGS mj_code_start + MJ_CODE_SIZE + MJ_CONTROL_CPU_FLAGS(%rip)
#include "../call/call.S"

    .text

/* Gates: %rdi is the marker, %r10 the address of the words, %r11 a third argument. They change %rax, %rdi, %r10 and
   %r11. The functions are compiled for general registers only. */
.macro gate name, function, with_rbp=0
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
    mov %r11, %rdx
    .if \with_rbp
    mov (%rbp), %rcx
    .endif
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

/* The same, where %rdi is a struct mj_asked; %rax is the answer. */
gate mj_gate_ask, mj_ask

/* Where %rdi is an address, and %r10 where the number goes; and without arguments. */
gate mj_gate_load, mj_load
gate mj_gate_clock, mj_clock

/* The same, where %rdi is a struct mj_aggregation, and %r11 has the numbers of its code. */
gate mj_gate_aggregate, mj_aggregate

/* The same, where %rdi is a struct mj_pairing. */
gate mj_gate_pair, mj_pair

/* Where %rdi is the most frames of a stack, %r11 is not 0 where a stub has made the call, and a
   fourth argument is the program's %rbp; %rax is the stack's number. */
gate mj_gate_stack, mj_stack, 1

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
