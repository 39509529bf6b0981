"""The recorders of markers whose records are alike, made together: a program has thousands of
functions, and a few kinds of records. What differs is a column for each number in the code.

What this does not do: find room for them, or tell the runtime (recorders.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import numpy as np

from markerjit.probes.recorder import (
    HEAD_BEFORE,
    SEQUENCE_NAMES,
    Setting,
    Shape,
    names_of,
    number_in_head,
    template_of,
)
from markerjit.x86.encoding import WronglyAssembled
from markerjit.x86.forms import REACH

_START, _SIZE, _HANDLER = 8, 16, 24
"""Words of struct mj_restartable."""


def make_recorders(
    shape: Shape, setting: Setting, markers: Sequence[int], entries: Sequence[int], address: int
) -> tuple[bytes, list[int]]:
    """The recorders of markers, by their ids and the addresses of their entries, one behind the
    other: their code for `address`, a multiple of ALIGN, and where the probe of each is. Each is
    the one that `make_recorder` makes. Raises as that."""
    made = template_of(shape, setting)
    count, size = len(markers), len(made.code)
    starts = address + size * np.arange(count, dtype=np.int64)
    code = np.tile(np.frombuffer(made.code, np.uint8), (count, 1))

    def put(at: int, numbers: Any, kind: str) -> None:
        column = np.broadcast_to(np.asarray(numbers), count).astype(kind)
        code[:, at : at + column.itemsize] = column.view(np.uint8).reshape(count, -1)

    columns = np.array(markers, np.int64), np.array(entries, np.int64)
    each = shape._replace(marker=cast(int, columns[0]), entry=cast(int, columns[1]))
    goals: dict[str, Any] = {**names_of(each, setting)}
    for name, descriptor in zip(SEQUENCE_NAMES, made.descriptors, strict=False):
        at, start, end, handler = descriptor
        goals[name] = starts + at
        put(at + _START, starts + start, "<u8")
        put(at + _SIZE, end - start, "<u8")
        put(at + _HANDLER, starts + handler, "<u8")
    for reference in made.references:
        distance = goals[reference.name] - starts - reference.end
        if not np.all((distance >= REACH.start) & (distance < REACH.stop)):
            raise WronglyAssembled(f"{reference.name} is out of reach of a recorder")
        put(reference.at, distance, "<i4")
    for at in (made.head, made.entry - HEAD_BEFORE):
        put(at, number_in_head(each), "<u4")
    return code.tobytes(), (starts + made.entry).tolist()
