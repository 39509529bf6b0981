"""The reader of a process's rings, and its lease: one reader at a time, which renews the lease.

A reader that dies, or is held up for longer than its lease, loses its probes. The rings fill,
events that do not fit are counted as lost, and the next controller switches the probes off. Markers
that only count need no reader and have no lease. A flight recorder has no lease either, because it
has no reader.
"""

from __future__ import annotations

import time

from markerjit.abi import Control
from markerjit.arena.arena import Arena
from markerjit.errors import Refused
from markerjit.proc.owner import NOBODY, Owner, from_entry, is_gone, ourselves
from markerjit.tuples import NamedTuple

LEASE_S = 10.0
_RENEW_S = 1.0


_READ_BY_US: set[int] = set()
"""Processes whose rings this process reads: another trace of ours would take its records."""


class Reader(NamedTuple):
    """The reader of the rings. `left_s` is the rest of the lease in seconds, None where there is
    none yet. `over` says that the rings are free: the reader is gone, or did not renew."""

    owner: Owner
    left_s: float | None
    over: bool


def reader_of(arena: Arena, control: Control | None = None) -> Reader | None:
    """The reader of the rings, or None; by the control block, if it was read just now."""
    control = control or arena.control.now()
    owner = from_entry(control.reader)
    if owner == NOBODY:
        return None
    left = (control.lease_ns - time.monotonic_ns()) / 1e9 if control.lease_ns else None
    return Reader(owner, left, is_gone(owner) or (left is not None and left < 0))


class Lease:
    """Our claim on the rings of one arena. Claimed under the target's lock. `reading` is its
    number: no other claim of these rings has it, not of this process either."""

    def __init__(self, arena: Arena) -> None:
        self.reading = 0
        self._arena = arena
        self._renewed_at = 0.0

    def claim(self) -> None:
        """Become the reader. Raises Refused while there is another one."""
        reader = reader_of(self._arena)
        ours = reader is not None and reader.owner == ourselves()
        if reader and (read_by_us(self._arena.pid) if ours else not reader.over):
            raise Refused(
                f"{reader.owner} is tracing process {self._arena.pid} already; end that trace "
                "first",
                try_again=True,
            )
        self.reading = (int(self._arena.control.now().reading) + 1) % (1 << 32) or 1
        self._write_lease()
        _write_reader(self._arena, ourselves())
        self._arena.control.write("reading", self.reading)
        _READ_BY_US.add(self._arena.pid)

    def renew(self) -> bool:
        """Say that we are still there; written once a second. False when another reader has taken
        our place."""
        if not self.is_ours():
            return False
        now = time.monotonic()
        if now - self._renewed_at >= _RENEW_S:
            self._write_lease()
            self._renewed_at = now
        return True

    def release(self, *, keep: bool = False) -> None:
        """Read no more. With `keep` the lease is left to run out: something still records, and the
        next controller is to know."""
        _READ_BY_US.discard(self._arena.pid)
        if not keep and self.is_ours():
            end(self._arena)

    def _write_lease(self) -> None:
        until = time.monotonic_ns() + int(LEASE_S * 1e9)
        self._arena.control.write("lease_ns", until)

    def is_ours(self) -> bool:
        """Whether no other reader has taken our place."""
        control = self._arena.control.now()
        return from_entry(control.reader) == ourselves() and control.reading == self.reading


def read_by_us(pid: int) -> bool:
    """Whether a trace of this process reads the rings of that one."""
    return pid in _READ_BY_US


def end(arena: Arena) -> None:
    """Nobody reads the rings."""
    _write_reader(arena, NOBODY)
    arena.control.write("lease_ns", 0)


def _write_reader(arena: Arena, owner: Owner) -> None:
    arena.store.write(arena.control.offset("reader"), bytes(owner.entry()))


def is_recorded_into(arena: Arena) -> bool:
    """Whether a marker is on that records into the rings, and whose executions the runtime counts.
    That excludes markers with a probe in C."""
    return any(entry.since and entry.counted for entry in arena.markers.entries())


def is_flying(arena: Arena) -> bool:
    """Whether a flight recorder is on. The rings must not be touched while it is."""
    return arena.rings.are_overwritten() and is_recorded_into(arena)
