"""A question before a probe: the names that it may use, the markers that it suits, and its code.

It is asked in the process, with the arguments of the marker, its memory, and what the thread, the
CPU and the clock say at that moment.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Self

from markerjit.elf import parse_format
from markerjit.errors import BadQuestion, Unsupported
from markerjit.model import Signature
from markerjit.patch.where import Where
from markerjit.probes.asked_texts import texts_of
from markerjit.probes.braking import Rows, Words, braking
from markerjit.probes.computed import TID_OFFSET, Known
from markerjit.probes.question import (
    NO,
    Draft,
    Gates,
    Places,
    QuestionCode,
    draft_of,
    make_question,
)
from markerjit.probes.record import words_to_stack
from markerjit.probes.selecting import Columns, columns, columns_of, lengths_of
from markerjit.questions import Lack, Question, Scope, ask, ask_again, scope_of
from markerjit.questions.ir import Node
from markerjit.questions.scope import CALLER, STACK, hidden
from markerjit.questions.selection import Selection, select
from markerjit.questions.types import Type
from markerjit.ring.brakes import NO_BRAKES, Brakes
from markerjit.tuples import NamedTuple

if TYPE_CHECKING:
    from markerjit.arena.arena import Arena

_NO_CALLER = "only the entry and the returns of a function have a caller"
_FUNCTION = "func:"
_IN_STUBS = ":"
"""The separator in the names of sites that no compiler prepared."""


def ask_markers(text: str, signatures: Sequence[Signature]) -> list[Question | Lack]:
    """The question for each of these markers. Raises BadQuestion."""
    return ask(text, [scope_of_marker(signature) for signature in signatures])


class Asked(NamedTuple):
    """A question of one marker: its condition, and the words of a selection."""

    question: Question | None
    words: Sequence[Node]


def ask_where(where: Where, signatures: Sequence[Signature]) -> list[Asked | Lack]:
    """The question for each of these markers, with its selection. Raises BadQuestion."""
    scopes = [scope_of_marker(signature) for signature in signatures]
    conditions: Sequence[Question | Lack | None] = [None] * len(scopes)
    if where.has_condition:
        conditions = ask(where.text, scopes)
    selections: Sequence[Selection | Lack] = [()] * len(scopes)
    if where.select is not None:
        selections = select(where.select, scopes)
    made: list[Asked | Lack] = []
    for signature, question, selection in zip(signatures, conditions, selections, strict=True):
        if isinstance(question, Lack):
            made.append(question)
        elif isinstance(selection, Lack):
            made.append(selection)
        else:
            made.append(Asked(question, columns(selection, signature).words))
    return made


def scope_of_marker(signature: Signature) -> Scope:
    """The names that a question has before a probe of this marker."""
    fields = parse_format(signature.format, signature.args)
    if _is_of_function(signature):
        more = {CALLER: Type.POINTER, STACK: Type.STACK}
        return scope_of(signature.name, fields, {}, more=more)
    return scope_of(signature.name, fields, {CALLER: _NO_CALLER}, more={STACK: Type.STACK})


def _is_of_function(signature: Signature) -> bool:
    """Whether the event is the entry of a function, or one of its exits."""
    return signature.name.startswith(_FUNCTION)


class Process(NamedTuple):
    """What the code of a question has to know of the process (computed.Known, braking.Rows)."""

    tid_offset: int = TID_OFFSET
    has_clock: bool = True
    rows: Rows = Rows()
    ticks_per_s: int = 0

    @classmethod
    def of(cls, arena: Arena, ticks_per_s: int = 0) -> Self:
        """The process of an arena. Its code reads the time stamp counter if that has so many ticks
        in a second."""
        has_clock = bool(arena.facts.clock)
        return cls(int(arena.facts.tid_offset), has_clock, Rows.of(arena), ticks_per_s)


_ANY_PROCESS = Process()


def draft_of_question(
    question: Question | None,
    signature: Signature,
    *,
    words: Sequence[Node] = (),
    process: Process = _ANY_PROCESS,
    careful: bool = False,
    brakes: Brakes = NO_BRAKES,
) -> Draft:
    """The code of a question, line by line, before a probe that is called with these words, or with
    those of the marker, where the brakes let it through. Raises Unsupported where it has none."""
    condition = question.condition if question else None
    if brakes.at_most and not process.ticks_per_s and not process.has_clock:
        raise Unsupported("this process has no clock that we know, so a rate cannot be kept")
    code = braking(brakes, process.rows, NO, process.ticks_per_s)
    return draft_of(condition, known_of(signature, process, careful), words, code)


def known_of(signature: Signature, process: Process, careful: bool) -> Known:
    """What the code of a question has to know of its marker and process."""
    fields = parse_format(signature.format, signature.args)
    arguments = {**{field.name: field.arg for field in fields}, **lengths_of(signature)}
    if _is_of_function(signature):
        arguments[hidden(CALLER)] = words_to_stack(signature)
        arguments.setdefault(CALLER, arguments[hidden(CALLER)])
    return Known(
        arguments, texts_of(signature), process.tid_offset, process.has_clock, careful,
        is_stub=_IN_STUBS in signature.name, rseq_offset=process.rows.rseq_offset,
    )  # fmt: skip


def recorded_signature(signature: Signature, select: str | None) -> Signature:
    """The signature of the events that are recorded of a marker: that of a selection, or its own.
    Raises BadQuestion."""
    return signature if select is None else recorded_selection(signature, select).signature


def recorded_selection(signature: Signature, select: str) -> Columns:
    """What a selection records of a marker. Raises BadQuestion."""
    return columns_of(select, signature, scope_of_marker(signature), is_again=True)


class Behind(NamedTuple):
    """The addresses that the code of a question uses: the probe, and parts of the runtime, the
    process, the marker's entry and the arena. `careful` says how memory is read."""

    probe: int
    gates: Gates
    process: Process
    careful: bool
    words: Words
    places: Places


def code_of(signature: Signature, where: Where, behind: Behind) -> QuestionCode:
    """The code that asks a question of a marker. Raises BadQuestion and Unsupported."""
    scope = scope_of_marker(signature)
    question: Question | Lack | None = None
    words: Sequence[Node] = ()
    if where.has_condition:
        question = ask_again(where.text, scope)
    if isinstance(question, Lack):
        sentence = f"{signature.name} has no field {question.name}"
        raise BadQuestion(sentence, where.text, 0, 0)
    if where.select is not None:
        words = columns_of(where.select, signature, scope, is_again=True).words
    draft = draft_of_question(
        question, signature, words=words, process=behind.process, careful=behind.careful,
        brakes=where.brakes,
    )  # fmt: skip
    return make_question(draft, behind.probe, behind.gates, behind.words, behind.places)
