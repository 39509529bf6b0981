"""Values of events as columns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from markerjit.questions.columns import TextColumn
from markerjit.questions.types import Type
from tests.support.question_reference import Values

CODES = {
    Type.BOOL: np.bool_,
    Type.CHAR: np.int32,  # as a `%c` is recorded
    Type.F64: np.float64,
    Type.POINTER: np.uint64,
}


def text_column(texts: Sequence[bytes | None]) -> TextColumn:
    """The texts with bytes between them that belong to none."""
    data, starts = bytearray(b"ab"), []
    for text in texts:
        starts.append(len(data))
        data += (text or b"") + b"GET"[: len(starts) % 4]
    return TextColumn(
        np.frombuffer(bytes(data), np.uint8),
        np.array(starts, np.int64),
        np.array([len(text or b"") for text in texts], np.int64),
        np.array([text is None for text in texts], np.bool_),
    )


def columns_of(rows: Sequence[Values], types: Mapping[str, Type]) -> dict[str, Any]:
    columns: dict[str, Any] = {}
    for name in rows[0]:
        values: list[Any] = [row[name] for row in rows]
        if types[name] is Type.TEXT:
            columns[name] = text_column(values)
        else:
            columns[name] = np.array(values, CODES.get(types[name], f"{types[name]}"[0] + "8"))
    return columns
