"""Heads for a table of patches, and the geometry of an arena with room for them."""

from __future__ import annotations

from markerjit.arena.patches import Head
from markerjit.model import Mode, RemoteAddress
from tests.support.made_arena import geometry_of

SLOT = RemoteAddress(0x5000)
GEOMETRY = geometry_of(max_patches=1 << 10)


def head(address: int, mode: Mode = Mode.JUMP, body: int = 0) -> Head:
    """A head at an address, with a body where it is a breakpoint."""
    after = b"\xcc\5" if mode is Mode.INT3 else b"\xeb\0"
    return Head(RemoteAddress(address), b"\xeb\5", after, mode, SLOT, RemoteAddress(body))


def many_heads() -> list[Head]:
    """Breakpoints in lines of 64 bytes that follow each other."""
    return [head(0x1000 + 64 * number, Mode.INT3, 0x9000 + number) for number in range(200)]
