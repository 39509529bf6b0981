"""Edits as struct mj_edit, for the native part and for the journal: one packing for both."""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Sequence

from markerjit.abi import EditEntry
from markerjit.model import Edit, RemoteAddress

_EDIT = struct.Struct("<QBBBBBB2x16s16s")
SIZE = _EDIT.size


def pack(edits: Sequence[Edit]) -> bytearray:
    """All edits, one behind the other."""
    pack_edit = _EDIT.pack
    return bytearray().join(
        pack_edit(address, len(new), step, code, again, store, early, old, new)
        for address, old, new, _, code, step, again, store, early in edits
    )


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
