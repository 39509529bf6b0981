"""Whether a thread is in a probe in C.

A call is counted in one of two places: by the runtime's adapters for the marker and CPU
(arena/calls.py), and by bodies of older headers in the slot. The caller has emptied the slots
before. Either all threads were stopped for that, or there was a barrier in all of them since.
"""

from __future__ import annotations

from collections.abc import Callable, Collection

from markerjit.arena.arena import Arena
from markerjit.model import RemoteAddress
from markerjit.patch.slots import SLOT_DATA, is_entered

Read = Callable[[RemoteAddress, int], bytes]


def is_inside(arena: Arena, read: Read, slots: Collection[RemoteAddress]) -> bool:
    """Whether a thread is in a probe that one of these slots has held. Raises MemoryFault for a
    slot that cannot be read."""
    data = [int.from_bytes(read(RemoteAddress(slot + SLOT_DATA), 8), "little") for slot in slots]
    markers = arena.calls.markers_of(data)
    return any(is_entered(read, slot) for slot in slots) or arena.calls.is_entered(markers)
