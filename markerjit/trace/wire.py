"""Protobuf messages of many rows at once, with numpy.

A message is a sequence of parts. A part holds bytes of all rows:

    bytes     the same bytes in every row
    Block     equally many bytes in every row: the rows of a table
    Ragged    bytes of any length, somewhere in an array of bytes

A number takes as many bytes in all rows as the largest one needs. A varint may be longer than
necessary, and all readers accept that. Perfetto's Python package makes these messages one at a
time. It takes several times as long, and longer than a busy program takes to record them.

Authority: protobuf.dev/programming-guides/encoding.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from markerjit.tuples import NamedTuple

if TYPE_CHECKING:
    from markerjit.ring.batch import Array

_VARINT, _FIXED64, _BYTES = 0, 1, 2


class Block(NamedTuple):
    """Equally many bytes in every row: those of `table`.

    `where` selects the rows that have them; None means all rows.
    """

    table: Array
    where: Array | None = None


class Ragged(NamedTuple):
    """Bytes of any length. Row i has data[starts[i]:starts[i] + lengths[i]]."""

    data: Array
    starts: Array
    lengths: Array


Part = bytes | Block | Ragged
Parts = Sequence[Part]


def tag(number: int, wire: int) -> bytes:
    """The tag of a field, which precedes its value."""
    return one_varint(number << 3 | wire)


def one_varint(value: int) -> bytes:
    """A number as the shortest varint. A negative number has all its 64 bits."""
    value &= (1 << 64) - 1
    varint = bytearray()
    while value > 0x7F:
        varint.append(value & 0x7F | 0x80)
        value >>= 7
    varint.append(value)
    return bytes(varint)


def field(number: int, value: int | float | str | bytes | Sequence[bytes]) -> bytes:
    """A field with one value: a number, a text, or a message given by its fields."""
    if isinstance(value, int):
        return tag(number, _VARINT) + one_varint(value)
    if isinstance(value, float):
        return tag(number, _FIXED64) + np.float64(value).tobytes()
    if isinstance(value, str):
        value = value.encode("utf-8", "backslashreplace")
    data = value if isinstance(value, bytes) else b"".join(value)
    return tag(number, _BYTES) + one_varint(len(data)) + data


def numbers(number: int, values: Array, where: Array | None = None) -> Parts:
    """A varint field of each row."""
    return [*_only(tag(number, _VARINT), where), Block(varints(values), where)]


def doubles(number: int, values: Array) -> Parts:
    """A double field of each row."""
    table = np.ascontiguousarray(values, "<f8").view(np.uint8).reshape(len(values), 8)
    return [tag(number, _FIXED64), Block(table)]


def texts(number: int, text: Ragged, where: Array) -> Parts:
    """A text field of the rows that `where` selects."""
    present = text.lengths * where
    return [
        *_only(tag(number, _BYTES), where),
        Block(varints(present), where),
        Ragged(text.data, text.starts, present),
    ]


def message(number: int, parts: Parts, rows: int) -> Parts:
    """A message field of each row."""
    if all(map(_is_even, parts)):
        return [tag(number, _BYTES) + one_varint(_width(parts)), *parts]
    return [tag(number, _BYTES), Block(varints(lengths(parts, rows))), *parts]


def varints(values: Array) -> Array:
    """A table with a varint in each row, all of the same width."""
    values = values.astype(np.uint64)  # a negative number wraps, as it should
    width = max(1, -(-int(values.max(initial=0)).bit_length() // 7))
    table = np.empty((len(values), width), np.uint8)
    for column in range(width):
        table[:, column] = (values >> np.uint64(7 * column)).astype(np.uint8) & 0x7F
    table[:, :-1] |= 0x80
    return table


def rows_of(parts: Parts, rows: int) -> list[bytes]:
    """The bytes of each row."""
    if not rows:
        return []
    columns: list[list[bytes]] = []
    even: list[Part] = []
    for part in parts:
        if _is_even(part):
            even.append(part)
            continue
        if even:
            columns.append(_even_rows(even, rows))
            even = []
        columns.append(_uneven_rows(part))
    if even:
        columns.append(_even_rows(even, rows))
    return columns[0] if len(columns) == 1 else [*map(b"".join, zip(*columns, strict=True))]


def bytes_of(parts: Parts, rows: int) -> bytes:
    """The bytes of all rows, concatenated."""
    if all(map(_is_even, parts)):
        return _even_table(parts, rows).tobytes()
    return b"".join(rows_of(parts, rows))


def _even_rows(parts: Parts, rows: int) -> list[bytes]:
    """Rows that all have the same length."""
    table = _even_table(parts, rows)
    lines: list[bytes] = table.view(f"V{_width(parts)}").reshape(rows).tolist()
    return lines


def _even_table(parts: Parts, rows: int) -> Array:
    """The rows as a table, filled column by column."""
    width = _width(parts)
    table = np.empty((rows, width), np.uint8)
    at = 0
    for part in parts:
        value = part.table if isinstance(part, Block) else np.frombuffer(_constant(part), np.uint8)
        end = at + value.shape[-1]
        table[:, at:end] = value
        at = end
    return table


def _uneven_rows(part: Part) -> list[bytes]:
    if isinstance(part, Block):
        assert part.where is not None
        whole = _even_rows([Block(part.table)], len(part.table))
        return [
            row if present else b"" for row, present in zip(whole, part.where.tolist(), strict=True)
        ]
    assert isinstance(part, Ragged)
    data = part.data.tobytes()
    ends = (part.starts + part.lengths).tolist()
    return [data[start:end] for start, end in zip(part.starts.tolist(), ends, strict=True)]


def _width(parts: Parts) -> int:
    return sum(p.table.shape[1] if isinstance(p, Block) else len(_constant(p)) for p in parts)


def _constant(part: Part) -> bytes:
    assert isinstance(part, bytes)
    return part


def _is_even(part: Part) -> bool:
    return isinstance(part, bytes) or (isinstance(part, Block) and part.where is None)


def _only(constant: bytes, where: Array | None) -> Parts:
    """The same bytes in the rows that `where` selects."""
    if where is None:
        return [constant]
    table = np.broadcast_to(np.frombuffer(constant, np.uint8), (len(where), len(constant)))
    return [Block(table, where)]


def lengths(parts: Parts, rows: int) -> Array:
    """The length of each row."""
    total = np.zeros(rows, np.int64)
    for part in parts:
        if isinstance(part, bytes):
            total += len(part)
        elif isinstance(part, Ragged):
            total += part.lengths
        else:
            size = part.table.shape[1]
            total += size if part.where is None else size * part.where.astype(np.int64)
    return total
