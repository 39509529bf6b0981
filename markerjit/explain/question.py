"""A question explained: its types for each marker, the typed expression, and the code that answers
it before a probe, with the part of the question that each instruction belongs to."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from markerjit.elf import parse_format
from markerjit.errors import Unsupported
from markerjit.model import Signature
from markerjit.probes.adding import ask_markers as ask_markers_to_add
from markerjit.probes.adding import draft_of_adding
from markerjit.probes.asking import (
    Process,
    ask_markers,
    draft_of_question,
    known_of,
    scope_of_marker,
)
from markerjit.probes.called import Runtime, code_of_call, numbers_of
from markerjit.probes.question import Gates, Places, make_question
from markerjit.questions import Lack, Question
from markerjit.questions.aggregates import Asked as Aggregate
from markerjit.questions.aggregates import Gathered, Shape, keys_of, parse_aggregate
from markerjit.questions.ir import show
from markerjit.session.functions import list_file_functions
from markerjit.session.members import as_reads_in_file
from markerjit.session.view import View
from markerjit.tuples import NamedTuple

_PROBE, _GATES = 0x20000, Gates(0x20100, 0x20200, 0x20300, 0x20400)
"""Arbitrary addresses: the code is the same, except for the distance of the probe."""

_RUNTIME = Runtime(_PROBE, _PROBE, _GATES, Places(), Process(), careful=False)


class CodeLine(NamedTuple):
    """An instruction or a label, and the part of the question that it belongs to; "" for what
    stands around the condition."""

    text: str
    part: str


class AskedMarker(NamedTuple):
    """A question as it is asked of one sort of events.

    types       of the marker's fields, by name
    expression  the typed expression, a line for each operation, its operands below it
    code        empty where there is none
    size        of the code, with what it asks of texts, bytes
    remark      why there is no expression, or no code; "" where there are both
    """

    marker: str
    types: dict[str, str]
    expression: tuple[str, ...]
    code: tuple[CodeLine, ...]
    size: int
    remark: str


class Texts(NamedTuple):
    """The subject of the explanation: a condition, or an aggregate such as "hist(size)" with its
    key and condition."""

    where: str | None = None
    aggregate: str | None = None
    by: str | None = None

    def explained(self, signatures: Sequence[Signature]) -> list[AskedMarker]:
        """The explanation for each of these signatures. Raises BadQuestion."""
        if self.aggregate is None:
            return explain_question(self.where or "", signatures)
        asked = parse_aggregate(self.aggregate, by=self.by, where=self.where)
        return explain_aggregate(asked, signatures)


def explain_of_functions(target: str | View, pattern: str, texts: Texts) -> list[AskedMarker]:
    """The explanation for the functions of a pattern, in a file or a process, with members of
    structures as reads of memory. Raises BadQuestion, and what `list_file_functions` and
    `View.functions` raise."""
    as_reads: Callable[[str, str], str]
    if isinstance(target, str):
        view, as_reads = list_file_functions(target, pattern), partial(as_reads_in_file, target)
    else:
        view, as_reads = target.functions(pattern), target.as_reads
    sites = [function.left or function.site for function in view.functions]
    reads = Texts(*(None if text is None else as_reads(pattern, text) for text in texts))
    return reads.explained(list(dict.fromkeys(site.signature for site in sites)))


def explain_question(text: str, signatures: Sequence[Signature]) -> list[AskedMarker]:
    """The question for each of these signatures. Raises BadQuestion."""
    return [
        _asked(signature, question)
        for signature, question in zip(signatures, ask_markers(text, signatures), strict=True)
    ]


def explain_aggregate(asked: Aggregate, signatures: Sequence[Signature]) -> list[AskedMarker]:
    """An aggregate for each of these signatures: what is computed before the runtime adds it up.
    Raises BadQuestion."""
    shape, markers = ask_markers_to_add(asked, signatures)
    return [
        _adding(asked, shape, signature, marker)
        for signature, marker in zip(signatures, markers, strict=True)
    ]


def _adding(
    asked: Aggregate, shape: Shape, signature: Signature, gathered: Gathered | Lack
) -> AskedMarker:
    types = _types(signature)
    if isinstance(gathered, Lack):
        remark = f"it adds nothing: no {gathered.name}"
        return AskedMarker(signature.name, types, (), (), 0, remark)
    texts = [asked.where or ""]  # of condition, parts of the key, and value, as they are computed
    expression: list[str] = []
    if gathered.condition is not None:
        expression += ["condition", *(f"  {line}" for line in show(gathered.condition))]
    parts = keys_of(asked.by) if asked.by is not None else []
    nodes = [("key", part, node) for part, node in zip(parts, gathered.key, strict=True)]
    nodes += [("value", asked.value, gathered.value)] if gathered.value is not None else []
    for what, text, node in nodes:
        expression += [what, *(f"  {line}" for line in show(node))]
        texts += [text] * len(numbers_of([node]))
    known = known_of(signature, Process(), careful=False)
    try:
        draft = draft_of_adding(gathered, shape, known)
        made = code_of_call(draft, _RUNTIME, _PROBE, b"")
    except Unsupported as reason:
        return AskedMarker(signature.name, types, tuple(expression), (), 0, str(reason))
    code = tuple(
        CodeLine(line.text, texts[line.source][slice(*line.span)] if line.span else "")
        for line in draft.lines
    )
    return AskedMarker(signature.name, types, tuple(expression), code, made.size, "")


def _types(signature: Signature) -> dict[str, str]:
    scope = scope_of_marker(signature)
    fields = parse_format(signature.format, signature.args)
    return {field.name: str(scope.types[field.name]) for field in fields}


def _asked(signature: Signature, question: Question | Lack) -> AskedMarker:
    types = _types(signature)
    if isinstance(question, Lack):
        remark = f"no event meets the condition: no {question.name}"
        return AskedMarker(signature.name, types, (), (), 0, remark)
    expression = tuple(show(question.condition))
    try:
        code, size = _code(question, signature)
    except Unsupported as reason:
        return AskedMarker(signature.name, types, expression, (), 0, str(reason))
    return AskedMarker(signature.name, types, expression, code, size, "")


def _code(question: Question, signature: Signature) -> tuple[tuple[CodeLine, ...], int]:
    draft = draft_of_question(question, signature)
    made = make_question(draft, _PROBE, _GATES)
    shown = tuple(
        CodeLine(line.text, question.text[slice(*line.span)] if line.span else "")
        for line in draft.lines
    )
    return shown, made.size
