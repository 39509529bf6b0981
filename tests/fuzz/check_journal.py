"""Check of the journal in the arena, which the target can write, and from which `repair` writes.

An input is the journal's head and its edits. What this does not check: whether a place is one of a
marker's; that takes a process (mend.py, and the tests of `repair`).
"""

from __future__ import annotations

import ctypes
from typing import cast

from markerjit.abi import (
    CONTROL,
    JOURNAL_OPEN,
    Control,
    EditEntry,
    Geometry,
    JournalHead,
)
from markerjit.arena.arena import Arena
from markerjit.arena.control import ControlBlock
from markerjit.arena.journal import Journal
from markerjit.arena.pack import SIZE, pack
from markerjit.arena.versions import CURRENT
from markerjit.errors import Unsupported
from markerjit.model import Edit, RemoteAddress
from markerjit.session.unfinished import places_of
from tests.fuzz.check_ring import control_block, geometry_of, numbers_of
from tests.fuzz.harness import ACCEPTED, Harness, Seed

_GEOMETRY = geometry_of(1, 512, 8)
_HEAD = CONTROL + Control.journal.offset
_HEAD_SIZE = ctypes.sizeof(JournalHead)
_MOST = 16
"""Bytes of an edit, as struct mj_edit has room for."""


class _Store:
    """The head and the edits, and nothing besides."""

    def __init__(self, data: bytes) -> None:
        room = _GEOMETRY.edits.entries * SIZE
        edits = data[_HEAD_SIZE : _HEAD_SIZE + room].ljust(room, b"\0")
        self._parts = {
            _HEAD: data[:_HEAD_SIZE].ljust(_HEAD_SIZE, b"\0"),
            _GEOMETRY.edits.offset: edits,
        }

    def read(self, offset: int, size: int) -> bytes:
        for start, content in self._parts.items():
            if start <= offset <= offset + size <= start + len(content):
                return content[offset - start : offset - start + size]
        raise AssertionError(f"a read of {size} bytes at {offset:#x}, outside of the journal")

    def write(self, offset: int, data: bytes) -> None:
        raise AssertionError("looking at a journal writes nothing")


class _Arena:
    def __init__(self, store: _Store) -> None:
        self.store = store
        self.geometry: Geometry = _GEOMETRY
        self.control = ControlBlock(_Block(), CURRENT)


class _Block:
    """A control block of ours."""

    def read(self, offset: int, size: int) -> bytes:
        return control_block(_GEOMETRY)

    def write(self, offset: int, data: bytes) -> None:
        raise AssertionError("looking at a journal writes nothing")


def check_journal(data: bytes) -> str:
    """Journal.left raises Unsupported; what it returns are edits that could be packed again."""
    try:
        left = Journal(cast(Arena, _Arena(_Store(data)))).left()
    except Unsupported as error:
        assert str(error).isprintable()
        return "Unsupported"
    if left is None:
        return "nothing"
    assert len(left.edits) <= _GEOMETRY.edits.entries
    assert str(left.owner).isprintable()
    for edit in left.edits:
        assert 0 < len(edit.new) == len(edit.old) <= _MOST
        assert 0 <= edit.address < 1 << 64
    assert len(pack(left.edits)) == SIZE * len(left.edits)
    _check_places(left.edits)
    return ACCEPTED


def _check_places(edits: tuple[Edit, ...]) -> None:
    """Every edit is in the place that it touches, and the last step comes first."""
    places = places_of(edits)
    steps = [place.step for place in places]
    assert steps == sorted(steps, reverse=True)
    known = {(place.address, len(place.before)): place.between for place in places}
    assert len(known) == len(places)
    assert all(edit.new in known[edit.address, len(edit.old)] for edit in edits)


def _seeds() -> list[Seed]:
    """A switch of two sites as the controller writes it, and one that takes three steps."""
    on = [
        Edit(RemoteAddress(0x4020), bytes(8), b"\x10" * 8, "m", False, 0),
        Edit(RemoteAddress(0x1100), b"\x05", b"\x00", "m", True, 1),
        Edit(RemoteAddress(0x1180), b"\x05", b"\x00", "m", True, 1),
    ]
    steps = [
        Edit(RemoteAddress(0x1100), b"\x0f", b"\xcc", "m", True, 0),
        Edit(RemoteAddress(0x1101), b"\x1f\x44", b"\x01\x02", "m", True, 1),
        Edit(RemoteAddress(0x1100), b"\xcc", b"\xe9", "m", True, 2, True),
    ]
    return [_seed(on), _seed(steps)]


def _seed(edits: list[Edit]) -> Seed:
    head = JournalHead(state=JOURNAL_OPEN, edits=len(edits), since=1)
    places = numbers_of(JournalHead, 0)
    for index in range(len(edits)):
        places += numbers_of(EditEntry, _HEAD_SIZE + index * SIZE)
    return Seed(bytes(head) + bytes(pack(edits)), places)


HARNESSES = (Harness("journal", _seeds, check_journal),)
