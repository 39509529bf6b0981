"""Protobuf messages of many rows at once, with numpy.

A message is a list of parts, one behind the other; a part is what all rows have in it:

    bytes     the same for all
    Block     as many bytes for each, a row of a table
    Ragged    of its own length for each, somewhere in an array of bytes

A number has as many bytes in all rows as the largest of them needs: a varint may be longer than it
has to be, and all readers take that. Perfetto's Python package makes the same messages one by one,
which takes several times as long: longer than a busy program takes to record them.

Authority: protobuf.dev/programming-guides/encoding.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from markerjit.ring.batch import Array

_VARINT, _FIXED64, _BYTES = 0, 1, 2


class Block(NamedTuple):
    """As many bytes in each row: `table` has a row for each. `where` are the rows that have them
    at all; None means that all do."""

    table: Array
    where: Array | None = None


class Ragged(NamedTuple):
    """Bytes of any length: row i has data[starts[i]:starts[i] + lengths[i]]."""

    data: Array
    starts: Array
    lengths: Array


Part = bytes | Block | Ragged
Parts = Sequence[Part]


def tag(number: int, wire: int) -> bytes:
    """What comes before a field's value."""
    return one_varint(number << 3 | wire)


def one_varint(value: int) -> bytes:
    """A number, as short as can be; a negative one as the 64 bits that it is."""
    value &= (1 << 64) - 1
    found = bytearray()
    while value > 0x7F:
        found.append(value & 0x7F | 0x80)
        value >>= 7
    found.append(value)
    return bytes(found)


def one(number: int, value: int | float | str | bytes | Sequence[bytes]) -> bytes:
    """A field of one row: a number, a text, or a message given by its fields."""
    if isinstance(value, int):
        return tag(number, _VARINT) + one_varint(value)
    if isinstance(value, float):
        return tag(number, _FIXED64) + np.float64(value).tobytes()
    if isinstance(value, str):
        value = value.encode("utf-8", "backslashreplace")
    data = value if isinstance(value, bytes) else b"".join(value)
    return tag(number, _BYTES) + one_varint(len(data)) + data


def numbers(number: int, values: Array, where: Array | None = None) -> Parts:
    """A field that is a varint."""
    return [*_only(tag(number, _VARINT), where), Block(varints(values), where)]


def doubles(number: int, values: Array) -> Parts:
    """A field that is a double."""
    table = np.ascontiguousarray(values, "<f8").view(np.uint8).reshape(len(values), 8)
    return [tag(number, _FIXED64), Block(table)]


def texts(number: int, text: Ragged, where: Array) -> Parts:
    """A field that is a text, in those rows that have one."""
    there = text.lengths * where
    return [
        *_only(tag(number, _BYTES), where),
        Block(varints(there), where),
        Ragged(text.data, text.starts, there),
    ]


def message(number: int, parts: Parts, rows: int) -> Parts:
    """A field that is a message."""
    if all(map(_is_even, parts)):
        return [tag(number, _BYTES) + one_varint(_width(parts)), *parts]
    return [tag(number, _BYTES), Block(varints(lengths(parts, rows))), *parts]


def varints(values: Array) -> Array:
    """A table with a number in each row, all of one width."""
    values = values.astype(np.uint64)  # a negative number wraps, as it should
    width = max(1, -(-int(values.max(initial=0)).bit_length() // 7))
    table = np.empty((len(values), width), np.uint8)
    for column in range(width):
        table[:, column] = (values >> np.uint64(7 * column)).astype(np.uint8) & 0x7F
    table[:, :-1] |= 0x80
    return table


def rows_of(parts: Parts, rows: int) -> list[bytes]:
    """The rows, each put together."""
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
    """The rows, one behind the other."""
    if all(map(_is_even, parts)):
        return _even_table(parts, rows).tobytes()
    return b"".join(rows_of(parts, rows))


def _even_rows(parts: Parts, rows: int) -> list[bytes]:
    """Rows that all have the same length."""
    found: list[bytes] = _even_table(parts, rows).view(f"V{_width(parts)}").reshape(rows).tolist()
    return found


def _even_table(parts: Parts, rows: int) -> Array:
    """The same as a table, filled column by column."""
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
            row if there else b"" for row, there in zip(whole, part.where.tolist(), strict=True)
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
    """The same bytes, in some rows."""
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
