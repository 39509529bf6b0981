"""What questions of a process have left: the code of those that nothing asks, and the memory of
aggregates that ended. All threads are stopped for a moment before either is given back.

What this does not do: decide what may go (probes/idle.py, arena/aggregates.py).
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from contextlib import suppress
from functools import partial

from markerjit.arena.arena import Arena
from markerjit.errors import MarkerError
from markerjit.patch.plan import by_slot
from markerjit.session.turn import Turn

MOST_ENDED = 16
"""Aggregates that have ended and keep their memory, each of which makes the table longer."""


def give_back(turn: Turn, arena: Arena, keep: Collection[int] = ()) -> int:
    """Give back what nothing uses; returns how many questions that were. The code of the markers to
    `keep` stays. The caller must hold the target's lock."""
    from markerjit.probes.idle import give_back_questions
    from markerjit.probes.unused import sharer_of

    if turn.target.own:
        return 0
    stop = partial(_stop_and_find, turn, arena)
    slots = [site.slot for site in by_slot(turn.seen.sites) if site.slot]
    return give_back_questions(arena, turn.target.memory.read, slots, stop, sharer_of, keep)


def give_back_memory(turn: Turn, arena: Arena) -> None:
    """Free the memory of aggregates that ended. It stays where a thread does not stop just now."""
    if arena.aggregates.ended:
        with suppress(MarkerError):
            _stop_and_find(turn, arena, ())


def _stop_and_find(turn: Turn, arena: Arena, ranges: Sequence[tuple[int, int]]) -> list[bool]:
    """Stop all threads for a moment, find whether one may be in each of these ranges, and free the
    memory of aggregates, for which a stop is enough."""
    from markerjit.proc.barrier import abort_sequences
    from markerjit.remote.references import referred

    if turn.target.own:
        abort_sequences()
        used = [True] * len(ranges)
    else:
        used = referred(turn.native_target(), ranges)
    arena.aggregates.reclaim(arena.is_entered)
    return used
