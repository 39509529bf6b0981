"""Edits as struct mj_edit, for the native part and for the journal: one packing for both."""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from markerjit.abi import EditEntry
from markerjit.model import Edit, RemoteAddress

if TYPE_CHECKING:  # what only looks at a journal packs nothing
    from markerjit.runs import Run

_EDIT = struct.Struct("<QBBBBBB2x16s16s")
SIZE = _EDIT.size
ADDRESS, NEW, WHAT = map(Edit._fields.index, ("address", "new", "what"))
"""The columns that runs of edits have: the first one, or all of them."""


def pack(edits: Sequence[Edit]) -> bytearray:
    """All edits, one behind the other."""
    from markerjit.runs import Run, parts_of

    return bytearray().join(
        _pack_run(part) if isinstance(part, Run) else _pack_each(part) for part in parts_of(edits)
    )


def _pack_each(edits: Iterable[Edit]) -> bytes:
    pack_edit = _EDIT.pack
    return b"".join(
        pack_edit(address, len(new), step, code, again, store, early, old, new)
        for address, old, new, _, code, step, again, store, early in edits
    )


def _pack_run(run: Run[Edit]) -> bytearray:
    """Those that differ in their addresses alone are filled in together."""
    if run.columns.keys() != {ADDRESS}:
        return bytearray(_pack_each(run))
    from array import array  # most switches have few edits

    packed = bytearray(_pack_each([run.first])) * len(run)
    words = memoryview(packed).cast("Q")
    words[:: SIZE // words.itemsize] = memoryview(array("Q", run.columns[ADDRESS]))
    return packed


def unpack(packed: bytes) -> list[Edit]:
    """The edits of a journal. The caller must refuse sizes over 16 and unknown flags."""
    edits = []
    for address, size, step, code, again, store, early, old, new in _EDIT.iter_unpack(packed):
        edits.append(
            Edit(
                RemoteAddress(address), old[:size], new[:size], "journal",
                bool(code), step, bool(again), bool(store), bool(early),
            )
        )  # fmt: skip
    return edits


def as_native(packed: bytearray) -> ctypes.Array[EditEntry]:
    """The same bytes for a native call; they must not be resized meanwhile."""
    return (EditEntry * (len(packed) // SIZE)).from_buffer(packed)
