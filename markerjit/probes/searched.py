"""The length of a text, a constant that is searched in it, and whether it is there, assembled: in
the usual case nothing is called.

In a restartable sequence the code does what it does for a text that is compared (compared.py), and
goes from word to word until one has a NUL, or the first byte of the constant, or the part of the
text that is asked for ends. The runtime is asked where that is not before the end of the page.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Self

from markerjit.abi import OP_BYTES, OP_STRING
from markerjit.probes.asked_texts import TextArgument, asked_text
from markerjit.probes.compared import LONGEST, answers, begin, compare, labels_of
from markerjit.probes.key_texts import DATA
from markerjit.probes.texts import PAGE_MASK, Registers, known_page, nul_before, window_now
from markerjit.questions.ir import Constant, Node, TextTest, Unary, Value, whole_text
from markerjit.tuples import NamedTuple
from markerjit.x86.assemble import number

_WORD = 8
_HALF = (1 << 32) - 1
_PAGE = Registers("r10", "rdi", "rcx", "ecx", "rdx")


class _Part(NamedTuple):
    """The bytes from `low` to `high` of an argument, up to its NUL. It `has_length` where the
    argument before it is how many bytes it has at most."""

    arg: int
    low: int
    high: int
    has_length: bool

    @classmethod
    def of(cls, text: Node, texts: Mapping[str, TextArgument]) -> Self | None:
        """The part that a text is; None where it never has bytes, or may have a NUL among them."""
        if not isinstance(whole_text(text), Value):
            return None
        asked = asked_text(text, texts, {})
        high = min(asked.high, asked.limit)
        if asked.op not in (OP_STRING, OP_BYTES) or not asked.low < min(high, LONGEST):
            return None
        return cls(asked.arg, asked.low, high, asked.op == OP_BYTES)

    def length(self, arguments: int) -> str:
        """The word with the length of the argument. A negative one, a large one without a sign, is
        none."""
        return f"dword ptr [rsp + {number(arguments + _WORD * (self.arg - 1))}]"

    def begin(self, at: int, arguments: int, reach: int, rseq_offset: int) -> Iterator[str]:
        """The beginning of the sequence: the address of the argument in r10; `low` in rdi; and how
        far behind the end of its page so many bytes of the part reach, in ecx. It goes to `differs`
        where the text ends before the part."""
        yield from _begin(at, self.arg, arguments, rseq_offset)
        yield "mov ecx, r10d"
        yield f"or ecx, {number(_HALF & ~PAGE_MASK)}"
        yield f"add ecx, {number(self.low + reach)}"
        if self.low:
            if self.has_length:
                yield f"cmp {self.length(arguments)}, {number(self.low)}"
                yield f"jb differs{at}"
            yield "test ecx, ecx"
            yield f"jg ask{at}"
            yield from nul_before(self.low, "r11", f"differs{at}")
            yield f"mov edi, {number(self.low)}"
        else:
            yield "xor edi, edi"


class Length(NamedTuple):
    """The length of a part of an argument. `at` tells what is asked of texts apart."""

    at: int
    part: _Part

    @classmethod
    def of(cls, at: int, node: Unary, texts: Mapping[str, TextArgument]) -> Self | None:
        """The length that is asked for; None where something else is."""
        part = _Part.of(node.operand, texts) if node.operator == "len" else None
        return cls(at, part) if part else None

    @property
    def data(self) -> Mapping[str, bytes]:
        """What the code refers to by name."""
        return DATA

    def lines(self, arguments: int, rseq_offset: int) -> Iterator[str]:
        """The code, as that of a Comparison, with the length in rax. It changes rcx, too."""
        at, (_, low, high, has_length) = self.at, self.part
        yield from self.part.begin(at, arguments, _WORD, rseq_offset)
        yield f"words{at}:"
        yield "test ecx, ecx"
        yield f"jg ask{at}"
        yield "mov rax, qword ptr [r10 + rdi]"
        yield from _zero_bytes("rax", "rdx")
        yield "and rdx, qword ptr [rip + highs]"
        yield f"jne last{at}_"
        yield f"add ecx, {number(_WORD)}"
        yield f"add edi, {number(_WORD)}"
        if has_length:
            yield f"cmp edi, {self.part.length(arguments)}"
            yield f"jae whole{at}_"
        yield f"cmp edi, {number(high)}"
        yield f"jb words{at}"
        yield f"jmp whole{at}_"
        yield f"last{at}_:"
        yield "bsf rdx, rdx"
        yield "shr edx, 3"
        yield "add edi, edx"
        yield f"whole{at}_:"
        yield f"mov eax, {number(high)}"
        yield "cmp eax, edi"
        yield "cmova eax, edi"
        if has_length:
            yield f"mov edi, {self.part.length(arguments)}"
            yield "cmp eax, edi"
            yield "cmova eax, edi"
        if low:
            yield f"sub eax, {number(low)}"
        yield f"{labels_of(at)[1]}:"
        yield f"jmp answered{at}"
        if low:
            yield f"differs{at}:"
            yield "xor eax, eax"
            yield f"jmp answered{at}"
        yield f"ask{at}:"


class Search(NamedTuple):
    """A search of a constant in a part of an argument. `at` tells what is asked of texts apart."""

    at: int
    part: _Part
    constant: bytes

    @classmethod
    def of(cls, at: int, node: TextTest, texts: Mapping[str, TextArgument]) -> Self | None:
        """The search that a test is; None where it is another."""
        if node.operator != "contains" or not isinstance(node.other, Constant):
            return None
        part, constant = _Part.of(node.text, texts), node.other.value
        if not part or not isinstance(constant, bytes) or b"\0" in constant:
            return None
        if not 0 < len(constant) <= min(LONGEST, part.high - part.low):
            return None
        return cls(at, part, constant)

    @property
    def data(self) -> Mapping[str, bytes]:
        """What the code refers to by name."""
        return {**DATA, f"first{self.at}": self.constant[:1] * _WORD}

    def lines(self, arguments: int, rseq_offset: int) -> Iterator[str]:
        """The code, as that of a Comparison. It changes rcx, too."""
        at, (_, _, high, has_length), constant = self.at, self.part, self.constant
        reach = -(-len(constant) // _WORD) * _WORD
        yield from self.part.begin(at, arguments, reach, rseq_offset)
        yield f"words{at}:"
        if has_length:
            yield f"cmp edi, {self.part.length(arguments)}"
            yield f"jae differs{at}"
        yield f"cmp edi, {number(high)}"
        yield f"jae differs{at}"
        yield "test ecx, ecx"
        yield f"jg ask{at}"
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
        yield "cmp byte ptr [r10 + rdi], 0"
        yield f"je differs{at}"
        yield f"lea eax, [rdi + {number(len(constant))}]"
        if has_length:
            yield f"cmp eax, {self.part.length(arguments)}"
            yield f"ja differs{at}"
        yield f"cmp eax, {number(high)}"
        yield f"ja differs{at}"
        yield "test ecx, ecx"
        yield f"jg ask{at}"
        yield from compare("r10 + rdi", 0, constant, "rdx", f"next{at}_")
        yield f"jmp {labels_of(at)[1]}"
        yield f"next{at}_:"
        yield "inc edi"
        yield "inc ecx"
        yield f"jmp words{at}"
        yield from answers(at)


class Missing(NamedTuple):
    """Whether an argument is no text: NULL, or nothing that can be read. `at` tells what is asked
    of texts apart."""

    at: int
    arg: int

    @classmethod
    def of(cls, at: int, node: Unary, texts: Mapping[str, TextArgument]) -> Self | None:
        """What is asked; None where something else is."""
        text = whole_text(node.operand)
        if node.operator != "missing" or not isinstance(text, Value):
            return None
        return cls(at, texts[text.name].arg)

    @property
    def data(self) -> Mapping[str, bytes]:
        """What the code refers to by name: nothing."""
        return {}

    def lines(self, arguments: int, rseq_offset: int) -> Iterator[str]:
        """The code, as that of a Comparison: no, where its first byte can be read. It changes rcx,
        too."""
        yield from _begin(self.at, self.arg, arguments, rseq_offset)
        yield "xor eax, eax"
        yield f"{labels_of(self.at)[1]}:"
        yield f"jmp answered{self.at}"
        yield f"ask{self.at}:"


def _begin(at: int, arg: int, arguments: int, rseq_offset: int) -> Iterator[str]:
    """The beginning of the sequence: the address of an argument in r10, whose page can be read."""
    yield from begin(at, "r10d", rseq_offset)
    yield from window_now(_PAGE.window)
    yield f"mov r10, qword ptr [rsp + {number(arguments + _WORD * arg)}]"
    yield from known_page(_PAGE, f"ask{at}")


def _zero_bytes(word: str, bits: str) -> Iterator[str]:
    """Bits of which the lowest of `highs` is that of the first byte that is 0 [Mycroft]. The word
    is lost."""
    yield f"mov {bits}, {word}"
    yield f"sub {bits}, qword ptr [rip + ones]"
    yield f"not {word}"
    yield f"and {bits}, {word}"
