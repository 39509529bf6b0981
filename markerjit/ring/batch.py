"""Records as they were recorded, in packets, and decoded, in columns of numbers in order of time.
This module can be imported without numpy."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from markerjit.printable import counted
from markerjit.ring.types import HEAD, Head, RecordType
from markerjit.tuples import NamedTuple

if TYPE_CHECKING:
    import numpy as np

    Array = np.ndarray[Any, np.dtype[Any]]
    Starts = Array | slice


class Packet(NamedTuple):
    """Whole records of one ring, oldest first, one behind the other, without fillers.

    cpu     the CPU that they were recorded on
    ring    the number of the ring in the arena: a CPU has one for each way of recording
    data    the bytes; their number is a multiple of eight
    starts  where each record starts, in words and in order: int64, or a slice (starts.py). None for
            a packet that was read from a file, where the records have to be found first (find.py)
    head    how the heads of the records are divided; older files may differ
    """

    cpu: int
    ring: int
    data: bytes
    starts: Starts | None = None
    head: Head = HEAD


class Texts(NamedTuple):
    """A column of texts, laid out as in Arrow: text i is data[offsets[i]:offsets[i + 1]], and
    states[i] is its TextState."""

    offsets: Array  # int64, one more than there are texts
    data: Array  # uint8
    states: Array  # uint8


if TYPE_CHECKING:
    Column = Array | Texts


class Columns(NamedTuple):
    """Records of one type, in order of time.

    time    uint64, as recorded: see the type's `time`. For Time.NONE the number of the record in
            its ring, from 0
    cpu     uint16
    tid     uint32
    fields  by name: numbers in the type of their C type (bool as numpy's), and Texts
    """

    type: RecordType
    time: Array
    cpu: Array
    tid: Array
    fields: Mapping[str, Column]

    def __repr__(self) -> str:
        records = counted(len(self.time), "record")
        return f"<Columns of {self.type.marker}, {records}: {', '.join(self.fields)}>"
