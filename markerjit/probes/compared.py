"""A text that is compared with a constant, assembled: in the usual case nothing is called.

In a restartable sequence (native/src/runtime/restart.S says what that promises) the code

     1  names the sequence to the kernel; in the child of a fork, and in a thread without such
        sequences, it has the runtime ask
     2  finds whether the text's page is known to be readable (texts.py)
     3  where a part of the text is compared, finds that it does not end before
     4  compares word by word, with the NUL behind the text where that has to end there

Several constants of one text (`name in ("GET", "SET")`) are one sequence, with steps 3 and 4 for
each. The words that are looked at have to be in that page. Otherwise, and if the sequence is
interrupted, the runtime is asked (native/src/runtime/ask.c). Nothing has been changed by then.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Self

from markerjit.abi import OP_BYTES, OP_STRING, RSEQ_CPU, RSEQ_SEQUENCE, RSEQ_SIGNATURE
from markerjit.probes.asked_texts import TextArgument, asked_text
from markerjit.probes.recorder import offset_of_thread
from markerjit.probes.texts import PAGE_MASK, Registers, known_page, nul_before, window_now
from markerjit.questions.ir import Constant, Node, TextTest, Value, whole_text
from markerjit.tuples import NamedTuple
from markerjit.x86.assemble import number, plus

LONGEST = 64
"""Bytes of a text that are looked at here: each word of a constant is an instruction or three."""

_WORD = 8
_PAGE = Registers("r10", "rdi", "r11", "r11d", "rdx")


class _Test(NamedTuple):
    """A comparison of the argument `arg` with these bytes, which the text has from the byte `low`
    on where the answer is yes; where it `ends`, there is a NUL behind them. It `has_length` where
    the argument before it is how many bytes it has at most: a negative one, a large one without a
    sign, is no limit."""

    arg: int
    low: int
    constant: bytes
    ends: bool
    has_length: bool

    @classmethod
    def of(cls, node: Node, texts: Mapping[str, TextArgument]) -> Self | None:
        """The comparison that a test is; None where it is another."""
        if not isinstance(node, TextTest):
            return None
        text, other = node.text, node.other
        if isinstance(text, Constant):
            text, other = other, text
        is_argument = isinstance(whole_text(text), Value)
        if node.operator not in ("==", "startswith") or not is_argument:
            return None
        if not isinstance(other, Constant) or not isinstance(other.value, bytes):
            return None
        asked, constant = asked_text(text, texts, {}), other.value
        room = asked.high - asked.low
        ends = node.operator == "==" and room > len(constant)
        end = asked.low + len(constant)
        if asked.op not in (OP_STRING, OP_BYTES) or b"\0" in constant or room < len(constant):
            return None
        if end + ends > min(asked.limit, LONGEST) or (asked.low and not constant):
            return None
        return cls(asked.arg, asked.low, constant, ends, asked.op == OP_BYTES)

    @property
    def end(self) -> int:
        """The byte behind the last one that is compared."""
        return self.low + len(self.constant)

    @property
    def reach(self) -> int:
        """Bytes of the text that are read, in whole words from `low` on."""
        return self.low + -(-(len(self.constant) + self.ends) // _WORD) * _WORD

    def lines(self, same: str, differs: str) -> Iterator[str]:
        """The code, with the text at r10, and its length in edi. It goes to a label, or on where
        the text is the same."""
        # The NUL behind a text with a length is looked at by itself, and only within the length.
        compared = self.constant + b"\0" * (self.ends and not self.has_length)
        if self.has_length:
            yield f"cmp edi, {number(self.end)}"
            yield f"jb {differs}"
        yield from nul_before(self.low, "r11", differs)  # 3
        yield from compare("r10", self.low, compared, "r11", differs)  # 4
        if self.has_length and self.ends:
            yield f"cmp edi, {number(self.end)}"
            yield f"je {same}"
            yield f"cmp byte ptr [r10{plus(self.end)}], 0"
            yield f"jne {differs}"


class Comparison(NamedTuple):
    """Comparisons of one argument, of which one has to say yes. `at` tells what is asked of texts
    apart."""

    at: int
    tests: Sequence[_Test]

    @classmethod
    def of(cls, at: int, nodes: Sequence[Node], texts: Mapping[str, TextArgument]) -> Self | None:
        """The comparisons that tests are; None where one is another, or of another argument."""
        tests = [test for node in nodes if (test := _Test.of(node, texts))]
        if len(tests) < len(nodes) or len({test.arg for test in tests}) > 1:
            return None
        return cls(at, tests)

    @property
    def data(self) -> Mapping[str, bytes]:
        """What the code refers to by name: nothing."""
        return {}

    def lines(self, arguments: int, rseq_offset: int) -> Iterator[str]:
        """The code, with the arguments so many bytes above rsp. It goes on at `answered` and its
        number with 1 in rax or 0, or behind itself where the runtime has to be asked. It changes
        rdx, rdi, r10 and r11, too."""
        at, slow, first = self.at, f"ask{self.at}", self.tests[0]
        yield from begin(at, "r10d", rseq_offset)  # 1
        yield from window_now(_PAGE.window)  # 2
        yield f"mov r10, qword ptr [rsp + {number(arguments + _WORD * first.arg)}]"
        yield from known_page(_PAGE, slow)
        yield "mov eax, r10d"
        yield f"and eax, {number(PAGE_MASK)}"
        yield f"cmp eax, {number(PAGE_MASK + 1 - max(test.reach for test in self.tests))}"
        yield f"ja {slow}"
        if first.has_length:
            yield f"mov edi, dword ptr [rsp + {number(arguments + _WORD * (first.arg - 1))}]"
        same, differs = labels_of(at)[1], f"differs{at}"
        for index, test in enumerate(self.tests[:-1]):
            yield from test.lines(same, f"other{at}_{index}")
            yield f"jmp {same}"
            yield f"other{at}_{index}:"
        yield from self.tests[-1].lines(same, differs)
        yield from answers(at)


def compare(base: str, low: int, constant: bytes, other: str, differs: str) -> Iterator[str]:
    """Go to `differs` unless the bytes at `low` from an address are these, compared word by word in
    rax and another register. Whole words are read."""
    for offset in range(0, len(constant), _WORD):
        word = constant[offset : offset + _WORD]
        behind = 8 * (_WORD - len(word))
        yield f"mov rax, qword ptr [{base}{plus(low + offset)}]"
        if behind:
            yield f"shl rax, {number(behind)}"
        yield f"movabs {other}, {number(int.from_bytes(word, 'little') << behind)}"
        yield f"cmp rax, {other}"
        yield f"jne {differs}"


def labels_of(at: int) -> tuple[str, str, str]:
    """Where the sequence of a comparison begins and ends, and where it goes on when it was
    interrupted."""
    return f"begun{at}", f"compared{at}", f"interrupted{at}"


def sequence_of(at: int) -> str:
    """The name of the sequence of a comparison."""
    return f"sequence{at}"


def rest_of(at: int) -> tuple[str, ...]:
    """What a comparison has behind all other code."""
    return interrupted(labels_of(at)[2], f"ask{at}")


def begin(at: int, register: str, rseq_offset: int) -> Iterator[str]:
    """The beginning of the sequence of a comparison, for which a register of 32 bits is changed,
    and rdx."""
    yield f"lea rdx, [rip + {sequence_of(at)}]"
    yield f"mov qword ptr fs:[{offset_of_thread(rseq_offset + RSEQ_SEQUENCE)}], rdx"
    yield f"{labels_of(at)[0]}:"
    yield f"mov {register}, dword ptr fs:[{offset_of_thread(rseq_offset + RSEQ_CPU)}]"
    yield f"cmp {register}, dword ptr [rip + alive]"
    yield f"jae ask{at}"


def answers(at: int) -> Iterator[str]:
    """The end of a comparison: yes, `differs` and its number, and where the runtime is asked."""
    yield f"{labels_of(at)[1]}:"
    yield "mov eax, 1"
    yield f"jmp answered{at}"
    yield f"differs{at}:"
    yield "xor eax, eax"
    yield f"jmp answered{at}"
    yield f"ask{at}:"


def interrupted(label: str, slow: str) -> tuple[str, ...]:
    """Where a sequence goes on when it was interrupted. The kernel jumps only to what has the
    signature before it. Here it is the operand of an instruction that is never executed, so that
    disassemblers keep in step. [librseq]"""
    return (f"nop dword ptr [rip + {number(RSEQ_SIGNATURE)}]", f"{label}:", f"jmp {slow}")
