"""A trace: markers record for one reader, which streams the events; at its end they are off.

    1  the rings are claimed, in a turn that switches nothing on: a lease, which the stream renews
    2  the stream begins: what an earlier reader left is dropped or taken over
    3  the markers are switched on, for this reading of the rings
    4  whatever happens, they are switched off again: for half a minute if need be. Markers that
       only counted before count again, and what others have taken meanwhile is left alone
    5  what is left is taken out of the rings, and they are given back, and so is the memory by
       which they have grown

Killed between 1 and 5, the trace leaves a lease that runs out; then the next controller switches
its markers off (switch.py).
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from time import time_ns
from typing import TYPE_CHECKING

from markerjit.arena.lease import Lease
from markerjit.arena.waiting import Waiting
from markerjit.errors import MarkerError, NoSuchProcess, TargetGone
from markerjit.events.bounds import Bounds
from markerjit.events.feed import Feed
from markerjit.events.rings import Rings
from markerjit.events.stream import EventStream
from markerjit.model import RemoteAddress, Site
from markerjit.patch.holds import Held
from markerjit.patch.request import Request
from markerjit.patch.switchable import LeftOut
from markerjit.probes.recorders import Recorders
from markerjit.remote.filters import Filters
from markerjit.ring.clock import Calibration
from markerjit.ring.types import RecordType, has_stacks
from markerjit.session.clock import EarlyClock
from markerjit.session.counting import Counting, count_again, counting
from markerjit.session.entries import slots_by_entry
from markerjit.session.flight import FlightRecorder
from markerjit.session.holding import is_bound
from markerjit.session.insist import insist
from markerjit.session.probes_in_c import load_probe, may_be_entered, wait_until_left
from markerjit.session.recording import Prepare, Recording, fit_rings, ready_to_record, shrink_rings
from markerjit.session.status import unmatched
from markerjit.session.switch import Switcher
from markerjit.session.target import Target
from markerjit.session.turn import Turn
from markerjit.sites import ProbeName
from markerjit.trace.sink import TraceInfo
from markerjit.tuples import NamedTuple

if TYPE_CHECKING:
    from markerjit.session.walked import WalkedStacks


class Asked(NamedTuple):
    """The request for a trace, and the clocks at the start of its session. `growth`: the most bytes
    by which the rings may grow in all. `bounds`: what ends the stream by itself. `prepare`: has
    what is to be recorded ready, in the place of all that `name` is of."""

    name: ProbeName
    recording: Recording
    resume: bool
    poll_s: float
    clock: EarlyClock
    growth: int
    bounds: Bounds
    prepare: Prepare | None = None

    @property
    def request(self) -> Request:
        """How the markers are to be on."""
        return self.recording.request


class Claim(NamedTuple):
    """The rings, claimed: what will be switched on, markers that are left out before there is a
    plan, and the bytes of an earlier reader that are dropped."""

    recorders: Recorders
    sites: Sequence[Site]
    left_out: tuple[LeftOut, ...]
    lease: Lease
    resume: bool
    dropped_bytes: int


@contextmanager
def traced(switcher: Switcher, flights: FlightRecorder, asked: Asked) -> Iterator[EventStream]:
    """The stream of a trace, which ends with the context. Raises what a switch raises, and Refused
    while another reader has the rings or a flight recorder is on."""
    with switcher.turn() as turn:
        claim = _claim(turn, switcher, flights, asked)
    switched = off = False
    try:
        feed = _feed(switcher, claim, asked)
        with switcher.turn() as turn:
            if compiled := asked.recording.compiled:
                # A probe that no marker calls yet may have been removed meanwhile.
                load_probe(turn, switcher, claim.sites, asked.request, compiled)
            before = counting(turn, claim.recorders, claim.sites)
            feed.let_wait()
            switched = True  # or partly, whatever interrupts us: only an error has undone it
            try:
                done = switcher.switch(turn, claim.sites, asked.request, held=claim.lease.reading)
            except MarkerError:
                switched = False
                raise
        feed.let_wait()
        asked.bounds.begin()
        try:
            yield EventStream(
                feed,
                poll_s=asked.poll_s,
                dropped_bytes=claim.dropped_bytes,
                unswitched=(*claim.left_out, *done.applied.left_out),
            )
        finally:
            feed.let_wait()
            with suppress(TargetGone, NoSuchProcess):
                _switch_off_for_sure(switcher, claim, asked, feed, before)
            off = True
            with suppress(TargetGone):
                if claim.lease.is_ours():
                    feed.let_wait()
                    feed.finish()
                    if feed.grown:
                        _shrink(switcher, claim)
    finally:
        with suppress(TargetGone):
            claim.lease.release(keep=switched and not off)


def check_that_threads_may_wait(target: Target) -> None:
    """Raise Unsupported where a seccomp filter of a thread does not allow it to wait for us."""
    from markerjit.arena.needed import WAITING

    Filters(target.pid, lambda: WAITING, trust=target.trusts_filters).check(set())


def _claim(turn: Turn, switcher: Switcher, flights: FlightRecorder, asked: Asked) -> Claim:
    recorders, sites, left_out = ready_to_record(
        turn, switcher, asked.name, asked.recording, asked.prepare
    )
    flights.refuse_while_on(turn, recorders)
    arena = recorders.arena
    lease = Lease(arena)
    lease.claim()
    try:
        Waiting(arena).begin()
        resume = asked.resume and not arena.rings.are_overwritten()  # those had no reader
        dropped = 0 if resume else Rings(arena, {}).unread()
        fit_rings(turn, arena, switcher.ring_size, keep=resume)
    except BaseException:
        lease.release()
        raise
    return Claim(recorders, sites, left_out, lease, resume, dropped)


def _feed(switcher: Switcher, claim: Claim, asked: Asked) -> Feed:
    target, arena, lease = switcher.target, claim.recorders.arena, claim.lease
    types = _types(switcher, claim, asked.request)
    return Feed(
        arena,
        types,
        alive=lambda: target.memory.alive() and target.memory.has_program(arena.base),
        renew=lease.renew,
        is_ours=lease.is_ours,
        resume=claim.resume,
        first_clock=asked.clock.pair(),
        held=Held(arena, lease.reading, _names_by_entry(claim, asked.request)),
        waiting=Waiting(arena) if asked.request.probe.options.waits else None,
        growth=arena.rings.growth(asked.growth),
        bounds=asked.bounds,
        stacks=_stacks(switcher, types),
    )


def _stacks(switcher: Switcher, types: Mapping[int, RecordType]) -> WalkedStacks | None:
    """The stacks of the process, where records have some."""
    if not has_stacks(types.values()):
        return None
    from markerjit.session.walked import WalkedStacks

    return WalkedStacks(switcher)


def _types(switcher: Switcher, claim: Claim, request: Request) -> dict[int, RecordType]:
    """The types of the records in the rings, by the ids of the markers. Where the trace resumes,
    these include the earlier records."""
    recorders = claim.recorders
    types = recorders.types_of((site.signature for site in claim.sites), request.probe)
    if claim.resume:
        before = recorders.types(site.signature for site in switcher.target.seen.sites)
        kind = (request.probe.options.time, request.probe.options.thread_id)
        types |= {id: type_ for id, type_ in before.items() if (type_.time, type_.tid) == kind}
    return types


def _names_by_entry(claim: Claim, request: Request) -> dict[int, str]:
    """The markers that these sites are switched to, by their entries."""
    names = {site.slot: site.marker for site in claim.sites}
    slots = slots_by_entry(claim.sites, request, claim.recorders)
    return {marker: names[of[0]] for marker, of in slots.items()}


# ---- the end -------------------------------------------------------------------------------------


def _switch_off_for_sure(
    switcher: Switcher, claim: Claim, asked: Asked, feed: Feed, before: Counting
) -> None:
    """Switches off, unless another controller has the rings."""
    unseen: dict[RemoteAddress, int] = {}
    again: set[Site] = set()

    def end(turn: Turn) -> None:
        if claim.lease.is_ours():
            ours, taken = _still_ours(turn, claim, asked.request, again)
            feed.let_go(sorted(taken))
            unseen.update(unmatched(turn.target.states(ours)))  # as an earlier attempt did, too
            feed.unmatched = sum(unseen.values())
            _switch_off(turn, switcher, claim, ours, before, again)

    insist(switcher, asked.name, end)


def _switch_off(
    turn: Turn,
    switcher: Switcher,
    claim: Claim,
    ours: Sequence[Site],
    before: Counting,
    again: set[Site],
) -> None:
    """Switches off those sites of the trace that are its own still."""
    entered = may_be_entered(turn.target, ours)
    count_again(turn, switcher, claim.recorders, ours, before, again)
    rest = [site for site in ours if site not in again]
    done = switcher.switch(turn, rest, switcher.planner.off())
    wait_until_left(turn.target, entered)
    for state in done.states:
        if state.problem:  # another tool has patched it: it was left as it is
            raise state.problem


def _shrink(switcher: Switcher, claim: Claim) -> None:
    """Give back the memory by which the rings have grown. It is the next trace's to do where that
    cannot be done now."""
    with suppress(MarkerError), switcher.turn() as turn:
        if claim.lease.is_ours():
            shrink_rings(turn, claim.recorders.arena)


def _still_ours(
    turn: Turn, claim: Claim, request: Request, again: set[Site]
) -> tuple[list[Site], set[str]]:
    """The sites that are still bound to this trace, and the markers that are on for another
    controller now: those that count `again` are neither."""
    arena = claim.recorders.arena
    mapped = set(turn.seen.sites) - again  # objects may have been unloaded since
    ours, taken = [], set()
    for state in turn.target.states([site for site in claim.sites if site in mapped]):
        marker = arena.markers.at(state.data)
        held = marker is not None and arena.markers.entry(marker).held == claim.lease.reading
        if held and is_bound(state, request, claim.recorders):
            ours.append(state.site)
        elif state.mode:
            taken.add(state.site.marker)
    return ours, taken


def trace_info(target: Target, types: tuple[RecordType, ...], clock: Calibration) -> TraceInfo:
    """The origin of events of these types, as a trace file states it."""
    sources: dict[str, str] = {}
    for site in target.seen.sites:
        sources.setdefault(site.marker, site.source)
    return TraceInfo(
        types, clock, target.pid, target.command, os.uname().nodename, time_ns(),
        {type_.marker: sources.get(type_.marker, "") for type_ in types},
    )  # fmt: skip
