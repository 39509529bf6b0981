/* SPDX-License-Identifier: MIT */
/*
 * restart.S: what is done to the ring and the counters of a CPU, in restartable sequences.
 *
 * The kernel promises of a thread inside such a sequence: it is on the CPU whose number it read in
 * the beginning, and no other thread has run there since. Otherwise it goes on at the abort handler
 * (rseq(2)). So plain loads and stores replace locked instructions, no signal handler
 * can record in between, and a record is part of its ring by one store, the last of its sequence.
 * A thread that dies before that store leaves nothing.
 *
 * The kernel learns of a sequence from its descriptor, whose addresses are absolute: the controller
 * fills it into the control block, from mj_entry. The first of a sequence's instructions reads the
 * CPU's number again; the store of the descriptor stands before it.
 *
 * A sequence that was interrupted is not begun again here: the caller has another way, so that a
 * thread that is single-stepped gets on too. (A marker's own recorder comes to mj_append, and that
 * to the shared ring.)
 *
 * All but the probe `count` return in %eax what record.c calls it: 0 done, or FULL, ANOTHER, TURN.
 */

#include "../../include/markerjit/abi.h"

#define HEADS (MJ_CONTROL_PARTS + MJ_PART_HEADS * MJ_PART_SIZE)
#define COUNTS (MJ_CONTROL_PARTS + MJ_PART_COUNTS * MJ_PART_SIZE)
#define MAX_MARKERS (MJ_CONTROL_PARTS + MJ_PART_MARKERS * MJ_PART_SIZE + MJ_PART_COUNT)

#define CONTROL mj_code_start + MJ_CODE_SIZE

#define FULL 1    /* the reader is too far behind */
#define ANOTHER 2 /* interrupted, or the thread has no such sequences: use another way */
#define TURN 3    /* there is no room in this page: mj_turn, and again */
#define DEAD 4
#define OVER 5
#define USUAL_CONTROL 0x1f80 /* of MXCSR, as a thread begins */

/* From now on in this sequence; \area: where the thread's struct rseq is, from its fs base. */
.macro begin sequence, area
    movslq MJ_CONTROL_RSEQ_OFFSET(%rdi), \area
    lea MJ_CONTROL_SEQUENCES + 32 * \sequence(%rdi), %rax
    mov %rax, %fs:MJ_RSEQ_SEQUENCE(\area)
.endm

/* \cpu: our CPU. A thread that never registered has -1 there; in a fork's child none is below 0, nor
   where a child may be in our memory: that has the CPU of its parent there, and is never restarted. */
.macro read_cpu area, cpu, otherwise=another
    mov %fs:MJ_RSEQ_CPU(\area), \cpu
    cmp mj_code_start + MJ_ALIVE(%rip), \cpu
    jae \otherwise
.endm

/* %r10: the struct mj_ring of the CPU in %rax. */
.macro find_ring
    shl $7, %rax
    add HEADS(%rdi), %rax
    lea -MJ_CODE_SIZE(%rdi, %rax), %r10
.endm

    .text

/* int mj_append(const struct mj_control *, uint64_t *image, uint64_t size, int stamp)
   Add a record. With `stamp` its time, the second word, is read here. */
    .globl mj_append, mj_append_start, mj_append_end, mj_append_abort
    .p2align 4
mj_append:
    mov %rdx, %r9
    mov %ecx, %r11d
    begin MJ_SEQUENCE_APPEND, %r8
mj_append_start:
    read_cpu %r8, %eax
    find_ring
    mov (%r10), %rcx
    lea (%rcx, %r9), %r8 /* the new head */
    cmp MJ_RING_ROOM(%r10), %r8
    ja turn
    and MJ_RING_MASK(%r10), %rcx
    add MJ_RING_DATA(%r10), %rcx
    test %r11d, %r11d
    jz 1f
    rdtsc
    shl $32, %rdx
    or %rdx, %rax
    mov %rax, 8(%rsi)
1:  mov -8(%rsi, %r9), %rax
    mov %rax, -8(%rcx, %r9)
    sub $8, %r9
    jnz 1b
    mov %r8, (%r10)
mj_append_end:
    xor %eax, %eax
    ret

/* int mj_turn(void)
   Make room: up to the end of the page, or of the next, as far as the reader's limit allows. The
   limit is read once for each look: the reader moves it meanwhile. The rest of a page is filled.
   It changes only %rax, %rdi, %r10 and %r11. Of the vector registers that it uses it saves the
   lower halves in its red zone, 40 bytes of it (markerjit/probes/calls.py has something below
   them); these instructions leave the upper parts alone. */
    .globl mj_turn, mj_turn_start, mj_turn_end, mj_turn_abort
    .p2align 4
mj_turn:
    movups %xmm14, -24(%rsp)
    movups %xmm15, -40(%rsp)
    lea mj_code_start + MJ_CODE_SIZE(%rip), %rdi
    begin MJ_SEQUENCE_TURN, %r11
mj_turn_start:
    read_cpu %r11, %eax, 5f
    find_ring
    mov (%r10), %r11
    lea MJ_PAGE(%r11), %rax
    and $-MJ_PAGE, %rax /* the end of the head's page */
    cmp %rax, MJ_RING_ROOM(%r10)
    je 1f
    mov MJ_RING_LIMIT(%r10), %rdi /* the room ended before: how far may it go now? */
    cmp %rdi, %rax
    cmova %rdi, %rax
    cmp %rax, MJ_RING_ROOM(%r10)
    jae 4f
    movq %r11, %xmm15
    movq %rax, %xmm14
    jmp 3f
1:  cmp %rax, MJ_RING_LIMIT(%r10) /* on to the next page, with a filler in this one */
    jb 4f
    movq %rax, %xmm15
    mov MJ_RING_MASK(%r10), %rdi
    and %r11, %rdi
    add MJ_RING_DATA(%r10), %rdi
    sub %r11d, %eax /* 8 to 4096: a head at the end of a page has its room behind it */
    shl $MJ_WORDS_SHIFT - 3, %eax
    or $MJ_FILLER, %eax
    mov %rax, (%rdi)
    movq %xmm15, %rax
    add $MJ_PAGE, %rax
    mov MJ_RING_LIMIT(%r10), %rdi
    cmp %rdi, %rax
    cmova %rdi, %rax
    movq %rax, %xmm14
3:  punpcklqdq %xmm14, %xmm15
    movaps %xmm15, (%r10) /* head and room, by one instruction */
mj_turn_end:
    xor %eax, %eax
    jmp 6f
4:  mov $FULL, %eax
    jmp 6f
mj_turn_another:
5:  mov $ANOTHER, %eax
6:  movups -24(%rsp), %xmm14
    movups -40(%rsp), %xmm15
    ret

/* int mj_tally(const struct mj_control *, uint64_t marker)
   Count an execution. */
    .globl mj_tally, mj_tally_start, mj_tally_end, mj_tally_abort
    .p2align 4
mj_tally:
    begin MJ_SEQUENCE_TALLY, %r8
mj_tally_start:
    read_cpu %r8, %eax
    mov MAX_MARKERS(%rdi), %ecx
    imul %rcx, %rax
    add %rsi, %rax
    shl $4, %rax
    add COUNTS(%rdi), %rax
    incq -MJ_CODE_SIZE(%rdi, %rax)
mj_tally_end:
    xor %eax, %eax
    ret

/* The probe `count` for any marker, which is the data of the slot, reached by a preserving call
   (abi.h, struct mj_slot). It counts as mj_tally does, and leaves to mj_pass what it cannot. */
    .globl mj_count_block, mj_count_block_start, mj_count_block_end, mj_count_block_abort
    .hidden mj_count_block
    .p2align 5
mj_count_block:
    endbr64
    push %rax
    push %rdi
    push %r10
    movslq CONTROL + MJ_CONTROL_RSEQ_OFFSET(%rip), %r10
    test %r10, %r10
    jz mj_count_otherwise
    lea CONTROL + MJ_CONTROL_SEQUENCES + 32 * MJ_SEQUENCE_COUNT(%rip), %rax
    mov %rax, %fs:MJ_RSEQ_SEQUENCE(%r10)
mj_count_block_start:
    read_cpu %r10, %eax, mj_count_otherwise
    mov 24 + MJ_CALL_SLOT(%rsp), %r10
    mov MJ_SLOT_DATA(%r10), %r10
    mov CONTROL + MAX_MARKERS(%rip), %edi
    imul %rdi, %rax
    dec %edi
    and MJ_MARKER_ID(%r10), %edi /* whatever stands in its entry, a place of the table */
    add %rdi, %rax
    shl $4, %rax
    add CONTROL + COUNTS(%rip), %rax
    lea mj_code_start(%rip), %rdi
    incq (%rdi, %rax)
mj_count_block_end:
    pop %r10
    pop %rdi
    pop %rax
    ret
mj_count_otherwise:
    push %r11
    mov 32 + MJ_CALL_SLOT(%rsp), %rdi
    mov MJ_SLOT_DATA(%rdi), %rdi
    call mj_gate_pass
    pop %r11
    jmp mj_count_block_end

/* A sequence on a word of an aggregate. %rdi: the word of CPU 0; %rsi: bytes from CPU to CPU; %rcx:
   where the ticket of the aggregate is; %r8: the ticket that the caller knows. %rax is then the
   distance of this CPU's word. */
.macro begin_cell name, sequence
    movslq CONTROL + MJ_CONTROL_RSEQ_OFFSET(%rip), %r10
    test %r10, %r10
    jz another
    lea CONTROL + MJ_CONTROL_CELL_SEQUENCES + 32 * \sequence(%rip), %rax
    mov %rax, %fs:MJ_RSEQ_SEQUENCE(%r10)
\name\()_start:
    read_cpu %r10, %eax
    cmp %r8, (%rcx)
    jne dead
    imul %rsi, %rax
.endm

/* int mj_cell_add(uint64_t *word, uint64_t stride, uint64_t value, const uint64_t *place,
                   uint64_t ticket) */
    .globl mj_cell_add, mj_cell_add_start, mj_cell_add_end, mj_cell_add_abort
    .p2align 4
mj_cell_add:
    begin_cell mj_cell_add, MJ_CELL_ADD
    add %rdx, (%rdi, %rax)
mj_cell_add_end:
    mov $OVER, %eax
    jo 1f
    xor %eax, %eax
1:  ret

/* int mj_cell_set(uint64_t *word, uint64_t stride, uint64_t value, const uint64_t *place,
                   uint64_t ticket, uint64_t before) */
    .globl mj_cell_set, mj_cell_set_start, mj_cell_set_end, mj_cell_set_abort
    .p2align 4
mj_cell_set:
    begin_cell mj_cell_set, MJ_CELL_SET
    cmp %r9, (%rdi, %rax)
    jne turn
    mov %rdx, (%rdi, %rax)
mj_cell_set_end:
    xor %eax, %eax
    ret

/* uint64_t mj_float_sum(uint64_t one, uint64_t other): what it changes is in its red zone. */
    .globl mj_float_sum
    .hidden mj_float_sum
    .p2align 4
mj_float_sum:
    movups %xmm14, -24(%rsp)
    movups %xmm15, -40(%rsp)
    stmxcsr -44(%rsp)
    movl $USUAL_CONTROL, -48(%rsp)
    ldmxcsr -48(%rsp)
    movq %rdi, %xmm15
    movq %rsi, %xmm14
    addsd %xmm14, %xmm15
    movq %xmm15, %rax
    ldmxcsr -44(%rsp)
    movups -24(%rsp), %xmm14
    movups -40(%rsp), %xmm15
    ret

turn:
    mov $TURN, %eax
    ret
dead:
    mov $DEAD, %eax
    ret

/* An abort handler: the kernel jumps only to what has the signature before it. Here it is the
   operand of an instruction that is never executed, so that disassemblers keep in step. [librseq] */
.macro abort_handler name
    .byte 0x0f, 0xb9, 0x3d /* ud1 signature(%rip), %edi */
    .long MJ_RSEQ_SIGNATURE
\name:
.endm

abort_handler mj_append_abort
    jmp another
abort_handler mj_turn_abort
    jmp mj_turn_another
abort_handler mj_count_block_abort
    jmp mj_count_otherwise
abort_handler mj_cell_add_abort
    jmp another
abort_handler mj_cell_set_abort
    jmp another
abort_handler mj_tally_abort
another:
    mov $ANOTHER, %eax
    ret

    .section .note.GNU-stack, "", @progbits
