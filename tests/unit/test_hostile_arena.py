"""An arena that claims to be huge, in a sparse file that costs its maker nothing: who looks at it
needs little memory for that. Each is looked at by a process that has little."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import markerjit.abi as abi
from markerjit.abi import (
    CONTROL,
    JOURNAL_OPEN,
    PAGE,
    Control,
    JournalHead,
    Sizes,
    checked_geometry,
    lay_out,
)
from markerjit.errors import Unsupported
from markerjit.memory import Mapping
from markerjit.model import RemoteAddress
from markerjit.remote.gadgets import find_gadgets
from tests.support.made_arena import control_block

ROOM, RING = 128 << 20, 256 << 20
LARGEST_SIZES = Sizes(
    1, RING, abi.MOST_MARKERS, abi.MOST_PATCHES, abi.MOST_EDITS, RING, abi.MOST_UNITS
)
LARGEST = lay_out(LARGEST_SIZES)

LOOKS = {
    "at its markers": "assert sum(1 for _ in arena.markers.entries()) == 1 << 18",
    "at its status": "arena_status(arena, locked=False)",
    "at its journal": "assert len(Journal(arena).left().packed) == 48 << 20",
    "at its patches": "assert sum(1 for _ in arena.patches.entries()) == 1",
    "for a patch": "assert arena.patches.at(4711) is None",
    "at its files of probes": "loaded(arena)",
    "at what waits": "Rings(arena, {}).waiting()",
    "to begin": "Rings(arena, {}).start()",
    "to go on": "rings = Rings(arena, {}); rings.resume(); rings.poll(last=True)",
}
SETUP = """
import os, resource, sys
import numpy
import markerjit.ring.decode, markerjit.ring.walk
from markerjit.model import RemoteAddress
from markerjit.arena.arena import Arena
from markerjit.arena.journal import Journal
from markerjit.arena.store import FileStore
from markerjit.events.rings import Rings
from markerjit.probes.loaded import loaded
from markerjit.session.status import arena_status

store = FileStore(os.open(sys.argv[1], os.O_RDWR))
size = os.stat(sys.argv[1]).st_size
used = int(open("/proc/self/statm").read().split()[0]) * 4096
resource.setrlimit(resource.RLIMIT_AS, (used + int(sys.argv[2]),) * 2)
arena = Arena(1, RemoteAddress(1 << 40), store, size)
"""


@pytest.fixture
def largest(tmp_path: Path) -> Iterator[Path]:
    """Tables as large as a control block may claim, rings that are full, and a full journal."""
    path = tmp_path / "arena"
    file = os.open(path, os.O_RDWR | os.O_CREAT)
    os.ftruncate(file, LARGEST.size)
    block = control_block(
        LARGEST, markers_used=(1 << 32) - 1, patches_used=1, units_used=(1 << 32) - 1
    )
    os.pwrite(file, block, CONTROL)
    head = JournalHead(state=JOURNAL_OPEN, edits=LARGEST.edits.entries)
    os.pwrite(file, bytes(head), CONTROL + abi.Control.journal.offset)
    patch = bytes(abi.PatchEntry(address=1))
    os.pwrite(file, patch, LARGEST.patches.at(LARGEST.patches.entries - 1))
    edits = bytes(abi.EditEntry(size=1)) * 4096  # of one byte each: they make sense
    for first in range(0, LARGEST.edits.entries, 4096):
        os.pwrite(file, edits, LARGEST.edits.at(first))
    for ring in range(LARGEST.rings):
        full = abi.Head(head=LARGEST.ring_size, limit=LARGEST.ring_size, mask=LARGEST.ring_size - 1)
        os.pwrite(file, bytes(full), LARGEST.head_offset(ring))
    os.close(file)
    yield path
    path.unlink()


@pytest.mark.parametrize("look", LOOKS.values(), ids=LOOKS)
def test_a_look_at_an_arena_that_claims_the_most_takes_little_memory(
    largest: Path, look: str
) -> None:
    done = subprocess.run(
        [sys.executable, "-c", SETUP + look, largest, str(ROOM)],
        env={**os.environ, "OPENBLAS_NUM_THREADS": "1"},
        capture_output=True, text=True, check=False,
    )  # fmt: skip

    assert done.stderr == ""
    assert done.returncode == 0


@pytest.mark.parametrize(
    ("name", "most"),
    [
        ("cpus", abi.MOST_CPUS),
        ("max_markers", abi.MOST_MARKERS),
        ("max_patches", abi.MOST_PATCHES),
        ("max_edits", abi.MOST_EDITS),
        ("ring_stride", abi.LARGEST_RING),
        ("max_units", abi.MOST_UNITS),
        ("max_islands", abi.MOST_ISLANDS),
        ("max_callers", abi.MOST_CALLERS),
        ("max_slots", abi.MOST_SLOTS),
    ],
)
def test_more_than_the_most_is_not_believed(name: str, most: int) -> None:
    small = Sizes(1, PAGE, 4, 4, 4, PAGE)
    largest, larger = (lay_out(small._replace(**{name: claimed})) for claimed in (most, 2 * most))

    checked_geometry(Control.from_buffer_copy(control_block(largest)), largest.size)
    with pytest.raises(Unsupported, match="contradicts itself"):
        checked_geometry(Control.from_buffer_copy(control_block(larger)), larger.size)


def test_code_is_looked_through_in_pieces() -> None:
    """A program may map a sparse file of a terabyte as code."""
    code = b"\x0f\x05\xc3" + b"\xb8\x0f\0\0\0\x0f\x05"
    start, size = RemoteAddress(1 << 40), 1 << 40
    at = start + (1 << 20) - 4  # over the end of the first piece
    largest = 0

    def read(address: RemoteAddress, count: int) -> bytes:
        nonlocal largest
        largest = max(largest, count)
        data = bytearray(count)
        if address <= at < address + count:
            part = code[: address + count - at]
            data[at - address : at - address + len(part)] = part
        return bytes(data)

    mapping = Mapping(
        start, RemoteAddress(start + size),
        True, False, True, False, 0, "00:01", 1, "/big", False,
    )  # fmt: skip
    gadgets = find_gadgets(read, [mapping])

    assert (gadgets.syscall_ret, gadgets.sigreturn) == (at, at + 3)
    assert largest <= 2 << 20
