"""Deadlines: when markers are to be off again, whatever becomes of the controller that says so.

A marker's entry has the time (CLOCK_MONOTONIC, ns), 0 for none. The control block has the earliest
of them, so that a look costs one word where there are none. While that word is 0 so are those of
all entries: the word is written before the first of them, and cleared after the last.

What this does not do: switch markers off (session/overdue.py). Nothing in the target looks at a
deadline: a probe that reads a clock for each execution would cost more than the count itself.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping

from markerjit.abi import MarkerEntry
from markerjit.arena.arena import Arena

_GRACE_NS = 1_000_000_000
"""The time that the responsible controller has to switch off before an overdue marker is
reported."""


def set_deadline(arena: Arena, markers: Iterable[int], until_ns: int) -> dict[int, int]:
    """Set the time by which these markers are to be off; 0: they stay on. Returns the previous
    deadline of each, as `restore_deadlines` takes it."""
    earliest = arena.control.number("until_ns")
    if not until_ns and not earliest:
        return {}
    if until_ns and (not earliest or until_ns < earliest):
        arena.control.write("until_ns", until_ns)
    before = {marker: int(arena.markers.entry(marker).until_ns) for marker in markers}
    for marker, known in before.items():
        if known != until_ns:
            arena.markers.note_until(marker, until_ns)
    return before


def restore_deadlines(arena: Arena, before: Mapping[int, int]) -> None:
    """Restore the deadlines that `set_deadline` replaced."""
    for marker, until_ns in before.items():
        arena.markers.note_until(marker, until_ns)


def any_is_over(arena: Arena) -> bool:
    """Whether a deadline may have passed."""
    earliest = arena.control.number("until_ns")
    return bool(earliest) and earliest <= time.monotonic_ns()


def is_over(entry: MarkerEntry) -> bool:
    """Whether the marker was to be off by now."""
    return bool(entry.until_ns) and int(entry.until_ns) <= time.monotonic_ns()


def clear_past(arena: Arena) -> None:
    """Forget the deadlines that have passed, and find the next one."""
    rest = []
    for entry in arena.markers.entries():
        if is_over(entry):
            arena.markers.note_until(int(entry.id), 0)
        elif entry.until_ns:
            rest.append(int(entry.until_ns))
    arena.control.write("until_ns", min(rest, default=0))


def overdue(arena: Arena) -> tuple[str, ...]:
    """The names of markers that are on and were to be off a moment ago."""
    if not any_is_over(arena):
        return ()
    now = time.monotonic_ns()
    return tuple(
        entry.name.decode(errors="replace")
        for entry in arena.markers.entries()
        if entry.since and 0 < int(entry.until_ns) < now - _GRACE_NS
    )


def at_time(until_ns: int) -> float:
    """A deadline in seconds since 1970."""
    return time.time() + (until_ns - time.monotonic_ns()) / 1e9
