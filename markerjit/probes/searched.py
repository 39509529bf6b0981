"""The length of a text, and a constant that is searched in it, assembled: in the usual case nothing
is called.

In a restartable sequence the code does what it does for a text that is compared (compared.py), and
goes from word to word until one has a NUL, or the first byte of the constant. The runtime is asked,
too, where the text does not end within its page, or within the bytes that are looked at.

What this does not do: texts with a length (`%.*s`), and parts of a text.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Self

from markerjit.abi import OP_STRING
from markerjit.probes.asked_texts import TextArgument
from markerjit.probes.compared import LONGEST, answers, begin, compare, labels_of
from markerjit.probes.key_texts import DATA
from markerjit.probes.texts import PAGE_MASK, Registers, known_page, window_now
from markerjit.questions.ir import Constant, TextTest, Unary, Value
from markerjit.tuples import NamedTuple
from markerjit.x86.assemble import number

_WORD = 8
_HALF = (1 << 32) - 1
_PAGE = Registers("r10", "rdi", "rcx", "ecx", "rdx")


class Length(NamedTuple):
    """The length of an argument that ends with a NUL, of which so many bytes are looked at. `at`
    tells what is asked of texts apart."""

    at: int
    arg: int
    most: int

    @classmethod
    def of(cls, at: int, node: Unary, texts: Mapping[str, TextArgument]) -> Self | None:
        """The length that is asked for; None where something else is."""
        if node.operator != "len" or not isinstance(node.operand, Value):
            return None
        text = texts[node.operand.name]
        return cls(at, text.arg, text.limit) if text.op == OP_STRING else None

    @property
    def data(self) -> Mapping[str, bytes]:
        """What the code refers to by name."""
        return DATA

    def lines(self, arguments: int, rseq_offset: int) -> Iterator[str]:
        """The code, as that of a Comparison, with the length in rax. It changes rcx, too."""
        at, slow = self.at, f"ask{self.at}"
        yield from _begin(at, arguments + _WORD * self.arg, _WORD, rseq_offset)
        yield f"words{at}:"
        yield "test ecx, ecx"
        yield f"jg {slow}"
        yield "mov rax, qword ptr [r10 + rdi]"
        yield from _zero_bytes("rax", "rdx")
        yield "and rdx, qword ptr [rip + highs]"
        yield f"jne last{at}_"
        yield f"add ecx, {number(_WORD)}"
        yield f"add edi, {number(_WORD)}"
        yield f"cmp edi, {number(self.most)}"
        yield f"jb words{at}"
        yield f"jmp {slow}"
        yield f"last{at}_:"
        yield "bsf rdx, rdx"
        yield "shr edx, 3"
        yield "lea eax, [rdi + rdx]"
        yield f"cmp eax, {number(self.most)}"
        yield f"ja {slow}"
        yield f"{labels_of(at)[1]}:"
        yield f"jmp answered{at}"
        yield f"{slow}:"


class Search(NamedTuple):
    """A search of a constant in an argument that ends with a NUL, of which so many bytes are looked
    at. `at` tells what is asked of texts apart."""

    at: int
    arg: int
    most: int
    constant: bytes

    @classmethod
    def of(cls, at: int, node: TextTest, texts: Mapping[str, TextArgument]) -> Self | None:
        """The search that a test is; None where it is another."""
        if node.operator != "contains" or not isinstance(node.text, Value):
            return None
        if not isinstance(node.other, Constant) or not isinstance(node.other.value, bytes):
            return None
        text, constant = texts[node.text.name], node.other.value
        if text.op != OP_STRING or b"\0" in constant:
            return None
        if not 0 < len(constant) <= min(LONGEST, text.limit):
            return None
        return cls(at, text.arg, text.limit, constant)

    @property
    def data(self) -> Mapping[str, bytes]:
        """What the code refers to by name."""
        return {**DATA, f"first{self.at}": self.constant[:1] * _WORD}

    def lines(self, arguments: int, rseq_offset: int) -> Iterator[str]:
        """The code, as that of a Comparison. It changes rcx, too."""
        at, slow, constant = self.at, f"ask{self.at}", self.constant
        reach = -(-len(constant) // _WORD) * _WORD
        yield from _begin(at, arguments + _WORD * self.arg, reach, rseq_offset)
        yield f"words{at}:"
        yield "test ecx, ecx"
        yield f"jg {slow}"
        yield f"cmp edi, {number(self.most)}"
        yield f"jae {slow}"
        yield "mov rax, qword ptr [r10 + rdi]"
        yield "mov r11, rax"
        yield f"xor r11, qword ptr [rip + first{at}]"
        yield from _zero_bytes("r11", "rdx")
        yield "mov r11, rdx"
        yield from _zero_bytes("rax", "rdx")
        yield "or rdx, r11"  # of both, the lowest bit is that of such a byte
        yield "and rdx, qword ptr [rip + highs]"
        yield f"jne byte{at}_"
        yield f"add ecx, {number(_WORD)}"
        yield f"add edi, {number(_WORD)}"
        yield f"jmp words{at}"
        yield f"byte{at}_:"
        yield "bsf rdx, rdx"
        yield "shr edx, 3"
        yield "add edi, edx"
        yield "add ecx, edx"
        yield f"jg {slow}"
        yield "cmp byte ptr [r10 + rdi], 0"
        yield f"je differs{at}"
        yield f"cmp edi, {number(self.most - len(constant))}"
        yield f"ja {slow}"
        yield from compare("r10 + rdi", 0, constant, "rdx", f"next{at}_")
        yield f"jmp {labels_of(at)[1]}"
        yield f"next{at}_:"
        yield "inc edi"
        yield "inc ecx"
        yield f"jmp words{at}"
        yield from answers(at)


def _begin(at: int, argument: int, reach: int, rseq_offset: int) -> Iterator[str]:
    """The beginning of the sequence: the address of a text in r10, whose page can be read; 0 in
    rdi; and how far behind the end of that page so many bytes of the text reach, in ecx."""
    yield from begin(at, "r10d", rseq_offset)
    yield from window_now(_PAGE.window)
    yield f"mov r10, qword ptr [rsp + {number(argument)}]"
    yield from known_page(_PAGE, f"ask{at}")
    yield "mov ecx, r10d"
    yield f"or ecx, {number(_HALF & ~PAGE_MASK)}"
    yield f"add ecx, {number(reach)}"
    yield "xor edi, edi"


def _zero_bytes(word: str, bits: str) -> Iterator[str]:
    """Bits of which the lowest of `highs` is that of the first byte that is 0 [Mycroft]. The word
    is lost."""
    yield f"mov {bits}, {word}"
    yield f"sub {bits}, qword ptr [rip + ones]"
    yield f"not {word}"
    yield f"and {bits}, {word}"
