"""Markers that others hold, and what a switch takes from them. It only reads.

The module patch/holds.py finds the holder of a marker. This one decides what a request does about
it. A trace keeps its markers, and so does a flight recorder, unless they are taken by force. A
flight recorder is ended by switching off, as it is meant to be.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from markerjit.errors import Reason, Refused
from markerjit.model import Site
from markerjit.patch.holds import Hold, Holds, adds_for, kept_by, recorded_by, them
from markerjit.patch.request import Request
from markerjit.patch.switchable import SiteState
from markerjit.probes.recorders import Recorders
from markerjit.session.target import Target, command_of
from markerjit.sites import ProbeName
from markerjit.tuples import NamedTuple


class Took(NamedTuple):
    """Markers that a switch takes from a trace, and those that it ends a flight recorder of."""

    taken: tuple[str, ...] = ()
    ended: tuple[str, ...] = ()


def take(
    target: Target,
    recorders: Recorders | None,
    name: ProbeName,
    request: Request,
    *,
    force: bool = False,
) -> Took:
    """The markers that a switch takes from other holders. Raises Refused where they are held and
    the switch may not use force."""
    holds = Holds(recorders.arena) if recorders else None
    if not holds or not recorders:
        return Took()
    held: dict[Hold, dict[str, SiteState]] = {hold: {} for hold in Hold}
    for state in target.states(target.matching(name)):
        hold = holds.of(state)
        stays = hold is Hold.FLIGHT and request.on and is_bound(state, request, recorders)
        if hold and not stays:
            held[hold].setdefault(state.site.marker, state)
    traced, flown, added = held[Hold.TRACE], held[Hold.FLIGHT], held[Hold.AGGREGATE]
    if not traced and not flown and not added:
        return Took()
    from shlex import quote

    words = ["on" if request.on else "off", str(target.pid), *([name.text] if name.text else [])]
    command = f"markerjit {' '.join(map(quote, words))} --force"
    if traced and holds.reader and not force:
        holder = recorded_by(recorders.arena, traced, holds.reader, command_of(holds.reader.pid))
        raise Refused(
            f"{holder}; end that, or {command} takes {them(traced)}",
            reason=Reason.HELD,
            try_again=True,
        )
    if added and not force:
        raise Refused(
            f"{added_up_by(recorders, added)}; end that, or {command} takes {them(added)}",
            reason=Reason.HELD,
            try_again=True,
        )
    if flown and request.on and not force:
        raise Refused(
            f"{kept_by(recorders.arena, flown)}; markerjit flight dump {target.pid} -o FILE saves "
            f"what it has, and {command} takes {them(flown)}",
            reason=Reason.HELD,
        )
    return Took((*traced, *added), tuple(flown))


def refuse_added_up(target: Target, recorders: Recorders, sites: Sequence[Site]) -> None:
    """Raise Refused where one of these is added up for another reader, or for another aggregate of
    ours."""
    arena = recorders.arena
    if not arena.aggregates.all():
        return
    added: dict[str, SiteState] = {}
    for state in target.states(sites):
        if state.mode and adds_for(arena, state):
            added.setdefault(state.site.marker, state)
    if added:
        raise Refused(
            f"{added_up_by(recorders, added)}; end that first", reason=Reason.HELD, try_again=True
        )


def added_up_by(recorders: Recorders, markers: Mapping[str, SiteState]) -> str:
    """`kv_get is added up by process 7 (markerjit count …), on since 14:03`."""
    owner = adds_for(recorders.arena, next(iter(markers.values())))
    assert owner
    return recorded_by(recorders.arena, markers, owner, command_of(owner.pid), hold=Hold.AGGREGATE)


def is_bound(state: SiteState, request: Request, recorders: Recorders) -> bool:
    """Whether a slot holds what it would hold if it was switched on so."""
    marker = recorders.find(state.site.signature, request.probe)
    if marker is None or recorders.arena.markers.at(state.data) != marker:
        return False
    preserving = state.site.body.preserving
    return state.probe == recorders.probe(marker, request.probe, preserving=preserving)
