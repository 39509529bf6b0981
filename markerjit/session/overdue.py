"""Switching off markers whose deadline has passed (arena/deadlines.py).

Each turn begins with it, so the next controller that changes a process does it, whatever became of
the one that was to. A marker that a trace records or a flight recorder keeps has another entry
meanwhile, without a deadline.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress

from markerjit.arena.deadlines import any_is_over, clear_past, is_over
from markerjit.arena.markers import Markers
from markerjit.errors import MemoryFault
from markerjit.model import Site
from markerjit.session.probes_in_c import may_be_entered, wait_until_left
from markerjit.session.target import Target
from markerjit.session.turn import Turn
from markerjit.sites import ProbeName


def switch_off_overdue(
    turn: Turn, switch_off: Callable[[Sequence[Site]], object], early: ProbeName | None
) -> list[str]:
    """Switch off the markers whose deadline has passed, and those that `early` is of and have any
    deadline. Their names. Raises what `switch_off` raises; then the deadlines stay."""
    target, arena = turn.target, turn.seen.arena
    if not arena or not (any_is_over(arena) or early):
        return []
    sooner = set(target.matching(early)) if early else set()
    sites = [
        site
        for site in turn.seen.sites
        if _is_due(target, arena.markers, site, early=site in sooner)
    ]
    if sites:
        entered = may_be_entered(target, sites)
        switch_off(sites)
        wait_until_left(target, entered)
    clear_past(arena)  # last: until then it is known that something is left
    return sorted({site.marker for site in sites})


def _is_due(target: Target, markers: Markers, site: Site, *, early: bool) -> bool:
    with suppress(MemoryFault):  # changed by another tool, and not in our way
        state = target.state(site)
        marker = markers.at(state.data) if state.mode else None
        if marker is not None:
            entry = markers.entry(marker)
            return bool(early and entry.until_ns) or is_over(entry)
    return False
