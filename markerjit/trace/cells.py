"""Columns as text, with numpy: for each value its bytes, in equally many cells.

`Cells` are a table of bytes with a row for each value. A NUL is an empty cell, wherever in its row
it stands: `packed` leaves it out. So all rows are made at once, and no text of ours holds a NUL.

Integers are divided into groups of digits, and a table has the digits of each group. Texts are
copied with their quotes. The caller has made texts that need an escape.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from markerjit.ring.batch import Array

    Cells = Array  # uint8, two dimensions

_MINUS = np.frombuffer(b"\0\0\0-", np.uint32)[0]


class _Groups:
    """The digits of numbers below `base`, `width` of them, each group in one integer of `dtype`.

    padded  with leading zeros
    bare    without; that of 0 is empty
    last    without; that of 0 is a zero
    """

    def __init__(self, base: int, width: int, letter: str, dtype: type) -> None:
        def table(texts: Sequence[str]) -> Array:
            return np.frombuffer("".join(texts).encode(), dtype)

        shown = [format(number, letter) for number in range(base)]
        self.base = base
        self.dtype = dtype
        self.padded = table([text.rjust(width, "0") for text in shown])
        self.last = table([text.rjust(width, "\0") for text in shown])
        bare = self.last.copy()
        bare[0] = 0
        self._upper = np.concatenate([self.padded, bare])
        self._lowest = np.concatenate([self.padded, self.last])

    def of(self, values: Array, *, lead: int = 0) -> Array:
        """The groups of each value (uint64), the highest first, behind `lead` groups that the
        caller fills."""
        largest, count = int(values.max(initial=0)) // self.base, 1
        while largest:
            largest, count = largest // self.base, count + 1
        groups: Array = np.empty((len(values), lead + count), self.dtype)
        base, table = np.uint64(self.base), self._lowest
        for column in range(lead + count - 1, lead - 1, -1):
            higher = values // base
            digits = (values - higher * base).astype(np.intp)
            digits[higher == 0] += self.base  # nothing stands before these
            table.take(digits, out=groups[:, column], mode="clip")
            values, table = higher, self._upper
        return groups


_DECIMAL = _Groups(10_000, 4, "d", np.uint32)
_HEXADECIMAL = _Groups(0x100, 2, "x", np.uint16)


def decimal(values: Array) -> bytes | Cells:
    """Integers of any type in decimal digits. Where all are equal, their common text."""
    if len(values) and (values == values[0]).all():
        return str(values[0]).encode()
    magnitudes = values.astype(np.uint64)  # a negative number wraps
    if values.dtype.kind == "i" and (negative := values < 0).any():
        np.negative(magnitudes, out=magnitudes, where=negative)
        groups = _DECIMAL.of(magnitudes, lead=1)
        groups[:, 0] = _MINUS * negative
        return groups.view(np.uint8)
    width = len(str(magnitudes.max(initial=0)))
    return _DECIMAL.of(magnitudes).view(np.uint8)[:, -width:]


def hexadecimal(values: Array) -> Cells:
    """Unsigned integers in hexadecimal digits, without a prefix."""
    return _HEXADECIMAL.of(values.astype(np.uint64)).view(np.uint8)


def nanoseconds(values: Array) -> Cells:
    """Numbers below 10^9 (int64), all with nine digits."""
    upper, highest = values // 10_000, values // 10**8
    groups = np.empty((len(values), 3), np.uint32)
    groups[:, 0] = _DECIMAL.last[highest]
    groups[:, 1] = _DECIMAL.padded[upper - highest * 10_000]
    groups[:, 2] = _DECIMAL.padded[values - upper * 10_000]
    return groups.view(np.uint8)[:, 3:]


def thousandths(values: Array) -> Cells:
    """Numbers below 1,000, all with three digits."""
    return _DECIMAL.padded[values].view(np.uint8).reshape(-1, 4)[:, 1:]


def hexadecimal_bytes(data: Array, *, spaced: bool = False) -> Array:
    """Two digits of each byte, and a space behind them if `spaced`, one behind the other."""
    digits = _HEXADECIMAL.padded[data].view(np.uint8).reshape(-1, 2)
    if spaced:
        digits = np.column_stack([digits, np.full(len(digits), ord(" "), np.uint8)])
    return digits.ravel()


def texts_of(texts: Sequence[str] | Sequence[bytes]) -> Cells:
    """These texts. Those that are str must be ASCII."""
    table = np.array(texts, np.bytes_)
    return table.view(np.uint8).reshape(len(texts), table.dtype.itemsize)


def between(
    marks: bytes, offsets: Array, data: Array, irregular: Array, replaced: Sequence[bytes]
) -> Cells:
    """Text i is data[offsets[i]:offsets[i + 1]], between the two `marks`. The rows `irregular` have
    the bytes `replaced` instead, without marks."""
    lengths = np.diff(offsets)
    lengths[irregular] = 0
    width = max(int(lengths.max(initial=0)) + len(marks), *map(len, replaced), 1)
    cells = np.zeros((len(lengths), width), np.uint8)
    flat, firsts = cells.ravel(), np.arange(0, cells.size, width)
    if len(irregular):
        kept = np.ones(len(lengths), np.bool_)
        kept[irregular] = False
        data = data[np.repeat(kept, np.diff(offsets))]
        offsets = np.append(0, np.cumsum(lengths))
    flat[firsts] = marks[0]
    places = np.repeat(firsts + 1 - offsets[:-1], lengths)
    places += np.arange(offsets[0], offsets[-1])
    flat[places] = data
    flat[firsts + 1 + lengths] = marks[1]
    for row, text in zip(irregular.tolist(), replaced, strict=True):
        cells[row] = 0
        cells[row, : len(text)] = np.frombuffer(text, np.uint8)
    return cells


def table(parts: Sequence[bytes | Cells], rows: int) -> Cells:
    """Rows that have all parts one behind the other: the same bytes in every row, or cells."""
    same = b"".join(part if isinstance(part, bytes) else bytes(part.shape[1]) for part in parts)
    joined = np.empty((rows, len(same)), np.uint8)
    joined[:] = np.frombuffer(same, np.uint8)
    at = 0
    for part in parts:
        if isinstance(part, bytes):
            at += len(part)
            continue
        width = part.shape[1]
        # As one item of so many bytes, which is several times as fast as byte by byte.
        place = np.ndarray(rows, f"V{width}", joined, at, joined.strides[:1])
        place[...] = part.view(f"V{width}")[:, 0]
        at += width
    return joined


def packed(tables: Sequence[Cells], order: Array) -> bytes:
    """The rows of all tables in this order, without their empty cells."""
    width = max(part.shape[1] for part in tables)
    if len(tables) == 1:
        rows = tables[0]
    else:
        rows = np.zeros((sum(map(len, tables)), width), np.uint8)
        at = 0
        for part in tables:
            rows[at : at + len(part), : part.shape[1]] = part
            at += len(part)
        rows = rows.view(f"V{width}").ravel().take(order).view(np.uint8)
    flat = rows.ravel()
    return bytes(flat[flat != 0])
