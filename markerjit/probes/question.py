"""A question as code, which stands before a probe.

It is called as the probe is, by a preserving call (calls.py): the arguments are words on the stack,
and no register may change. Where the answer is yes it jumps to the probe, which finds everything as
if it had been called itself. Where the answer is no it returns.

     1  keep the registers that the code needs
     2  jump to `no` unless the condition is met (computed.py), and the brakes let it through
        (braking.py)
     3  have the registers back, and jump to the probe
     4  no: have the registers back, and return

A selection is computed into words of the code's own, and the probe is called with these: in place
of 3 the code

     5  computes the words
     6  makes a call of them as the body of a marker does (abi.h, struct mj_slot), and goes to `no`
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Self

from markerjit.abi import CALL_WORDS, PART_AGGREGATES, PART_READABLE, SHAPE_FLOATS
from markerjit.probes.before import SEQUENCE
from markerjit.probes.braking import Words
from markerjit.probes.compared import labels_of, rest_of, sequence_of
from markerjit.probes.computed import ASK, CLOCK, LOAD, STACK, Computing, Known, Line
from markerjit.questions.ir import Node
from markerjit.questions.types import Type
from markerjit.tuples import NamedTuple
from markerjit.x86.assemble import Movable, assemble_anywhere, displacement, number, plus

if TYPE_CHECKING:
    from markerjit.arena.arena import Arena

NO = "no"
"""The label at which the code goes on when the answer is no."""

_WORD, _VECTOR = 8, 16
_GENERAL = ("rax", "rcx", "rdx", "rdi", "r10", "r11")
_VECTORS = ("xmm15", "xmm14")
_CHANGED = {
    ASK: ("rax", "rdi", "r10", "r11"),
    LOAD: ("rax", "rdi", "r10", "r11"),
    CLOCK: ("rax", "rdi", "r10", "r11"),
    STACK: ("rax", "rdi", "r10", "r11"),
}
_MXCSR = 0x1F80
"""All exceptions masked, to the nearest, with denormal numbers: as a thread begins."""
_ALIKE, _LINES = 64, 4096
"""How many codes, and lines of them, are known from before."""
_OWN_CALL = 2
"""Words of a call before its arguments, without the return address: the shape and the slot."""
_NO_WORDS = Words()
_WIDE = {
    "eax": "rax", "al": "rax", "ecx": "rcx", "cl": "rcx", "edx": "rdx", "edi": "rdi",
    "r11d": "r11",
}  # fmt: skip


class Places(NamedTuple):
    """The addresses in an arena that the code uses: where it begins, the entries of aggregates, the
    word that says whether the process is alive, and the pages that are known to be readable."""

    arena: int = 0
    aggregates: int = 0
    alive: int = 0
    readable: int = 0

    @classmethod
    def of(cls, arena: Arena) -> Self:
        """Those of an arena."""
        parts = arena.geometry.parts
        aggregates, readable = parts[PART_AGGREGATES].offset, parts[PART_READABLE].offset
        return cls(arena.base, arena.base + aggregates, arena.alive, arena.base + readable)


_NO_PLACES = Places()


class Draft(NamedTuple):
    """The code of a question, and what it asks of texts, which stands behind it. Its `data` does,
    too, by name; and so do its restartable `sequences`, of which the labels are given: where each
    begins, where it ends, and where it goes on when it was interrupted."""

    lines: list[Line]
    asked: tuple[bytes, ...] = ()
    data: Mapping[str, bytes] = {}
    sequences: Mapping[str, tuple[str, str, str]] = {}


class Gates(NamedTuple):
    """The addresses of the runtime's gates."""

    ask: int
    load: int
    clock: int
    stack: int = 0

    @classmethod
    def of(cls, arena: Arena) -> Self:
        """The gates of the runtime in an arena."""
        entry = arena.entry
        gates = entry.gate_ask, entry.gate_load, entry.gate_clock, entry.gate_stack
        return cls(*(arena.base + at for at in gates))


def draft_of(
    condition: Node | None, known: Known, words: Sequence[Node] = (), brakes: Sequence[str] = ()
) -> Draft:
    """The code of a condition, or of none, and of brakes, before a probe, which is called with
    other `words` than those of the marker where there are some. Its labels are `no` and names of
    its own; the probe is `probe`, the gates have the names of `Gates`, the words of brakes those of
    `Words`, and what is asked of texts `text0` and so on.

    Raises Unsupported for what the process does not know.
    """
    draft = Computing(known, 0, 0)
    _compute(draft, condition, brakes, words, 0)
    frame = Frame.of(draft, own=_OWN_CALL + len(words) if words else 0)
    final = Computing(known, _WORD * frame.own, frame.to_words)
    _compute(final, condition, brakes, words, frame.to_words)
    to_probe = () if words else (*frame.back(), "jmp probe")
    lines = [
        *(Line(text, None) for text in frame.keep()),  # 1
        *final.lines,  # 2, 5, 6
        *(Line(text, None) for text in to_probe),  # 3
        *(Line(text, None) for text in (f"{NO}:", *frame.back(), "ret")),  # 4
    ]
    return finished(lines, final)


def finished(lines: Sequence[Line], computing: Computing) -> Draft:
    """The code with what its comparisons have behind it."""
    compared = computing.compared
    rest = [Line(text, None) for each in compared for text in rest_of(each.at)]
    sequences = {sequence_of(each.at): labels_of(each.at) for each in compared}
    data = {name: piece for each in compared for name, piece in each.data.items()}
    return Draft([*lines, *rest], tuple(computing.asked), data, sequences)


def _compute(
    computing: Computing,
    condition: Node | None,
    brakes: Sequence[str],
    words: Sequence[Node],
    arguments: int,
) -> None:
    if condition is not None:
        computing.jump(condition, NO, when=False)
    computing.lines += [Line(text, None) for text in brakes]
    for index, node in enumerate(words):
        computing.store(node, _WORD * (_OWN_CALL + index))
    if words:
        floats = sum(1 << at for at, node in enumerate(words) if node.type is Type.F64)
        computing.lines += [
            Line(text, None)
            for text in (
                f"mov rax, qword ptr [rsp + {number(max(arguments - _WORD, 0))}]",  # the slot
                f"mov qword ptr [rsp + {number(_WORD)}], rax",
                f"mov qword ptr [rsp], {number(len(words) | floats << SHAPE_FLOATS)}",
                "call probe",
            )
        ]


class Frame(NamedTuple):
    """The stack frame of a question: pushed general registers; below them, where it computes
    `floats`, the program's MXCSR; vector registers, and `words` of its own, of which the lowest
    `own` are a call of the probe."""

    pushed: tuple[str, ...]
    vectors: tuple[str, ...]
    words: int
    own: int
    floats: bool

    @classmethod
    def of(cls, draft: Computing, *changed: str, own: int = 0, floats: bool = False) -> Frame:
        """The frame of code that uses these registers and words, and changes others. With `floats`
        it computes some behind the draft."""
        computed = {register for line in draft.lines for register in _mentioned(line.text)}
        used = computed | {*changed}
        return cls(
            tuple(register for register in _GENERAL if register in used),
            tuple(register for register in _VECTORS if register in used),
            draft.most_words + own,
            own,
            floats or not computed.isdisjoint(_VECTORS),
        )

    @property
    def size(self) -> int:
        """Bytes below what is pushed."""
        control = _WORD if self.floats else 0
        return _WORD * self.words + _VECTOR * len(self.vectors) + control

    @property
    def to_words(self) -> int:
        """Bytes from rsp to the arguments."""
        return self.size + _WORD * len(self.pushed) + CALL_WORDS

    def keep(self) -> list[str]:
        """Keep the registers."""
        lines = ["endbr64", *(f"push {register}" for register in self.pushed)]
        if self.size:
            lines.append(f"sub rsp, {number(self.size)}")
        lines += [f"movups {place}, {register}" for place, register in self._places()]
        if self.floats:
            theirs, usual = self._controls()
            lines += [f"stmxcsr {theirs}", f"mov {usual}, {number(_MXCSR)}", f"ldmxcsr {usual}"]
        return lines

    def back(self) -> list[str]:
        """Restore the registers."""
        lines = [f"ldmxcsr {self._controls()[0]}"] if self.floats else []
        lines += [f"movups {register}, {place}" for place, register in self._places()]
        if self.size:
            lines.append(f"add rsp, {number(self.size)}")
        return [*lines, *(f"pop {register}" for register in reversed(self.pushed))]

    def _places(self) -> list[tuple[str, str]]:
        start = _WORD * self.words
        return [
            (f"xmmword ptr [rsp{plus(start + _VECTOR * index)}]", register)
            for index, register in enumerate(self.vectors)
        ]

    def _controls(self) -> tuple[str, str]:
        """Where the program's MXCSR is, and ours."""
        return (
            f"dword ptr [rsp + {number(self.size - _WORD)}]",
            f"dword ptr [rsp + {number(self.size - _WORD + 4)}]",
        )


class QuestionCode(NamedTuple):
    """The code of a question for any address, a multiple of eight, with data behind it that it
    refers to by name, each at a multiple of eight: among it the restartable `sequences`, whose
    labels are given. `names` are the addresses of all else that it refers to."""

    code: Movable
    data: Mapping[str, bytes]
    sequences: Mapping[str, tuple[str, str, str]]
    names: Mapping[str, int]

    def before(self, probe: int) -> Self:
        """The same code before another probe."""
        return self._replace(names={**self.names, "probe": probe})

    @property
    def size(self) -> int:
        """Bytes of it all."""
        return _behind(len(self.code.code), self.data)[1]

    def at(self, address: int) -> bytes:
        """The code for this address. Raises WronglyAssembled where it does not reach all names from
        there."""
        code, data = bytearray(self.code.code), dict(self.data)
        for name, labels in self.sequences.items():
            start, end, interrupted = (self.code.labels[label] for label in labels)
            data[name] = SEQUENCE.pack(0, 0, address + start, end - start, address + interrupted)
        offsets, size = _behind(len(code), data)
        places = {**self.names, **{name: address + at for name, at in offsets.items()}}
        for reference in self.code.references:
            distance = displacement(reference, address, places)
            code[reference.at : reference.at + len(distance)] = distance
        code.extend(bytes(size - len(code)))
        for name, piece in data.items():
            code[offsets[name] : offsets[name] + len(piece)] = piece
        return bytes(code)


def _behind(size: int, data: Mapping[str, bytes]) -> tuple[dict[str, int], int]:
    """Where each piece of data is behind so many bytes of code, and where the last one ends."""
    offsets = {}
    for name, piece in data.items():
        size += -size % _WORD
        offsets[name] = size
        size += len(piece)
    return offsets, size


def make_question(
    draft: Draft, probe: int, gates: Gates, words: Words = _NO_WORDS, places: Places = _NO_PLACES
) -> QuestionCode:
    """The code before a probe, with what it asks of texts behind it. Raises WronglyAssembled."""
    names = {**gates._asdict(), **places._asdict(), **words._asdict()}
    return make_code(draft, {"probe": probe, **names}, {})


def make_code(draft: Draft, names: Mapping[str, int], more: Mapping[str, bytes]) -> QuestionCode:
    """The code, with data that it refers to by name, its own and `more`. Raises
    WronglyAssembled."""
    asked = {f"text{index}": asked for index, asked in enumerate(draft.asked)}
    data = {**asked, **draft.data, **more}
    data |= dict.fromkeys(draft.sequences, bytes(SEQUENCE.size))
    made = _anywhere(tuple(line.text for line in draft.lines), (*names, *data))
    return QuestionCode(made, data, draft.sequences, names)


@lru_cache(_ALIKE)
def _anywhere(source: Sequence[str], names: Sequence[str]) -> Movable:
    """The code for any address. One question about thousands of markers has it assembled once: they
    differ in the data behind it."""
    return assemble_anywhere(source, names)


@lru_cache(_LINES)
def _mentioned(text: str) -> tuple[str, ...]:
    """The registers of an instruction that have to be kept."""
    if text.split()[0] in ("cqo", "div", "idiv"):
        return ("rax", "rdx")
    if text in _CHANGED:
        return _CHANGED[text]
    words = text.replace(",", " ").split()[1:]
    return tuple(_WIDE.get(word, word) for word in words)
