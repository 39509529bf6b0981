"""A question explained: its types for each marker, the typed expression, and the code that answers
it before a probe, with the part of the question that each instruction belongs to."""

from __future__ import annotations

from collections.abc import Sequence

from markerjit.elf import parse_format
from markerjit.errors import Unsupported
from markerjit.model import Signature
from markerjit.probes.asking import ask_markers, draft_of_question, scope_of_marker
from markerjit.probes.question import Gates, make_question
from markerjit.questions import Lack, Question
from markerjit.questions.ir import show
from markerjit.session.functions import list_file_functions
from markerjit.session.members import as_reads_in_file
from markerjit.session.view import View
from markerjit.tuples import NamedTuple

_ADDRESS, _PROBE, _GATES = 0x10000, 0x20000, Gates(0x20100, 0x20200, 0x20300)
"""Somewhere: the code is the same everywhere, but for the distance of the probe."""


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


def explain_of_functions(target: str | View, pattern: str, text: str) -> list[AskedMarker]:
    """The question for the functions of a pattern, of a file or a process, with members of
    structures as reads of memory. Raises BadQuestion, and what `list_file_functions` and
    `View.functions` raise."""
    if isinstance(target, str):
        view, reads = list_file_functions(target, pattern), as_reads_in_file(target, pattern, text)
    else:
        view, reads = target.functions(pattern), target.as_reads(pattern, text)
    sites = [function.left or function.site for function in view.functions]
    return explain_question(reads, list(dict.fromkeys(site.signature for site in sites)))


def explain_question(text: str, signatures: Sequence[Signature]) -> list[AskedMarker]:
    """The question for each of these signatures. Raises BadQuestion."""
    return [
        _asked(signature, question)
        for signature, question in zip(signatures, ask_markers(text, signatures), strict=True)
    ]


def _asked(signature: Signature, question: Question | Lack) -> AskedMarker:
    scope = scope_of_marker(signature)
    fields = parse_format(signature.format, signature.args)
    types = {field.name: str(scope.types[field.name]) for field in fields}
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
    made = make_question(draft, _ADDRESS, _PROBE, _GATES)
    shown = tuple(
        CodeLine(line.text, question.text[slice(*line.span)] if line.span else "")
        for line in draft.lines
    )
    return shown, len(made)
