"""Room for code and data of ours in an arena: the one place that allocates it.

    the code    runtime | recorders ->            <- units of probes, questions
    the data    units of probes ->

A recorder belongs to an entry of a marker, which has one for each way in which it was ever
recorded. It stays with its entry: a thread may be on its way into it, and nothing counts such
threads.

Units and questions are found in their tables, and all between them is free: so there is no list of
free room that a controller could leave wrong when it is killed. A unit that is given back is one
that its table does not have any more (units.py); its bytes stay until the room is used again.
Stubs have room of their own (islands.py).

What this does not do: decide what may be given back (probes/unused.py).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import markerjit.abi as abi
from markerjit.abi import CODE_SIZE, Geometry
from markerjit.arena.control import ControlBlock
from markerjit.arena.extents import Extent, gaps
from markerjit.errors import MarkerError, MemoryFault, Refused
from markerjit.model import RemoteAddress
from markerjit.ring.raw import Store
from markerjit.tuples import NamedTuple


class Taken(NamedTuple):
    """The code taken by units and questions, and the data taken by units. The target can write
    anything there."""

    code: tuple[Extent, ...]
    data: tuple[Extent, ...]


class Room(NamedTuple):
    """Free bytes: of the code, and of the data, in the largest piece of each."""

    code: int
    data: int


class Code:
    """The code and data of an arena that is mapped at `base`. `taken` looks which of it is in use.
    The caller of what takes room must hold the target's lock."""

    def __init__(
        self,
        pid: int,
        base: RemoteAddress,
        store: Store,
        control: ControlBlock,
        geometry: Geometry,
        taken: Callable[[], Taken],
    ) -> None:
        self._pid = pid
        self._base = base
        self._store = store
        self._control = control
        self._data = Extent(geometry.data.offset, geometry.data.end)
        self._taken = taken

    # ---- recorders -----------------------------------------------------------------------------

    def place(self, size: int, align: int = 32) -> RemoteAddress | None:
        """Where a recorder of this size may be put, None when all is taken."""
        start, end = self.room_for_recorders(align)
        return RemoteAddress(self._base + start) if start + size <= end else None

    def room_for_recorders(self, align: int = 32) -> Extent:
        """Where recorders may be put, one behind the other."""
        recorders = self._recorders_end
        gap = next(gaps(Extent(recorders, CODE_SIZE), self._taken().code), Extent(0, 0))
        start = -(-recorders // align) * align
        return Extent(start, gap.end if gap.start == recorders else start)

    def put(self, address: RemoteAddress, code: bytes) -> None:
        """Write a recorder into free room, and mark the room as taken. Raises what `write`
        raises."""
        self.write(address, code)
        self._control.write("code_used", address - self._base + len(code))

    # ---- units and questions -------------------------------------------------------------------

    def place_for_unit(self, size: int, align: int = 64) -> RemoteAddress | None:
        """Where the code of a unit or a question may be put, None when all is taken."""
        return self.places().take(size, align)

    def places(self) -> Places:
        """The free room for units and questions, to be given away while the lock is held."""
        room = Extent(self._recorders_end, CODE_SIZE)
        return Places(self._base, gaps(room, self._taken().code))

    def place_for_data(self, size: int, align: int = 64) -> RemoteAddress | None:
        """Where the variables of a unit may be put, None when all is taken. Some of the room may
        stay free in the end."""
        for gap in gaps(self._data, self._taken().data):
            start = -(-gap.start // align) * align
            if start + size <= gap.end:
                return RemoteAddress(self._base + start)
        return None

    @property
    def room(self) -> Room:
        """The free room."""
        taken = self._taken()
        code = gaps(Extent(self._recorders_end, CODE_SIZE), taken.code)
        data = gaps(self._data, taken.data)
        return Room(
            *(max((gap.end - gap.start for gap in free), default=0) for free in (code, data))
        )

    def write(self, address: RemoteAddress, code: bytes) -> None:
        """Write code into free room, and check that it arrived. Raises what `write_code` raises."""
        write_code(self._pid, self._store, address - self._base, code)

    def write_data(self, address: RemoteAddress, data: bytes) -> None:
        """Write all of a unit's variables, so that nothing is left of what stood there before."""
        offset = address - self._base
        self._store.write(offset, data)
        used = offset - self._data.start + len(data)
        self._control.write("data_used", max(int(self._control.now().data_used), used))

    @property
    def _recorders_end(self) -> int:
        return max(int(self._control.now().code_used), abi.RUNTIME_SIZE)


class Places:
    """Free room for code, given away from its end. It is right for as long as nobody else takes
    room or gives it back. Thousands of questions share one look at the room that is taken, since a
    look for each would take minutes."""

    def __init__(self, base: int, free: Iterable[Extent]) -> None:
        self._base = base
        self._free = list(free)

    def take(self, size: int, align: int) -> RemoteAddress | None:
        """A place for code of this size, None where no gap is large enough."""
        for index in reversed(range(len(self._free))):
            gap = self._free[index]
            start = (gap.end - size) // align * align
            if start >= gap.start:
                self._free[index] = Extent(gap.start, start)
                return RemoteAddress(self._base + start)
        return None


def write_code(pid: int, store: Store, offset: int, code: bytes) -> None:
    """Write code of a process into its arena's memfd, and look whether it arrived.

    Raises Refused where the process has closed its descriptor of it: its memory alone does not take
    code.
    """
    try:
        store.write(offset, code)  # over what stood there before
    except MemoryFault:
        raise Refused(
            f"process {pid} has closed its descriptor of the runtime's memory, so nothing can be "
            "added to it; restart the process"
        ) from None
    if store.read(offset, len(code)) != code:
        raise MarkerError("code for the runtime did not arrive in the target as it was written")
