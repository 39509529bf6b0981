"""Columns of numbers, and their text: how wide the numbers are, and their bytes. So a column of any
length is one value for JSON, and read at once.

What this does not do: know what the numbers are.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

Column = NDArray[np.int64]
_WIDTHS = (1, 2, 4, 8)
"""How many bytes a number may have."""


def texts_of(rows: Sequence[tuple[int, ...]], width: int) -> list[str]:
    """The columns of a table with these rows."""
    return [text_of(column) for column in zip(*rows, strict=True)] or [text_of(())] * width


def text_of(numbers: Iterable[int]) -> str:
    """A column as text, with numbers as narrow as they all can be."""
    column = np.array([*numbers], np.int64)
    narrower = (column.astype(f"<i{width}") for width in _WIDTHS)
    narrow = next(each for each in narrower if (each == column).all())
    return f"{narrow.itemsize}{narrow.tobytes().hex()}"


def numbers_of(text: str) -> Column:
    """A column that is kept as text."""
    return np.frombuffer(bytes.fromhex(text[1:]), f"<i{text[0]}").astype(np.int64)


def table_of(texts: Sequence[str], width: int) -> list[Column]:
    """As many columns as a table has to have, of one length."""
    columns = [numbers_of(text) for text in texts]
    if len(columns) != width or len(set(map(len, columns))) > 1:
        raise ValueError("columns of another table")
    return columns


def starts_of(ends: Column) -> Column:
    """Where the parts begin that have these ends."""
    return np.append(0, ends)[:-1]


def from_each(starts: Column, counts: Column) -> Column:
    """So many numbers from each start on."""
    before = np.cumsum(counts) - counts
    return np.repeat(starts - before, counts) + np.arange(counts.sum())


def check_ends(ends: Column, last: int) -> None:
    """Raise ValueError unless these are in order, from 0 to the last one."""
    steps = np.diff(ends, prepend=0, append=last)
    if (steps < 0).any() or steps[-1]:
        raise ValueError("columns that are no ends")


def check_below(numbers: Column, end: int) -> None:
    if ((numbers < 0) | (numbers >= end)).any():
        raise ValueError("a number of nothing")
