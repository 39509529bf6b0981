"""A question before a probe: the names that it may use, the markers that it can be asked of, and
its code.

It is asked in the process with the arguments of the marker alone. The clock, the thread and the CPU
are known when an event is recorded, and later.
"""

from __future__ import annotations

from collections.abc import Sequence

from markerjit.elf import parse_format
from markerjit.errors import BadQuestion
from markerjit.model import Signature
from markerjit.probes.question import Line, lines_of, make_question
from markerjit.questions import Lack, Question, Scope, ask, scope_of
from markerjit.questions.scope import CALLER, CPU, TID, TIME

_UNKNOWN = "the code of a question has the arguments only"
_MEMORY = "the code of a question reads none yet"


def ask_markers(text: str, signatures: Sequence[Signature]) -> list[Question | Lack]:
    """The question for each of these markers. Raises BadQuestion."""
    return ask(text, [scope_of_marker(signature) for signature in signatures])


def scope_of_marker(signature: Signature) -> Scope:
    """The names that a question has before a probe of this marker."""
    fields = parse_format(signature.format, signature.args)
    unknown = dict.fromkeys((TIME, TID, CPU, CALLER), _UNKNOWN)
    return scope_of(signature.name, fields, unknown, _MEMORY)


def lines_of_question(question: Question, signature: Signature) -> list[Line]:
    """The code of a question, line by line. Raises Unsupported for what is no number."""
    fields = parse_format(signature.format, signature.args)
    return lines_of(question.condition, {field.name: field.arg for field in fields})


def code_of(signature: Signature, text: str, address: int, probe: int) -> bytes:
    """The code that asks a question of a marker, at an address, and goes on to a probe. Raises
    BadQuestion and Unsupported."""
    (question,) = ask_markers(text, [signature])
    if isinstance(question, Lack):
        sentence = f"{signature.name} has no field {question.name}"
        raise BadQuestion(sentence, text, 0, 0)
    return make_question(lines_of_question(question, signature), address, probe).code
