/* SPDX-License-Identifier: MIT */
/*
 * A site whose stub the test has made, run with registers that the test has chosen.
 *
 *     void run_site(void *stub)   loads `before`, goes to the stub, and saves `after` behind the site
 *     before, after               16 general registers as they are numbered, the flags, 16 vectors
 *     probe                       what the slot calls: copies its block to `block`, and changes flags
 *     site, site_end              the instructions that the stub executes copies of
 */

#define RSP 4 * 8
#define FLAGS 16 * 8
#define VECTORS 17 * 8

    .data
    .balign 16
    .globl before, after, block, calls, word
before: .skip VECTORS + 16 * 16
after: .skip VECTORS + 16 * 16
block: .skip 16 * 8
calls: .quad 0
word: .quad 0x1122334455667788
host: .quad 0
where: .quad 0
scratch: .quad 0

    .text
    .globl run_site, site, site_end, probe
run_site:
    push %rbp
    push %rbx
    push %r12
    push %r13
    push %r14
    push %r15
    pushfq
    mov %rdi, where(%rip)
    mov %rsp, host(%rip)
    .irp number, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15
    movups VECTORS + \number * 16 + before(%rip), %xmm\number
    .endr
    push FLAGS + before(%rip)
    popfq
    mov before(%rip), %rax
    mov 8 + before(%rip), %rcx
    mov 16 + before(%rip), %rdx
    mov 24 + before(%rip), %rbx
    mov RSP + before(%rip), %rsp
    mov 40 + before(%rip), %rbp
    mov 48 + before(%rip), %rsi
    mov 56 + before(%rip), %rdi
    .irp number, 8, 9, 10, 11, 12, 13, 14, 15
    mov \number * 8 + before(%rip), %r\number
    .endr
    jmp *where(%rip)

site:
    nop
    lea 1(%r15), %r15
    nop
    nop
site_end:
    mov %rax, after(%rip)
    mov %rcx, 8 + after(%rip)
    mov %rdx, 16 + after(%rip)
    mov %rbx, 24 + after(%rip)
    mov %rsp, RSP + after(%rip)
    mov %rbp, 40 + after(%rip)
    mov %rsi, 48 + after(%rip)
    mov %rdi, 56 + after(%rip)
    .irp number, 8, 9, 10, 11, 12, 13, 14, 15
    mov %r\number, \number * 8 + after(%rip)
    .endr
    mov host(%rip), %rsp
    pushfq
    pop FLAGS + after(%rip)
    .irp number, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15
    movups %xmm\number, VECTORS + \number * 16 + after(%rip)
    .endr
    popfq
    pop %r15
    pop %r14
    pop %r13
    pop %r12
    pop %rbx
    pop %rbp
    ret

probe:
    push %rsi
    push %rdi
    push %rcx
    mov $16, %ecx
    lea 32(%rsp), %rsi
    lea block(%rip), %rdi
    rep movsq
    incq calls(%rip)
    pop %rcx
    pop %rdi
    pop %rsi
    cmp %rsp, %rax
    ret

    .section .note.GNU-stack, "", @progbits
