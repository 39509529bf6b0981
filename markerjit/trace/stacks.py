"""Columns of stacks: numbers, as records have them, and texts, as all else has (frames.py).

What this does not do: know what number is which stack. A reader of the process does, and a file of
a CTF trace.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np

from markerjit.model import Field, FieldType
from markerjit.ring.batch import Columns, Texts
from markerjit.ring.columns import from_zero, gathered
from markerjit.ring.types import TextState
from markerjit.trace.collect import make_texts

if TYPE_CHECKING:
    from markerjit.ring.batch import Array

_NONE = 0
"""The number of no stack."""


def numbers_of(columns: Iterable[Columns]) -> set[int]:
    """The numbers of all stacks of records."""
    return {
        number
        for part in columns
        for field in _stacks(part)
        if not isinstance(column := part.fields[field.name], Texts)
        for number in np.unique(column).tolist()
        if number != _NONE
    }


def with_texts(columns: Sequence[Columns], text: Callable[[int], str | None]) -> list[Columns]:
    """The same records with the texts of their stacks in the place of their numbers."""
    made = []
    for part in columns:
        fields = dict(part.fields)
        for field in _stacks(part):
            column = fields[field.name]
            if not isinstance(column, Texts):
                fields[field.name] = _texts(column, text)
        made.append(part._replace(fields=fields))
    return made


def with_numbers(columns: Sequence[Columns]) -> tuple[list[Columns], dict[int, str]]:
    """The same records with numbers in the place of the texts of their stacks, and the texts by
    their numbers. A text has the same number wherever it is."""
    made, known = [], dict[int, str]()
    for part in columns:
        fields = dict(part.fields)
        for field in _stacks(part):
            column = fields[field.name]
            if isinstance(column, Texts):
                fields[field.name] = np.array([*_numbers(column, known)], np.uint64)
        made.append(part._replace(fields=fields))
    return made, known


def _stacks(part: Columns) -> list[Field]:
    return [field for field in part.type.fields if field.type is FieldType.STACK]


def _texts(numbers: Array, text: Callable[[int], str | None]) -> Texts:
    different, places = np.unique(numbers, return_inverse=True)
    texts = make_texts(text(number) if number else None for number in different.tolist())
    starts, lengths = texts.offsets[:-1][places], np.diff(texts.offsets)[places]
    return Texts(*gathered(texts.data, starts, lengths), texts.states[places])


def _numbers(texts: Texts, known: dict[int, str]) -> Iterator[int]:
    offsets, column = from_zero(texts.offsets, texts.data)
    data, ends = column.tobytes(), offsets.tolist()
    numbers: dict[bytes, int] = {}
    for row, state in enumerate(texts.states.tolist()):
        content = data[ends[row] : ends[row + 1]]
        if state != TextState.WHOLE:
            yield _NONE
            continue
        if content not in numbers:
            numbers[content] = _number(content)
            known[numbers[content]] = content.decode("utf-8", "backslashreplace")
        yield numbers[content]


def _number(content: bytes) -> int:
    import hashlib

    return int.from_bytes(hashlib.blake2b(content, digest_size=8).digest(), "little") or 1
