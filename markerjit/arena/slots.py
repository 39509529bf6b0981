"""Slots of sites that no compiler prepared: in private memory of the process, beside `alive`.

A slot belongs to the name, format and types of an event, by their hash, for as long as the arena
is there: code that leads to it stays, and a thread may be on its way there. A fork's child finds
its slots empty, so the code that it has inherited calls nothing.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable

from markerjit.abi import PAGE, SLOT_OWNER
from markerjit.arena.arena import Arena
from markerjit.errors import Refused
from markerjit.memory import Memory
from markerjit.model import RemoteAddress

_OWNER = struct.Struct("<Q")


class Slots:
    """The slots of an arena, as they are while the caller holds the target's lock.

    Owners are hashes of signatures, and not 0.
    """

    def __init__(self, memory: Memory, arena: Arena) -> None:
        """Raises Refused for an arena without slots."""
        part = arena.geometry.slots
        if not part.entries:
            raise Refused(
                f"the runtime in process {arena.pid} was made by an older markerjit and has no "
                "slots for USDT probes and functions; restart the process"
            )
        self._memory = memory
        self._start = arena.base + part.offset
        self._part = part
        self._taken = {owner: number for number, owner in enumerate(self._owners())}

    def _owners(self) -> Iterable[int]:
        """The owners, in the order of their slots, up to the first slot that is free."""
        step = self._part.entry_size
        for at in range(0, self._part.size, PAGE):
            size = min(PAGE, self._part.size - at)
            page = self._memory.read(RemoteAddress(self._start + at), size)
            for place in range(SLOT_OWNER, size, step):
                (owner,) = _OWNER.unpack_from(page, place)
                if not owner:
                    return
                yield owner

    def check_room(self, owners: Iterable[int]) -> None:
        """Raises Refused where there are not as many free slots as these owners would take."""
        new = set(owners).difference(self._taken)
        room = self._part.entries
        if len(self._taken) + len(new) > room:
            raise Refused(
                f"the arena has room for {room} USDT probes and functions in all, and has "
                f"{len(self._taken)}: {len(new)} more are too many; name fewer"
            )

    def take(self, owner: int) -> RemoteAddress:
        """The slot of an owner, its own from now on. `check_room` has said that there is one."""
        number = self._taken.get(owner)
        if number is not None:
            return self._at(number)
        slot = self._at(len(self._taken))
        self._memory.write(RemoteAddress(slot + SLOT_OWNER), _OWNER.pack(owner))
        self._taken[owner] = len(self._taken)
        return slot

    def take_many(self, owners: Iterable[int]) -> None:
        """Have a slot for each of these owners, by one write: nobody writes into slots that are
        free. `take` says where they are."""
        new = [owner for owner in dict.fromkeys(owners) if owner not in self._taken]
        if not new:
            return
        step, start = self._part.entry_size, self._at(len(self._taken))
        slots = bytearray(self._memory.read(start, step * len(new)))
        for number, owner in enumerate(new):
            _OWNER.pack_into(slots, number * step + SLOT_OWNER, owner)
        self._memory.write(start, bytes(slots))
        for owner in new:
            self._taken[owner] = len(self._taken)

    def _at(self, number: int) -> RemoteAddress:
        return RemoteAddress(self._start + number * self._part.entry_size)
