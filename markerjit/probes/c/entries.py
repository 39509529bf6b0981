"""Assembly that goes with every probe: its entries, and what compilers call by themselves.

A slot points to an entry, not to the function. In the child of a fork, which shares the probe's
variables with its parent, the entry returns at once: what a child does is not an event of this
process. It uses no register that an argument may be in.
"""

from __future__ import annotations

from collections.abc import Iterable

_ENTRY = """
    .section .text.mj_entry, "ax", @progbits
    .balign 16
    .globl mj_entry_{name}
    .type mj_entry_{name}, @function
mj_entry_{name}:
    movabsq $mj_alive, %r11
    cmpq    $0, (%r11)
    je      1f
    jmp     {name}
1:  ret
    .size   mj_entry_{name}, . - mj_entry_{name}
"""

_GATE = """
    .section .text.mj_entry, "ax", @progbits
    .balign 16
    .globl mj_entry_{name}
    .type mj_entry_{name}, @function
mj_entry_{name}:
    movabsq $mj_alive, %r11
    cmpq    $0, (%r11)
    je      1f
    pushq   16(%rsp)
    pushq   $0
    movabsq $mj_count_block, %r11
    call    *%r11
    movq    $0, -8(%rsp)
    leaq    16(%rsp), %rsp
    movzbl  8(%rsp), %eax
    leaq    24(%rsp,%rax,8), %r11
    movq    8(%r11), %rax
    leaq    144(%r11), %rsp
    jmp     {name}
1:  ret
    .size   mj_entry_{name}, . - mj_entry_{name}
"""
"""Called by a stub: on the stack are the return address, the shape, whose lowest byte is the number
of operands, the slot, the operands, the flags, %rax, and 128 bytes (probes/stub.py). All of it goes
but %rax, which may be the number of vector registers. The flags are nobody's at an entry, nor is
%r11. In the child of a fork it returns, and the old function is executed. Otherwise it is counted,
as by the probe `count`, which is called with the slot and no operands. The return address of that
call goes, too: memory is searched for such (probes/unused.py)."""

HELPERS = {
    "memcpy": """
    movq    %rdi, %rax
    movq    %rdx, %rcx
    rep movsb
    ret
""",
    "memmove": """
    movq    %rdi, %rax
    movq    %rdx, %rcx
    jmp     2f
1:  movb    -1(%rsi,%rcx), %dl
    movb    %dl, -1(%rdi,%rcx)
    decq    %rcx
3:  testq   %rcx, %rcx
    jne     1b
    ret
2:  cmpq    %rsi, %rdi
    ja      3b
    rep movsb
    ret
""",
    "memset": """
    movq    %rdi, %r8
    movl    %esi, %eax
    movq    %rdx, %rcx
    rep stosb
    movq    %r8, %rax
    ret
""",
    "memcmp": """
    xorl    %ecx, %ecx
1:  cmpq    %rdx, %rcx
    je      2f
    movzbl  (%rdi,%rcx), %eax
    movzbl  (%rsi,%rcx), %r8d
    incq    %rcx
    subl    %r8d, %eax
    je      1b
    ret
2:  xorl    %eax, %eax
    ret
""",
    "strlen": """
    xorl    %eax, %eax
    jmp     2f
1:  incq    %rax
2:  cmpb    $0, (%rdi,%rax)
    jne     1b
    ret
""",
}
"""Functions that a compiler may call by itself: gcc's manual, "Language Standards Supported by
GCC". Short rather than fast."""

_HELPER = """
    .section .text.mj_helpers, "ax", @progbits
    .balign 16
    .globl {name}
    .type {name}, @function
{name}:{code}    .size {name}, . - {name}
"""


def assembly(functions: Iterable[str], undefined: Iterable[str], new: str = "") -> str:
    """Entries for these functions, and those helpers that are wanted, in GNU syntax. The function
    `new` gets a gate in place of an entry: it replaces one of the program."""
    entries = [(_GATE if name == new else _ENTRY).format(name=name) for name in functions]
    helpers = [
        _HELPER.format(name=name, code=HELPERS[name]) for name in HELPERS if name in undefined
    ]
    return "".join([*entries, *helpers, '    .section .note.GNU-stack, "", @progbits\n'])


def entry_name(function: str) -> str:
    """The symbol of a function's entry."""
    return f"mj_entry_{function}"
