"""The journal: what a controller is about to write, kept in the target's arena.

    1  all edits into the journal
    2  its head, last of all the word that says that it is open
    3  the edits are written (apply.py), and the table of breakpoints says so
    4  the word again: empty

A controller that dies before 2 has written nothing of the program. Between 2 and 4 its journal
lists the places to check. Only the holder of the target's lock opens a journal or believes its
content. So a journal that is open then belongs to a controller that is gone, or that could not undo
its change, or that has paused. Others may ask for its owner.

A change that is made in stages (session/stepping.py) is journalled as a whole. Its controller gives
the lock back between two stages, so the journal has a lease, which says that it comes back.

What this does not do: judge the bytes in the target, or repair them (session/unfinished.py).
"""

from __future__ import annotations

import ctypes
import time
from collections.abc import Sequence

from markerjit.abi import JOURNAL_EMPTY, JOURNAL_OPEN, EditEntry, JournalHead
from markerjit.arena.arena import Arena
from markerjit.arena.pack import SIZE, unpack
from markerjit.errors import Refused, Unsupported
from markerjit.model import Edit, RemoteAddress
from markerjit.proc.owner import Owner, from_entry, is_gone, ourselves
from markerjit.tuples import NamedTuple

LONGEST_LEASE_S = 3600
"""The process can write over its arena: a longer lease is not believed."""

_LARGE = 1 << 20


class Pause(NamedTuple):
    """A change that is made in stages. `left_s` is the rest of its lease in seconds. `over` says
    that it may be taken back: its controller is gone, or did not renew the lease."""

    owner: Owner
    left_s: float
    over: bool


class Left(NamedTuple):
    """A journal that was found open: whose it is, since when (CLOCK_REALTIME, s), and what is in
    it, as it stands there. Only a repair needs the edits, and there may be a million. `pause` is
    that of a change made in stages."""

    owner: Owner
    since: int
    packed: bytes
    pause: Pause | None = None

    @property
    def edits(self) -> tuple[Edit, ...]:
        """The edits of the change."""
        return tuple(unpack(self.packed))


class Journal:
    """The journal of an arena."""

    def __init__(self, arena: Arena) -> None:
        self._arena = arena
        self._place = arena.control.offset("journal")
        self._written: int | None = None

    def open(self, packed: bytes | bytearray, *, lease_s: int = 0) -> None:
        """Steps 1 and 2; with a lease for a change that is made in stages. Raises Refused if there
        is no room for so many edits."""
        edits = self._arena.geometry.edits
        count = len(packed) // SIZE
        if count > edits.entries:
            raise Refused(
                f"{count} edits in one transaction; the journal has room for "
                f"{edits.entries}: switch fewer markers at a time"
            )
        store = self._arena.store
        store.write(edits.offset, bytes(packed))
        until = _until(lease_s) if lease_s else 0
        head = JournalHead(JOURNAL_OPEN, count, int(time.time()), until, ourselves().entry())
        word = JournalHead.state.size
        store.write(self._place + word, bytes(head)[word:])
        store.write(self._place, bytes(head)[:word])
        self._written = count

    def renew(self, lease_s: int) -> None:
        """Renew the lease of a change that is made in stages. The caller must hold the lock, and
        have seen that the change is its own."""
        at = self._place + JournalHead.until.offset
        self._arena.store.write(at, _until(lease_s).to_bytes(4, "little"))

    def note_breakpoints(
        self, planted: Sequence[RemoteAddress], removed: Sequence[RemoteAddress]
    ) -> None:
        """The end of step 3: which breakpoints stand now, and which have gone."""
        self._arena.patches.mark(planted, removed)

    def close(self) -> None:
        """Step 4."""
        edits = self._arena.geometry.edits
        count = self._head().edits if self._written is None else self._written
        self._arena.store.write(self._place, JOURNAL_EMPTY.to_bytes(4, "little"))
        used = min(count, edits.entries) * SIZE
        if used > _LARGE:
            self._arena.store.release(edits.offset, used)

    def owner(self) -> Owner | None:
        """The controller that has it open, or None. For callers that do not hold the lock, and so
        may not believe the rest of it."""
        head = self._head()
        return from_entry(head.owner) if head.state == JOURNAL_OPEN else None

    def pause(self) -> Pause | None:
        """The change that is made in stages now, or None. As `owner`, for all callers."""
        head = self._head()
        return _pause_of(head) if head.state == JOURNAL_OPEN else None

    def left(self) -> Left | None:
        """The change that is open now, or None. The caller must hold the lock. Raises Unsupported
        when it cannot be understood."""
        head = self._head()
        if head.state == JOURNAL_EMPTY:
            return None
        edits = self._arena.geometry.edits
        if head.state != JOURNAL_OPEN or head.edits > edits.entries or edits.entry_size != SIZE:
            raise Unsupported("the journal in the arena makes no sense; restart the target")
        packed = self._arena.store.read(edits.offset, head.edits * SIZE)
        sizes = packed[EditEntry.size.offset :: SIZE]
        if not all(0 < size <= EditEntry.new_bytes.size for size in sizes):
            raise Unsupported("an edit in the journal makes no sense; restart the target")
        return Left(from_entry(head.owner), head.since, packed, _pause_of(head))

    def _head(self) -> JournalHead:
        data = self._arena.store.read(self._place, ctypes.sizeof(JournalHead))
        return JournalHead.from_buffer_copy(data)


def _until(lease_s: int) -> int:
    return (int(time.monotonic()) + lease_s) % (1 << 32)


def _pause_of(head: JournalHead) -> Pause | None:
    if not head.until:
        return None
    owner, left_s = from_entry(head.owner), head.until - time.monotonic()
    return Pause(owner, left_s, not 0 <= left_s <= LONGEST_LEASE_S or is_gone(owner))
