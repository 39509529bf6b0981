"""The code of a marker that, in place of a probe, computes numbers and calls a function of the
runtime with them: aggregate.c and pair.c.

It is called as a probe is, by a preserving call (calls.py).

     1  keep the registers that the code needs
     2  go to `no` unless the condition is met (computed.py)
     3  compute the numbers into words of the stack; if a number can be missing, a word behind them
        says whether one was
     4  in the usual case, do without the runtime (usual.py), and go to `no`
     5  call the runtime. What it is to do stands behind the code
     6  no: have the registers back, and return

What this does not do: say what the function does (adding.py, pairing.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from markerjit.abi import (
    KEY_CONSTANT,
    KEY_NUMBER,
    KEY_TEXT,
    KEY_TEXT_AT,
    AskedText,
    KeyPart,
    MarkerEntry,
)
from markerjit.arena.arena import Arena
from markerjit.probes.asked_texts import asked_text
from markerjit.probes.asking import Process
from markerjit.probes.computed import Computing, Known, Line
from markerjit.probes.question import (
    NO,
    Draft,
    Frame,
    Gates,
    Places,
    QuestionCode,
    finished,
    make_code,
)
from markerjit.probes.usual import INTERRUPTED, LABELS, SEQUENCE, Usual
from markerjit.questions.aggregates import KeyPart as Part
from markerjit.questions.ir import Constant, Node, TextAt, may_be_missing, whole_text
from markerjit.questions.types import Type
from markerjit.tuples import NamedTuple
from markerjit.x86.assemble import number, plus

_CALL = "call runtime"
_WORD = 8
_CHANGED = ("rax", "rdi", "r10", "r11")
"""By the gate."""
_ALIKE = 64


class Runtime(NamedTuple):
    """The addresses of the runtime and the process that the code uses."""

    aggregate: int
    pair: int
    gates: Gates
    places: Places
    process: Process
    careful: bool


def runtime_of(arena: Arena, *, careful: bool) -> Runtime:
    """The runtime in an arena."""
    return Runtime(
        arena.base + arena.entry.gate_aggregate,
        arena.base + arena.entry.gate_pair,
        Gates.of(arena),
        Places.of(arena),
        Process.of(arena),
        careful,
    )


class Number(NamedTuple):
    """A number that is computed. The address of a text is never missing; the text itself may be.
    `flag` selects the word behind the numbers that tells that this number was missing."""

    node: Node
    is_address: bool = False
    flag: int = 0


def numbers_of(nodes: Sequence[Node], *, flag: int = 0) -> list[Number]:
    """The values computed for parts of a key, or for fields: numbers, and the addresses of texts in
    memory."""
    numbers = []
    for node in nodes:
        whole = whole_text(node)
        if isinstance(whole, TextAt):
            numbers.append(Number(whole.address, is_address=True, flag=flag))
        elif node.type is not Type.TEXT:
            numbers.append(Number(node, flag=flag))
    return numbers


def draft_of_call(
    condition: Node | None, numbers: Sequence[Number], known: Known, usual: Usual | None = None
) -> Draft:
    """The code. Raises Unsupported for what the process does not know."""
    draft = _computed(condition, numbers, known, 0)
    changed = usual.needs if usual else _CHANGED
    frame = Frame.of(draft, *changed, floats=usual is not None and usual.change.adds_floats)
    words = frame.words + len(numbers) + len(_flags(numbers))
    frame = frame._replace(words=words + (usual.words if usual else 0))
    final = _computed(condition, numbers, known, frame.to_words)
    lines = [
        *(Line(text, None) for text in frame.keep()),  # 1
        *final.lines,  # 2, 3
        *(_usual_lines(usual, _WORD * words, frame.to_words) if usual else ()),  # 4
        Line("lea rdi, [rip + how]", None),  # 5
        Line(f"lea r10, [rsp + {number(frame.to_words)}]", None),
        Line("mov r11, rsp", None),
        Line(_CALL, None),
        *(Line(text, None) for text in (f"{NO}:", *frame.back(), "ret")),  # 6
        *(Line(text, None) for text in (INTERRUPTED if usual else ())),
    ]
    made = finished(lines, final)
    if usual is None:
        return made
    sequences = {**made.sequences, SEQUENCE: LABELS}
    return made._replace(data={**made.data, **usual.data()}, sequences=sequences)


@lru_cache(_ALIKE)
def _usual_lines(usual: Usual, room: int, arguments: int) -> tuple[Line, ...]:
    """The code of the usual case, which depends neither on the condition nor on the marker."""
    return tuple(Line(text, None) for text in usual.lines(room, arguments))


def code_of_call(
    draft: Draft, runtime: Runtime, function: int, how: bytes, marker: int = 0
) -> QuestionCode:
    """The code, which calls this function of the runtime. `marker` is the address of the marker's
    entry, where an aggregate is added to."""
    names = {
        "runtime": function,
        **runtime.gates._asdict(),
        **runtime.places._asdict(),
        "ticket": marker + MarkerEntry.aggregate.offset,
    }
    return make_code(draft, names, {"how": how})


def missing_at(numbers: Sequence[Number], flag: int = 0) -> int:
    """The index, plus 1, of the word that says whether a number with this flag was missing; 0 where
    none can be."""
    flags = _flags(numbers)
    return len(numbers) + 1 + flags.index(flag) if flag in flags else 0


def _flags(numbers: Sequence[Number]) -> list[int]:
    """The flags that can be set, each of which has a word."""
    can_be = (each for each in numbers if not each.is_address and may_be_missing(each.node))
    return sorted({each.flag for each in can_be})


def parts_of(
    nodes: Sequence[Node], parts: Sequence[Part], known: Known, size: int
) -> tuple[list[KeyPart], bytes]:
    """Parts of a key, or fields, for the runtime, and the constant texts among them, which stand
    behind a structure of this size."""
    made = []
    constants = b""
    for node, part in zip(nodes, parts, strict=True):
        if part.type is not Type.TEXT:
            made.append(KeyPart(KEY_NUMBER, 1))
        elif isinstance(node, Constant):
            made.append(KeyPart(KEY_CONSTANT, part.words, size + len(constants)))
            constants += _constant_words(node, part.words)
        else:
            kind = KEY_TEXT_AT if isinstance(whole_text(node), TextAt) else KEY_TEXT
            made.append(KeyPart(kind, part.words, 0, _text(node, part.size, known)))
    return made, constants


def _computed(
    condition: Node | None, numbers: Sequence[Number], known: Known, words: int
) -> Computing:
    """The numbers, in the words from rsp on; what is kept meanwhile is above them."""
    flags_at = {flag: _WORD * (missing_at(numbers, flag) - 1) for flag in _flags(numbers)}
    computing = Computing(known, _WORD * (len(numbers) + len(flags_at)), words)
    if condition:
        computing.jump(condition, NO, when=False)
    for flag_at in flags_at.values():
        computing.lines.append(Line(f"mov qword ptr [rsp{plus(flag_at)}], {number(0)}", None))
    for at, (node, is_address, flag) in enumerate(numbers):
        computing.source = at + 1
        computing.store(node, _WORD * at, None if is_address else flags_at.get(flag))
    return computing


def _text(node: Node, size: int, known: Known) -> AskedText:
    """A text of a key. It is too long behind `size` bytes, also where its words have room for more:
    the runtime then sees a text that is cut before its end."""
    whole = whole_text(node)
    # The address is among the numbers.
    asked = asked_text(node, known.texts, {whole: 0} if isinstance(whole, TextAt) else {})
    if asked.high > asked.low + size:
        asked.limit = min(asked.limit, asked.low + size)
    return asked


def _constant_words(node: Constant, words: int) -> bytes:
    assert isinstance(node.value, bytes)
    text = len(node.value).to_bytes(_WORD, "little") + node.value
    return text.ljust(_WORD * words, b"\0")
