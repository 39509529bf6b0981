"""A text that is compared with a constant, assembled: in the usual case nothing is called.

In a restartable sequence (native/src/runtime/restart.S says what that promises) the code

     1  names the sequence to the kernel; in the child of a fork, and in a thread without such
        sequences, it has the runtime ask
     2  finds whether the text's page is known to be readable (texts.py)
     3  compares word by word, with the NUL behind the text where all of it is meant

The words that are compared have to be in that page. Otherwise, and if the sequence is interrupted,
the runtime is asked (native/src/runtime/ask.c). Nothing has been changed by then.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Self

from markerjit.abi import OP_BYTES, OP_STRING, RSEQ_CPU, RSEQ_SEQUENCE, RSEQ_SIGNATURE
from markerjit.probes.asked_texts import TextArgument
from markerjit.probes.recorder import offset_of_thread
from markerjit.probes.texts import PAGE_MASK, Registers, known_page, window
from markerjit.questions.ir import Constant, TextTest, Unary, Value
from markerjit.tuples import NamedTuple
from markerjit.x86.assemble import number, plus

LONGEST = 64
"""Bytes of a constant that are compared here: each word is an instruction or three."""

_WORD = 8
_PAGE = Registers("r10", "rdi", "r11", "r11d", "rdx")


class Comparison(NamedTuple):
    """A comparison of the argument `arg` with these bytes, which the text begins with where the
    answer is yes; where `whole`, it also ends with them. It `has_length` where the argument before
    it is how many bytes it has at most. `at` tells comparisons apart."""

    at: int
    arg: int
    bytes: bytes
    whole: bool
    has_length: bool

    @classmethod
    def of(cls, at: int, node: TextTest | Unary, text: TextArgument | None) -> Self | None:
        """The comparison that a test is; None where it is another."""
        constant = constant_of(node)
        if constant is None or text is None or text.op not in (OP_STRING, OP_BYTES):
            return None
        assert isinstance(node, TextTest)
        whole, has_length = node.operator == "==", text.op == OP_BYTES
        if b"\0" in constant or len(constant) + whole > min(text.limit, LONGEST):
            return None
        return cls(at, text.arg, constant, whole, has_length)

    @property
    def labels(self) -> tuple[str, str, str]:
        """Where its sequence begins and ends, and where it goes on when it was interrupted."""
        return f"begun{self.at}", f"compared{self.at}", f"interrupted{self.at}"

    @property
    def sequence(self) -> str:
        """The name of its sequence."""
        return f"sequence{self.at}"

    def lines(self, arguments: int, rseq_offset: int) -> Iterator[str]:
        """The code, with the arguments so many bytes above rsp. It goes on at `answered` and its
        number with 1 in rax or 0, or behind itself where the runtime has to be asked. It changes
        rdx, rdi, r10 and r11, too."""
        begun, compared, _ = self.labels
        slow, differs = f"ask{self.at}", f"differs{self.at}"
        # The NUL behind a text with a length is looked at by itself, and only within the length.
        compared_bytes = self.bytes + b"\0" * (self.whole and not self.has_length)
        size = -(-(len(self.bytes) + self.whole) // _WORD) * _WORD
        yield f"lea rdx, [rip + {self.sequence}]"  # 1
        yield f"mov qword ptr fs:[{offset_of_thread(rseq_offset + RSEQ_SEQUENCE)}], rdx"
        yield f"{begun}:"
        yield f"mov r10d, dword ptr fs:[{offset_of_thread(rseq_offset + RSEQ_CPU)}]"
        yield "cmp r10d, dword ptr [rip + alive]"
        yield f"jae {slow}"
        yield from ("rdtsc", "shl rdx, 0x20", "or rax, rdx", *window(_PAGE.window))  # 2
        yield f"mov r10, qword ptr [rsp + {number(arguments + _WORD * self.arg)}]"
        yield from known_page(_PAGE, slow)
        yield "mov eax, r10d"
        yield f"and eax, {number(PAGE_MASK)}"
        yield f"cmp eax, {number(PAGE_MASK + 1 - size)}"
        yield f"ja {slow}"
        if self.has_length:
            length = f"dword ptr [rsp + {number(arguments + _WORD * (self.arg - 1))}]"
            yield f"mov edi, {length}"
            yield "test edi, edi"
            yield f"js {slow}"
            yield f"cmp edi, {number(len(self.bytes))}"
            yield f"jb {differs}"
        for offset in range(0, len(compared_bytes), _WORD):  # 3
            word = compared_bytes[offset : offset + _WORD]
            behind = 8 * (_WORD - len(word))
            yield f"mov rax, qword ptr [r10{plus(offset)}]"
            if behind:
                yield f"shl rax, {number(behind)}"
            yield f"movabs r11, {number(int.from_bytes(word, 'little') << behind)}"
            yield "cmp rax, r11"
            yield f"jne {differs}"
        if self.has_length and self.whole:
            yield f"cmp edi, {number(len(self.bytes))}"
            yield f"je {compared}"
            yield f"cmp byte ptr [r10{plus(len(self.bytes))}], 0"
            yield f"jne {differs}"
        yield f"{compared}:"
        yield "mov eax, 1"
        yield f"jmp answered{self.at}"
        yield f"{differs}:"
        yield "xor eax, eax"
        yield f"jmp answered{self.at}"
        yield f"{slow}:"

    def interrupted(self) -> tuple[str, ...]:
        """What stands behind all other code."""
        return interrupted(self.labels[2], f"ask{self.at}")


def interrupted(label: str, slow: str) -> tuple[str, ...]:
    """Where a sequence goes on when it was interrupted. The kernel jumps only to what has the
    signature before it. Here it is the operand of an instruction that is never executed, so that
    disassemblers keep in step. [librseq]"""
    return (f"nop dword ptr [rip + {number(RSEQ_SIGNATURE)}]", f"{label}:", f"jmp {slow}")


def constant_of(node: TextTest | Unary) -> bytes | None:
    """The constant that an argument is compared with; None where the test is another."""
    if not isinstance(node, TextTest) or node.operator not in ("==", "startswith"):
        return None
    sides = (node.text, node.other)
    constants = [side.value for side in sides if isinstance(side, Constant)]
    if len(constants) != 1 or not any(isinstance(side, Value) for side in sides):
        return None
    (constant,) = constants
    assert isinstance(constant, bytes)
    return constant


def argument_of(node: TextTest | Unary) -> str:
    """The name of the argument that is compared; "" where there is none."""
    sides = (node.text, node.other) if isinstance(node, TextTest) else ()
    return next((side.name for side in sides if isinstance(side, Value)), "")
