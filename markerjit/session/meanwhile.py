"""Markers that count for a while, for a picture: those that are on already stay as they are.

What is off is switched on with a deadline, which is off again by itself if we are killed. At the
end we switch off what has this deadline still: another controller may have said meanwhile that a
marker stays on, or has taken it.

A deadline and a probe are those of a marker's entry, and one entry may be of several objects. So a
marker that is on anywhere counts as on.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from time import monotonic_ns

from markerjit.errors import MarkerError, NoSuchProcess, TargetGone
from markerjit.model import Site
from markerjit.patch.request import Request
from markerjit.patch.switchable import SiteState
from markerjit.probes.recorders import Recorders
from markerjit.session.holding import is_bound
from markerjit.session.insist import insist
from markerjit.session.switch import Switcher
from markerjit.session.turn import Turn
from markerjit.sites import ProbeName


@contextmanager
def counting_meanwhile(switcher: Switcher, name: ProbeName, for_s: float) -> Iterator[None]:
    """Within, all that match count; `for_s` seconds later what was off before is off in any case.
    Raises what a switch raises."""
    request = switcher.planner.on()
    until_ns = monotonic_ns() + int(for_s * 1e9)
    sites: Sequence[Site] = ()
    try:
        with switcher.turn() as turn:
            switcher.need_stubs(turn, name, request)
            sites = _off(turn, name)
            if sites:
                try:
                    switcher.switch(turn, sites, request, until_ns=until_ns)
                except MarkerError:
                    sites = ()  # it was undone; whatever else interrupts us, a part may be on
                    raise
        yield
    finally:
        if sites:
            with suppress(TargetGone, NoSuchProcess):
                insist(switcher, name, lambda turn: _end(turn, switcher, sites, request, until_ns))


def _off(turn: Turn, name: ProbeName) -> list[Site]:
    """The sites of markers that are off; beside others that are on, without those that can never
    be."""
    states = turn.target.states(turn.target.matching(name))
    on = {state.site.signature for state in states if state.mode}
    off = [state for state in states if state.site.signature not in on]
    if on:
        off = [state for state in off if not state.site.form.closed]
    return [site for state in off for site in state.lot.sites()]


def _end(
    turn: Turn, switcher: Switcher, sites: Sequence[Site], request: Request, until_ns: int
) -> None:
    """Switch off what is on for us still."""
    recorders = switcher.recorders
    if recorders is None:
        return
    mapped = set(turn.seen.sites)  # objects may have been unloaded since
    states = turn.target.states([site for site in sites if site in mapped])
    ours = [state.site for state in states if _is_ours(recorders, state, request, until_ns)]
    if ours:
        switcher.switch(turn, ours, switcher.planner.off())


def _is_ours(recorders: Recorders, state: SiteState, request: Request, until_ns: int) -> bool:
    markers = recorders.arena.markers
    marker = markers.at(state.data) if state.mode else None
    return (
        marker is not None
        and int(markers.entry(marker).until_ns) == until_ns
        and is_bound(state, request, recorders)
    )
