"""Reading protobuf messages of many rows at once, with numpy: the opposite of wire.py.

The messages stand in one array of bytes. All rows take a step together: the first step reads the
first field of each message, the second one the second field, until the longest message has ended.
What a field means is the caller's business. A malformed message is left out from there on, and
flagged, so that somebody slower can say what is wrong with it.

Authority: protobuf.dev/programming-guides/encoding.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from markerjit.ring.batch import Array

VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5
"""The ways in which a value is encoded."""

_AHEAD = 16
"""Bytes that are read behind the end of a message, at most."""
_WORD = 8
_MOST_TAG = (1 << 32) - 1
_ENDS = np.uint64(0x8080_8080_8080_8080)
_SEVENS = np.uint64(0x7F7F_7F7F_7F7F_7F7F)
# Each step brings two halves together: of 7 bits in a byte, of 14 in two, of 28 in four.
_HALVES = tuple(
    (np.uint64(low), np.uint64(high), np.uint64(shift))
    for low, high, shift in (
        (0x007F_007F_007F_007F, 0x7F00_7F00_7F00_7F00, 1),
        (0x0000_3FFF_0000_3FFF, 0x3FFF_0000_3FFF_0000, 2),
        (0x0000_0000_0FFF_FFFF, 0x0FFF_FFFF_0000_0000, 4),
    )
)
_DOUBLE_BIAS, _DOUBLE_SHIFT = 1023, np.uint64(52)


class Step(NamedTuple):
    """The next field of the messages that have one more. All arrays are of the same length.

    rows     the numbers of the messages
    numbers  the numbers of the fields
    wires    how the values are encoded: VARINT, FIXED64, BYTES or FIXED32
    values   a varint's value, or the number of bytes of BYTES; uint64
    starts   where the value begins; for BYTES the first byte behind the length
    """

    rows: Array
    numbers: Array
    wires: Array
    values: Array
    starts: Array


class Messages:
    """Messages in an array of bytes. `wrong` is what has been flagged so far, by message."""

    def __init__(self, data: Bytes, starts: Array, ends: Array) -> None:
        self.data = data
        self.wrong = ends < starts
        self._starts = starts
        self._ends = ends

    def steps(self) -> Iterator[Step]:
        """The fields of all messages, the first ones, then the second ones, and so on."""
        rows = np.flatnonzero(self._starts < self._ends)
        at, ends = self._starts[rows], self._ends[rows]
        while len(rows):
            tags, at, ok = self.data.varints(at)
            wires = (tags & np.uint64(7)).astype(np.uint8)
            values, after, ok_value = self.data.varints(at)
            ok &= (tags <= _MOST_TAG) & (tags > 7)
            ok &= ok_value | (wires == FIXED64) | (wires == FIXED32)
            ok &= (wires <= BYTES) | (wires == FIXED32)
            starts = np.where((wires == VARINT) | (wires == BYTES), after, at)
            starts[wires == VARINT] = at[wires == VARINT]
            ok &= (wires != BYTES) | (values <= (ends - at).clip(0).astype(np.uint64))
            values[~ok] = 0
            nexts = after.copy()
            is_bytes = wires == BYTES
            nexts[is_bytes] += values[is_bytes].astype(np.int64)
            nexts[wires == FIXED64] = at[wires == FIXED64] + 8
            nexts[wires == FIXED32] = at[wires == FIXED32] + 4
            ok &= nexts <= ends
            if not ok.all():
                self.wrong[rows[~ok]] = True
                rows, ends, nexts, wires = rows[ok], ends[ok], nexts[ok], wires[ok]
                tags, values, starts = tags[ok], values[ok], starts[ok]
            numbers = (tags >> np.uint64(3)).astype(np.int64)
            yield Step(rows, numbers, wires, values, starts)
            more = nexts < ends
            rows, at, ends = rows[more], nexts[more], ends[more]


class Bytes:
    """Bytes that numbers are read from, at many places at once."""

    def __init__(self, data: bytes) -> None:
        padded = data + bytes(_AHEAD)
        self.bytes = np.frombuffer(padded, np.uint8)
        self._words = np.ndarray((len(data) + _WORD,), np.dtype("<u8"), padded, strides=(1,))
        self._last = len(data)

    def words(self, at: Array) -> Array:
        """The eight bytes at each place as a number."""
        return self._words[np.minimum(at, self._last)]

    def varints(self, at: Array) -> tuple[Array, Array, Array]:
        """The varint at each place, the place behind it, and whether it has an end."""
        words = self.words(at)
        ends = ~words & _ENDS
        ok = ends != 0
        last = ends & (~ends + np.uint64(1))  # the highest bit of the last byte
        values = words & ((last - np.uint64(1)) | last) & _SEVENS
        for low, high, shift in _HALVES:
            values = (values & low) | ((values & high) >> shift)
        # The exponent of the bit as a double is its number.
        bits = (last.astype(np.float64).view(np.uint64) >> _DOUBLE_SHIFT).astype(np.int64)
        after = at + ((bits - _DOUBLE_BIAS + 1) >> 3)
        if not ok.all():
            (long,) = np.nonzero(~ok)
            values[long], after[long], ok[long] = self._long(at[long])
        return values, after, ok

    def _long(self, at: Array) -> tuple[Array, Array, Array]:
        """Varints of nine and ten bytes."""
        values = self.words(at) & _SEVENS
        for low, high, shift in _HALVES:
            values = (values & low) | ((values & high) >> shift)
        ninth, tenth = (
            self.bytes[np.minimum(at + more, self._last + _WORD)].astype(np.uint64)
            for more in (8, 9)
        )
        values |= (ninth & np.uint64(0x7F)) << np.uint64(56)
        is_ten = ninth >= 0x80
        values |= np.where(is_ten, (tenth & np.uint64(1)) << np.uint64(63), np.uint64(0))
        return values, at + 9 + is_ten, ~is_ten | (tenth < 0x80)
