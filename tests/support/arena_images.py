"""Arenas of every version, as tests/arenas/make.py wrote them down: in memory, or in a process."""

from __future__ import annotations

import base64
import ctypes
import json
import lzma
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import markerjit.abi as abi
from markerjit.abi import ALIVE, CONTROL, Control
from markerjit.arena import create
from markerjit.arena.arena import Arena
from markerjit.arena.store import FileStore, MemoryStore
from markerjit.arena.versions import control_of, layout_of
from markerjit.memory import Memory
from markerjit.model import RemoteAddress
from markerjit.remote.calls import Caller
from tests.support.made_arena import BASE, PID, SparseMemory

VERSIONS = (4, 5, 6, 7, 8, 9)
_IMAGES = Path(__file__).resolve().parents[1] / "arenas"


class Image(NamedTuple):
    """An arena as it was: its size, where its process had it, and what was written of it."""

    size: int
    base: int
    pieces: Sequence[tuple[int, bytes]]

    def arena(self) -> Arena:
        """The same in memory of the test's own, as if it had another place."""
        store = MemoryStore(SparseMemory(self.size), BASE)
        for offset, data in self.pieces:
            store.write(offset, data)
        return Arena(PID, BASE, store, self.size)


def load_image(version: int) -> Image:
    """The arena that this version has made."""
    known = json.loads(lzma.decompress((_IMAGES / f"v{version}.json.xz").read_bytes()))
    pieces = [(offset, base64.b64decode(data)) for offset, data in known["pieces"]]
    return Image(known["size"], known["base"], pieces)


def put_into(pid: int, memory: Memory, caller: Caller, image: Image) -> Arena:
    """The same arena in a process, by the calls with which ours is made: as if a controller of that
    version had put it there. Its handler of breakpoints is not installed."""
    geometry = image.arena().geometry
    assert geometry.size == image.size
    _, own, base, _ = create.make_mapping(pid, caller, geometry, slots=0, unlocked=False)
    store = FileStore(own)
    for offset, data in image.pieces:
        store.write(offset, data)
    arena = Arena(pid, base, store, image.size)
    _move(arena, base - image.base)
    arena.control.write("pid", pid)
    arena.control.write("clock", 0)
    arena.control.write("trap_installed", 0)
    memory.write(RemoteAddress(base + ALIVE), arena.geometry.cpus.to_bytes(8, "little"))
    return arena


def _move(arena: Arena, by: int) -> None:
    """The addresses in an arena: of its sequences, and of its rings."""
    block = arena.store.read(CONTROL, ctypes.sizeof(Control))
    layout: Any = layout_of(block)
    place = 320 if arena.version == 4 else layout.control.sequences.offset
    sequences = (abi.Restartable * abi.SEQUENCES).from_buffer_copy(block, place)
    assert control_of(block, layout).version == arena.version
    for sequence in sequences:
        if sequence.start:  # older versions have fewer of them
            sequence.start += by
            sequence.abort += by
    arena.store.write(CONTROL + place, bytes(sequences))
    for ring in range(arena.geometry.rings):
        offset = arena.geometry.head_offset(ring) + abi.RING_DATA
        data = arena.base + arena.geometry.ring_offset(ring)
        arena.store.write(offset, data.to_bytes(8, "little"))
