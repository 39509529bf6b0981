"""A question before a probe: the names that it may use, the markers that it can be asked of, and
its code.

It is asked in the process, with the arguments of the marker and the thread's id. The clock and the
CPU are known when an event is recorded, and later.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from markerjit.elf import parse_format
from markerjit.errors import BadQuestion
from markerjit.model import Signature
from markerjit.probes.asked_texts import texts_of
from markerjit.probes.question import TID_OFFSET, Draft, draft_of, make_question
from markerjit.questions import Lack, Question, Scope, ask, ask_again, scope_of
from markerjit.questions.scope import CALLER, CPU, TIME

_UNKNOWN = "the code of a question has the arguments and the thread only"
_MEMORY = "the code of a question reads none yet"


def ask_markers(text: str, signatures: Sequence[Signature]) -> list[Question | Lack]:
    """The question for each of these markers. Raises BadQuestion."""
    return ask(text, [scope_of_marker(signature) for signature in signatures])


def scope_of_marker(signature: Signature) -> Scope:
    """The names that a question has before a probe of this marker."""
    fields = parse_format(signature.format, signature.args)
    unknown = dict.fromkeys((TIME, CPU, CALLER), _UNKNOWN)
    return scope_of(signature.name, fields, unknown, _MEMORY)


def draft_of_question(
    question: Question,
    signature: Signature,
    *,
    tid_offset: int = TID_OFFSET,
    careful: bool = False,
) -> Draft:
    """The code of a question, line by line. `tid_offset` is where from its fs base a thread has its
    id, negative where that is not known. Raises Unsupported where it has none."""
    fields = parse_format(signature.format, signature.args)
    arguments = {field.name: field.arg for field in fields}
    texts = texts_of(signature, careful=careful)
    return draft_of(question.condition, arguments, texts, tid_offset)


class Behind(NamedTuple):
    """What the code of a question goes on to, and has of the runtime: its gate for texts, and where
    from its fs base a thread has its id. `careful` says how texts are read."""

    probe: int
    ask: int
    tid_offset: int
    careful: bool


def code_of(signature: Signature, text: str, address: int, behind: Behind) -> bytes:
    """The code that asks a question of a marker, at an address. Raises BadQuestion and
    Unsupported."""
    question = ask_again(text, scope_of_marker(signature))
    if isinstance(question, Lack):
        sentence = f"{signature.name} has no field {question.name}"
        raise BadQuestion(sentence, text, 0, 0)
    draft = draft_of_question(
        question, signature, tid_offset=behind.tid_offset, careful=behind.careful
    )
    return make_question(draft, address, behind.probe, behind.ask)
