"""The code of a marker that begins or ends a pair.

It computes the numbers of the group, of the key and of the fields that are kept (called.py), and
has the runtime pair them (native/src/runtime/pair.c), which also puts together their texts. A
struct mj_pairing behind the code tells the runtime what to do.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence

from markerjit.abi import (
    MAX_FIELD_PARTS,
    MAX_KEY_PARTS,
    TIME_MONOTONIC,
    TIME_TSC,
    KeyPart,
    Pairing,
)
from markerjit.errors import BadQuestion
from markerjit.model import RemoteAddress, Signature
from markerjit.patch.request import Pair
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
from markerjit.probes.computed import Known
from markerjit.probes.question import Draft, QuestionCode
from markerjit.questions import Lack
from markerjit.questions.latencies import Pairing as AskedOfMarkers
from markerjit.questions.latencies import Side, Timed, ask_latency, side_of

_NEVER = (1 << 64) - 1
_OF_GROUP = 1
"""The flag of numbers of a group: if one is missing, the begin just has no group."""


def ask_markers(
    timed: Timed, begins: Sequence[Signature], ends: Sequence[Signature]
) -> AskedOfMarkers:
    """The latency between these markers. Raises BadQuestion."""
    return ask_latency(timed, [*map(scope_of_marker, begins)], [*map(scope_of_marker, ends)])


def draft_of_pairing(side: Side, known: Known) -> Draft:
    """The code. Raises Unsupported for what the process does not know."""
    return draft_of_call(side.condition, _numbers(side), known)


def code_of(
    signature: Signature, probe: Pair, marker: RemoteAddress, runtime: Runtime
) -> QuestionCode:
    """The code of a marker whose entry is at `marker`. Raises BadQuestion and Unsupported."""
    side = side_of(probe.timed, scope_of_marker(signature), ends=probe.ends)
    if isinstance(side, Lack):
        raise BadQuestion(f"{signature.name} has no field {side.name}", str(probe.timed), 0, 0)
    known = known_of(signature, runtime.process, runtime.careful)
    how = _pairing(side, probe, known, marker)
    return code_of_call(draft_of_pairing(side, known), runtime, runtime.pair, how)


def _numbers(side: Side) -> list[Number]:
    """What is computed: the numbers of the group, then those of the key and of the fields, and how
    long it took."""
    took = [Number(side.took)] if side.took is not None else []
    group = numbers_of(side.group, flag=_OF_GROUP)
    return group + numbers_of([*side.key, *side.values]) + took


def _pairing(side: Side, probe: Pair, known: Known, marker: int) -> bytes:
    """What the runtime is to do, and the constant texts of the key behind it."""
    fields = [field.part for field in side.fields]
    groups = probe.group if side.group else ()
    nodes = (*side.group, *side.key, *side.values)
    parts = (*groups, *probe.key, *fields)
    made, constants = parts_of(nodes, parts, known, ctypes.sizeof(Pairing))
    timed, numbers = probe.timed, _numbers(side)
    head = Pairing(
        marker=marker,
        slower_ns=_NEVER if timed.slower_ns is None else timed.slower_ns,
        ends=probe.ends,
        time=TIME_TSC if probe.counter else TIME_MONOTONIC,
        careful=known.careful,
        parts=len(side.key),
        fields=len(fields),
        took_at=len(numbers) if timed.took else 0,
        key_words=sum(part.words for part in probe.key),
        field_words=side.field_words,
        missing_at=missing_at(numbers),
        group_parts=len(side.group),
        group_words=sum(part.words for part in groups),
        group_missing_at=missing_at(numbers, _OF_GROUP),
        part=(KeyPart * (MAX_KEY_PARTS + MAX_FIELD_PARTS))(*made),
    )
    return bytes(head) + constants
