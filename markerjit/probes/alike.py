"""Two texts that are compared with one another, assembled: in the usual case nothing is called.

In a restartable sequence the code does what it does for a text and a constant (compared.py), with
both pages, and goes from word to word of both until a byte differs, or both texts end. The runtime
is asked, too, where they do not end within the words that are looked at.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Self

from markerjit.abi import OP_STRING
from markerjit.probes.asked_texts import TextArgument
from markerjit.probes.compared import answers, begin
from markerjit.probes.key_texts import DATA
from markerjit.probes.texts import PAGE_MASK, Registers, known_page, window_now
from markerjit.questions.ir import TextTest, Value
from markerjit.tuples import NamedTuple
from markerjit.x86.assemble import number

_WORD = 8
_WINDOW = "rdi"
_FIRST = Registers("r10", _WINDOW, "rcx", "ecx", "rdx")
_OTHER = _FIRST._replace(address="r11")


class Alike(NamedTuple):
    """A comparison of two arguments that end with a NUL, of which so many bytes are looked at. `at`
    tells comparisons apart."""

    at: int
    arg: int
    other: int
    most: int

    @classmethod
    def of(cls, at: int, node: TextTest, texts: Mapping[str, TextArgument]) -> Self | None:
        """The comparison that a test is; None where it is another."""
        if not isinstance(node.text, Value) or not isinstance(node.other, Value):
            return None
        text, other = texts[node.text.name], texts[node.other.name]
        if text.op != OP_STRING or other.op != OP_STRING:
            return None
        return cls(at, text.arg, other.arg, min(text.limit, other.limit))

    @property
    def data(self) -> Mapping[str, bytes]:
        """What the code refers to by name."""
        return DATA

    def lines(self, arguments: int, rseq_offset: int) -> Iterator[str]:
        """The code, as that of a Comparison. It changes rcx, rdx, rdi, r10 and r11, too."""
        slow, differs = f"ask{self.at}", f"differs{self.at}"
        yield from begin(self.at, "r10d", rseq_offset)
        yield from window_now(_WINDOW)
        for registers, arg in ((_FIRST, self.arg), (_OTHER, self.other)):
            place = f"[rsp + {number(arguments + _WORD * arg)}]"
            yield f"mov {registers.address}, qword ptr {place}"
            yield from known_page(registers, slow)
        # The bytes that are left: in the page of each, and of those that are looked at.
        yield "mov ecx, r10d"
        yield f"and ecx, {number(PAGE_MASK)}"
        yield "mov eax, r11d"
        yield f"and eax, {number(PAGE_MASK)}"
        yield "cmp ecx, eax"
        yield "cmovb ecx, eax"
        yield "neg ecx"
        yield f"add ecx, {number(PAGE_MASK + 1)}"
        yield f"mov eax, {number(self.most)}"
        yield "cmp ecx, eax"
        yield "cmova ecx, eax"
        yield "sub r11, r10"
        yield f"words{self.at}:"
        yield f"sub ecx, {number(_WORD)}"
        yield f"jb {slow}"
        yield "mov rax, qword ptr [r10]"
        yield "mov rdx, qword ptr [r10 + r11]"
        yield "xor rdx, rax"
        yield "mov rdi, rax"
        yield "sub rdi, qword ptr [rip + ones]"
        yield "not rax"
        yield "and rdi, rax"
        yield "and rdi, qword ptr [rip + highs]"
        yield f"jne last{self.at}_"
        yield f"add r10, {number(_WORD)}"
        yield "test rdx, rdx"
        yield f"je words{self.at}"
        yield f"jmp {differs}"
        yield f"last{self.at}_:"
        yield "lea rax, [rdi - 1]"  # with the first byte that is 0, and what is before
        yield "xor rax, rdi"
        yield "test rax, rdx"
        yield f"jne {differs}"
        yield from answers(self.at)
