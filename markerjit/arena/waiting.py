"""Events that wait for the reader where their ring is full (`--lossless`): the reader's side.

An event may wait only while the reader says so: until a moment that is never far away, and that it
moves when it asks for records. So nothing waits for a reader that was killed, or is held up.
native/src/runtime/wait.c is the other side.
"""

from __future__ import annotations

import time

from markerjit.abi import READER_NS
from markerjit.arena.arena import Arena
from markerjit.tuples import NamedTuple

_WORD = 1 << 32


class Waits(NamedTuple):
    """Number of events that waited, and the sum of the times, in nanoseconds."""

    events: int
    ns: int

    @property
    def seconds(self) -> float:
        """The sum in seconds."""
        return round(self.ns / 1e9, 3)


class Waiting:
    """What an arena says of events that wait. Only the reader of its rings may write."""

    def __init__(self, arena: Arena) -> None:
        self._control = arena.control

    def begin(self) -> None:
        """No event waits from here on. An earlier reader may have left threads that were counted as
        waiting."""
        self.forbid()
        self._control.write("waiting", 0)

    def allow(self) -> None:
        """Events may wait for us, for as long as is usual from now on."""
        self._control.write("wait_until_ns", time.monotonic_ns() + READER_NS)

    def forbid(self) -> None:
        """No event waits any more."""
        self._control.write("wait_until_ns", 0)

    def note_pass(self) -> None:
        """We have been through all rings."""
        self._control.write("passes", (self._control.number("passes") + 1) % _WORD)

    @property
    def threads(self) -> int:
        """Number of threads that wait. Below zero where a thread counts itself out that an earlier
        reader left: then 0."""
        number = self._control.number("waiting")
        return number if number < _WORD // 2 else 0

    def counts(self) -> Waits:
        """What has waited since the arena was made."""
        control = self._control.now()
        return Waits(int(control.waits), int(control.waited_ns))
