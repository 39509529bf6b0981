/* SPDX-License-Identifier: MIT */
/*
 * call.S: from the preserving call of a marker's body to a C function. The runtime and
 * libmarkerjit.a include it, and define CPU_FLAGS: where the MJ_CPU_... of this process are; and as
 * macros how a call is counted:
 *
 *     count_entering  the slot is in %rdi, which stays; to 10 where nothing is to be called
 *     check_entered   a last look after the probe was loaded; to 9 where it may be another marker's
 *     count_leaving   the slot is in %rdi
 *     otherwise       what they need beside the adapter's way
 *
 * A slot whose probe is a C function has one of these adapters. abi.h (struct mj_slot) says what
 * they find on the stack. Each
 *
 *   1  saves the general registers that a C function may change
 *   2  counts the call and loads the probe again. It calls nothing where the probe is gone,
 *      or another adapter serves the slot by now. Otherwise it sees the probe that its caller saw,
 *      or one that was set since, and that one waits for us when it is taken away
 *   3  mj_call_saving_vectors only: saves what a function may change beside them
 *   4  loads the arguments as a C call has them, variable ones too, and calls
 *   5  restores everything, and counts that the call is over
 *
 * mj_call is for functions that use general registers only. It saves the vector registers in which
 * it passes doubles itself. Of each of those the lower half is enough, since instructions without
 * VEX prefix leave the upper part alone.
 *
 * mj_call_saving_vectors saves the x87, SSE, AVX, AVX-512 and APX state with XSAVE. Not saved are
 * the tiles of AMX, which a probe must not use (8 KiB), and protection keys, which no call changes.
 * It empties the x87 stack, as a C function expects it. Where the system does not use XSAVE, FXSAVE
 * is enough. It takes up to 3 KiB of stack.
 *
 * The unwind information says that the caller's %rsp is what it was before the body stepped over
 * the red zone. So an unwinder finds the frame of the marked function by that function's own rules,
 * relative to %rsp or %rbp, which know nothing of the body's pushes.
 */

/* Offsets from %rbp: one more word than abi.h has, which is the saved %rbp. */
#define SHAPE (MJ_CALL_SHAPE + 8)
#define FLOATS (SHAPE + MJ_SHAPE_FLOATS / 8)
#define SLOT (MJ_CALL_SLOT + 8)
#define WORDS (MJ_CALL_WORDS + 8)
#define INLINE 2 /* MJ_PROBE_INLINE */
#define STATE (-80)  /* where the saved state is, and below it which parts it has */
#define LOCALS 32 /* beside the nine registers, for these; the words at -96 and -104 are the includer's */

/* What is needed to pass any arguments, from %rsp on */
#define ON_STACK 0  /* those that are passed there: twelve at most */
#define GENERAL 96  /* five */
#define DOUBLES 136 /* eight */
#define HALVES 200  /* the lower halves of eight vector registers */
#define ROOM 328

#define COMPONENTS 0x800e7 /* x87, SSE, AVX, the three of AVX-512, APX */
#define HEADER 512         /* of XSAVE's area: its offset */
#define SMALL_AREA 832     /* for x87, SSE and AVX */
#define LARGE_AREA 2688

/* Unwind information with \register for the frame: the number of words is at \shape, the words
   begin at \words, both from there on; the latter and the red zone as two bytes of a SLEB128. */
.macro caller_is register, shape, low, high, return
    /* DW_CFA_def_cfa_expression: breg, deref_size 1, lit3, shl, breg, plus */
    .cfi_escape 0x0f, 10, \register, \shape, 0x94, 1, 0x33, 0x24, \register, \low, \high, 0x22
    .cfi_escape 0x10, 16, 2, \register, \return /* DW_CFA_expression: the return address */
.endm

#define BY_RSP 0x77
#define BY_RBP 0x76

    .text

.macro save_general
    .cfi_startproc
    caller_is BY_RSP, 8, 0x98, 0x01, 0
    endbr64
    push %rbp
    caller_is BY_RSP, 16, 0xa0, 0x01, 8
    .cfi_escape 0x10, 6, 2, BY_RSP, 0
    mov %rsp, %rbp
    caller_is BY_RBP, 16, 0xa0, 0x01, 8
    .cfi_escape 0x10, 6, 2, BY_RBP, 0
    push %rax
    push %rcx
    push %rdx
    push %rsi
    push %rdi
    push %r8
    push %r9
    push %r10
    push %r11
    .cfi_escape 0x10, 0, 2, BY_RBP, 0x78
    .cfi_escape 0x10, 2, 2, BY_RBP, 0x70
    .cfi_escape 0x10, 1, 2, BY_RBP, 0x68
    .cfi_escape 0x10, 4, 2, BY_RBP, 0x60
    .cfi_escape 0x10, 5, 2, BY_RBP, 0x58
    .cfi_escape 0x10, 8, 2, BY_RBP, 0x50
    .cfi_escape 0x10, 9, 2, BY_RBP, 0x48
    .cfi_escape 0x10, 10, 2, BY_RBP, 0x40
    .cfi_escape 0x10, 11, 3, BY_RBP, 0xb8, 0x7f
    sub $LOCALS, %rsp
.endm

.macro restore_general
    lea -72(%rbp), %rsp
    pop %r11
    pop %r10
    pop %r9
    pop %r8
    pop %rdi
    pop %rsi
    pop %rdx
    pop %rcx
    pop %rax
    .irp register, 0, 1, 2, 4, 5, 8, 9, 10, 11
    .cfi_same_value \register
    .endr
    pop %rbp
    .cfi_same_value 6
    caller_is BY_RSP, 8, 0x98, 0x01, 0
    ret
    .cfi_endproc
.endm

/* 2: the function into %r11; or to 9, or where nothing was counted, to 10 */
.macro enter self, sequence
    mov SLOT(%rbp), %rdi
    count_entering \self, \sequence
    mov (%rdi), %r11
    lea \self(%rip), %rax
    cmp %rax, MJ_SLOT_ADAPTER(%rdi)
    jne 9f
    check_entered
    btr $0, %r11
    jnc 9f
    cmp $INLINE, %r11
    jbe 9f
.endm

/* 5 */
.macro leave_slot self, sequence
9:  mov SLOT(%rbp), %rdi
    count_leaving \self, \sequence
10:
.endm

/* 4: at first the usual case, up to five words that are no doubles. More than the words may be
   loaded: behind them is the red zone. */
.macro call_function keep_halves
    cmpw $0, FLOATS(%rbp)
    jne 1f
    cmpb $5, SHAPE(%rbp)
    ja 1f
    and $-16, %rsp
    mov WORDS(%rbp), %rsi
    mov WORDS + 8(%rbp), %rdx
    mov WORDS + 16(%rbp), %rcx
    mov WORDS + 24(%rbp), %r8
    mov WORDS + 32(%rbp), %r9
    xor %eax, %eax
    call *%r11
    jmp 8f
1:  sub $ROOM, %rsp
    and $-16, %rsp
    .if \keep_halves
    movups %xmm0, HALVES(%rsp)
    movups %xmm1, HALVES + 16(%rsp)
    movups %xmm2, HALVES + 32(%rsp)
    movups %xmm3, HALVES + 48(%rsp)
    movups %xmm4, HALVES + 64(%rsp)
    movups %xmm5, HALVES + 80(%rsp)
    movups %xmm6, HALVES + 96(%rsp)
    movups %xmm7, HALVES + 112(%rsp)
    .endif
    movzbl SHAPE(%rbp), %edx
    movzwl FLOATS(%rbp), %ecx
    xor %esi, %esi   /* how many words were taken */
    xor %r8d, %r8d   /* for general registers */
    xor %r9d, %r9d   /* for vector registers */
    xor %r10d, %r10d /* for the stack */
2:  cmp %edx, %esi
    jae 6f
    mov WORDS(%rbp, %rsi, 8), %rax
    inc %esi
    shr $1, %ecx
    jc 3f
    cmp $5, %r8d
    jae 4f
    mov %rax, GENERAL(%rsp, %r8, 8)
    inc %r8d
    jmp 2b
3:  cmp $8, %r9d
    jae 4f
    mov %rax, DOUBLES(%rsp, %r9, 8)
    inc %r9d
    jmp 2b
4:  mov %rax, ON_STACK(%rsp, %r10, 8)
    inc %r10d
    jmp 2b
6:  movsd DOUBLES(%rsp), %xmm0
    movsd DOUBLES + 8(%rsp), %xmm1
    movsd DOUBLES + 16(%rsp), %xmm2
    movsd DOUBLES + 24(%rsp), %xmm3
    movsd DOUBLES + 32(%rsp), %xmm4
    movsd DOUBLES + 40(%rsp), %xmm5
    movsd DOUBLES + 48(%rsp), %xmm6
    movsd DOUBLES + 56(%rsp), %xmm7
    mov %r9d, %eax /* vector registers used, which a variable argument list asks for */
    mov SLOT(%rbp), %rdi
    mov GENERAL(%rsp), %rsi
    mov GENERAL + 8(%rsp), %rdx
    mov GENERAL + 16(%rsp), %rcx
    mov GENERAL + 24(%rsp), %r8
    mov GENERAL + 32(%rsp), %r9
    call *%r11
    .if \keep_halves
    movups HALVES(%rsp), %xmm0
    movups HALVES + 16(%rsp), %xmm1
    movups HALVES + 32(%rsp), %xmm2
    movups HALVES + 48(%rsp), %xmm3
    movups HALVES + 64(%rsp), %xmm4
    movups HALVES + 80(%rsp), %xmm5
    movups HALVES + 96(%rsp), %xmm6
    movups HALVES + 112(%rsp), %xmm7
    .endif
8:
.endm

    .globl mj_call
    .hidden mj_call
    .type mj_call, @function
    .p2align 4
mj_call:
    save_general
    enter mj_call, MJ_SEQUENCE_ENTER
    call_function 1
    leave_slot mj_call, MJ_SEQUENCE_LEAVE
    restore_general
    otherwise mj_call
    .size mj_call, . - mj_call

    .globl mj_call_saving_vectors
    .hidden mj_call_saving_vectors
    .type mj_call_saving_vectors, @function
    .p2align 4
mj_call_saving_vectors:
    save_general
    enter mj_call_saving_vectors, MJ_SEQUENCE_ENTER_SAVING
    testl $MJ_CPU_XSAVE, CPU_FLAGS
    jz 7f
    xor %ecx, %ecx
    xgetbv
    and $COMPONENTS, %eax
    mov $SMALL_AREA, %edx
    mov $LARGE_AREA, %ecx
    test $COMPONENTS & ~7, %eax
    cmovnz %ecx, %edx
    sub %rdx, %rsp
    and $-64, %rsp
    xor %edx, %edx
    mov %rdx, HEADER(%rsp) /* XRSTOR asks for zeros in what XSAVE leaves alone */
    mov %rdx, HEADER + 8(%rsp)
    mov %rdx, HEADER + 16(%rsp)
    mov %rdx, HEADER + 24(%rsp)
    mov %rdx, HEADER + 32(%rsp)
    mov %rdx, HEADER + 40(%rsp)
    mov %rdx, HEADER + 48(%rsp)
    mov %rdx, HEADER + 56(%rsp)
    mov %rsp, STATE(%rbp)
    mov %eax, STATE - 8(%rbp)
    xsave64 (%rsp)
    emms
    call_function 0
    mov STATE(%rbp), %rsp
    mov STATE - 8(%rbp), %eax
    xor %edx, %edx
    xrstor64 (%rsp)
    jmp 9f
7:  sub $HEADER, %rsp
    and $-16, %rsp
    mov %rsp, STATE(%rbp)
    fxsave64 (%rsp)
    emms
    call_function 0
    mov STATE(%rbp), %rsp
    fxrstor64 (%rsp)
    leave_slot mj_call_saving_vectors, MJ_SEQUENCE_LEAVE_SAVING
    restore_general
    otherwise mj_call_saving_vectors
    .size mj_call_saving_vectors, . - mj_call_saving_vectors

    .section .note.GNU-stack, "", @progbits
