"""The code of a marker that adds to an aggregate.

It computes the numbers of the key, and the value (called.py), and adds the usual event itself
(usual.py). Any other it has the runtime add up (native/src/runtime/aggregate.c), which also puts
together the texts of the key. A struct
mj_aggregation behind the code tells the runtime what to do.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence

from markerjit.abi import (
    KEY_CONSTANT,
    KEY_NUMBER,
    KEY_TEXT,
    MAX_KEY_PARTS,
    VALUE_FLOAT,
    VALUE_NONE,
    VALUE_SIGNED,
    VALUE_UNSIGNED,
    Aggregation,
    KeyPart,
)
from markerjit.errors import BadQuestion
from markerjit.events.aggregates import flags_of
from markerjit.model import RemoteAddress, Signature
from markerjit.patch.request import AddUp
from markerjit.probes.asking import known_of, scope_of_marker
from markerjit.probes.called import (
    Number,
    Runtime,
    code_of_call,
    draft_of_call,
    missing_at,
    numbers_of,
    parts_of,
)
from markerjit.probes.changes import Change
from markerjit.probes.computed import Known
from markerjit.probes.key_texts import TextPart
from markerjit.probes.question import Draft, QuestionCode
from markerjit.probes.usual import ConstantPart, NumberPart, Part, Usual
from markerjit.questions import Lack
from markerjit.questions.aggregates import Aggregated as AskedOfMarkers
from markerjit.questions.aggregates import (
    Asked,
    Gathered,
    Shape,
    ask_aggregate,
    gathered_again,
)
from markerjit.questions.types import Type

_WORD = 8
_VALUES = {
    None: VALUE_NONE,
    Type.I64: VALUE_SIGNED,
    Type.U64: VALUE_UNSIGNED,
    Type.F64: VALUE_FLOAT,
}


def ask_markers(asked: Asked, signatures: Sequence[Signature]) -> AskedOfMarkers:
    """The aggregate of these markers. Raises BadQuestion."""
    return ask_aggregate(asked, [scope_of_marker(signature) for signature in signatures])


def draft_of_adding(gathered: Gathered, shape: Shape, known: Known) -> Draft:
    """The code. Raises Unsupported for a value that the process cannot supply."""
    usual = _usual(gathered, shape, known)
    return draft_of_call(gathered.condition, _numbers(gathered), known, usual)


def code_of(
    signature: Signature, probe: AddUp, marker: RemoteAddress, runtime: Runtime
) -> QuestionCode:
    """The code of a marker whose entry is at `marker`. Raises BadQuestion and Unsupported."""
    gathered = gathered_again(probe.asked, scope_of_marker(signature), probe.shape)
    if isinstance(gathered, Lack):
        sentence = f"{signature.name} has no field {gathered.name}"
        raise BadQuestion(sentence, str(probe.asked), 0, 0)
    known = known_of(signature, runtime.process, runtime.careful)
    how = _aggregation(gathered, probe.shape, known, marker)
    draft = draft_of_adding(gathered, probe.shape, known)
    return code_of_call(draft, runtime, runtime.aggregate, how, marker)


def _numbers(gathered: Gathered) -> list[Number]:
    """What is computed: the numbers of the key, and then the value."""
    return numbers_of([*gathered.key, *((gathered.value,) if gathered.value else ())])


def _usual(gathered: Gathered, shape: Shape, known: Known) -> Usual | None:
    """The case that needs no call. None where each event does: a text is read with care, or from
    where a number says, or there are no restartable sequences."""
    if not known.rseq_offset:
        return None
    parts, constants = parts_of(gathered.key, shape.key, known, 0)
    key: list[Part] = []
    numbers = 0
    for part in parts:
        if part.kind == KEY_NUMBER:
            key.append(NumberPart(numbers))
            numbers += 1
        elif part.kind == KEY_CONSTANT:
            end = part.constant + _WORD * part.words
            key.append(ConstantPart(constants[part.constant : end]))
        else:
            text = TextPart.of(part.text, part.words) if part.kind == KEY_TEXT else None
            if text is None or known.careful:
                return None
            key.append(text)
    flags = 0 if shape.scale else flags_of(shape.does)
    change = Change(flags, shape.value, shape.scale, numbers)
    return Usual(tuple(key), change, missing_at(_numbers(gathered)), known.rseq_offset)


def _aggregation(gathered: Gathered, shape: Shape, known: Known, marker: int) -> bytes:
    """What the runtime is to do, and the constant texts of the key behind it."""
    parts, constants = parts_of(gathered.key, shape.key, known, ctypes.sizeof(Aggregation))
    numbers = _numbers(gathered)
    head = Aggregation(
        marker=marker,
        does=flags_of(shape.does),
        value=_VALUES[shape.value],
        careful=known.careful,
        parts=len(parts),
        key_words=shape.key_words,
        value_at=len(numbers) - (gathered.value is not None),
        part=(KeyPart * MAX_KEY_PARTS)(*parts),
        missing_at=missing_at(numbers),
    )
    return bytes(head) + constants
