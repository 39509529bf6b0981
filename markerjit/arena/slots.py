"""Slots of sites that no compiler prepared: in private memory of the process, beside `alive`.

A slot belongs to the name, format and types of an event, by their hash, for as long as the arena
is there: code that leads to it stays, and a thread may be on its way there. A fork's child finds
its slots empty, so the code that it has inherited calls nothing.
"""

from __future__ import annotations

from markerjit.abi import PAGE, SLOT_OWNER
from markerjit.arena.arena import Arena
from markerjit.errors import Refused
from markerjit.memory import Memory
from markerjit.model import RemoteAddress


def take_slot(memory: Memory, arena: Arena, owner: int) -> RemoteAddress:
    """The slot of an owner, which is the hash of its signature and not 0. The caller must hold the
    target's lock. Raises Refused where the arena has no slots, or no more of them."""
    part = arena.geometry.slots
    if not part.entries:
        raise Refused(
            f"the runtime in process {arena.pid} was made by an older markerjit and has no slots "
            "for USDT probes; restart the process"
        )
    start, at = arena.base + part.offset, 0
    while at < part.size:
        page = memory.read(RemoteAddress(start + at), min(PAGE, part.size - at))
        for place in range(0, len(page), part.entry_size):
            field = place + SLOT_OWNER
            known = int.from_bytes(page[field : field + 8], "little")
            if known == owner:
                return RemoteAddress(start + at + place)
            if not known:
                slot = RemoteAddress(start + at + place)
                memory.write(RemoteAddress(slot + SLOT_OWNER), owner.to_bytes(8, "little"))
                return slot
        at += PAGE
    raise Refused(f"the arena has room for {part.entries} USDT probes")
