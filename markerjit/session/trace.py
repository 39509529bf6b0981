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
from time import monotonic, sleep, time_ns
from typing import NamedTuple

from markerjit.arena.lease import Lease
from markerjit.arena.waiting import Waiting
from markerjit.errors import MarkerError, NoSuchProcess, NotPermitted, Refused, TargetGone
from markerjit.events.feed import Feed
from markerjit.events.rings import Rings
from markerjit.events.stream import EventStream
from markerjit.model import Mode, Site
from markerjit.patch.holds import Held
from markerjit.patch.request import Count, Request, Where
from markerjit.patch.switchable import LeftOut
from markerjit.probes.recorders import Recorders
from markerjit.quiesce.strategies import default_strategy
from markerjit.remote.filters import Filters
from markerjit.ring.clock import Calibration
from markerjit.ring.types import RecordType
from markerjit.session.clock import EarlyClock
from markerjit.session.entries import Entries, slots_by_entry
from markerjit.session.flight import FlightRecorder
from markerjit.session.holding import is_bound
from markerjit.session.probes_in_c import load_probe, may_be_entered, wait_until_left
from markerjit.session.recording import Recording, fit_rings, ready_to_record, shrink_rings
from markerjit.session.switch import Switcher
from markerjit.session.target import Target
from markerjit.session.turn import Turn
from markerjit.sites import ProbeName
from markerjit.trace.sink import TraceInfo

_TRY_AGAIN_S = 30


class Asked(NamedTuple):
    """The request for a trace, and the clocks at the start of its session. `growth`: the most bytes
    by which the rings may grow in all."""

    name: ProbeName
    recording: Recording
    resume: bool
    poll_s: float
    clock: EarlyClock
    growth: int

    @property
    def request(self) -> Request:
        """How the markers are to be on."""
        return self.recording.request


class Claim(NamedTuple):
    """The rings, claimed: what will be switched on, markers that a question leaves out, and the
    bytes of an earlier reader that are dropped."""

    recorders: Recorders
    sites: Sequence[Site]
    left_out: tuple[LeftOut, ...]
    lease: Lease
    resume: bool
    dropped_bytes: int


class Counting(NamedTuple):
    """Sites that only count, and how each is on, with which question; and by which process, by the
    entry."""

    ways: Mapping[Site, tuple[Mode, Count]]
    by: Mapping[int, int]


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
            counting = _counting(turn, claim)
            feed.let_wait()
            switched = True  # or partly, whatever interrupts us: only an error has undone it
            try:
                done = switcher.switch(turn, claim.sites, asked.request, held=claim.lease.reading)
            except MarkerError:
                switched = False
                raise
        feed.let_wait()
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
                _switch_off_for_sure(switcher, claim, asked, feed, counting)
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
    recorders, sites, left_out = ready_to_record(turn, switcher, asked.name, asked.recording)
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
    return Feed(
        arena,
        _types(switcher, claim, asked.request),
        alive=lambda: target.memory.alive() and target.memory.has_program(arena.base),
        renew=lease.renew,
        is_ours=lease.is_ours,
        resume=claim.resume,
        first_clock=asked.clock.pair(),
        held=Held(arena, lease.reading, _names_by_entry(claim, asked.request)),
        waiting=Waiting(arena) if asked.request.probe.options.waits else None,
        growth=arena.rings.growth(asked.growth),
    )


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


def _counting(turn: Turn, claim: Claim) -> Counting:
    """Sites that were on and only counted before the trace. They count again after it."""
    arena = claim.recorders.arena
    ways: dict[Site, tuple[Mode, Count]] = {}
    by: dict[int, int] = {}
    for state in turn.target.states(claim.sites):
        if state.mode and arena.counts(state.probe, state.data):
            probe = Count()
            if (marker := arena.markers.at(state.data)) is not None:
                entry = arena.markers.entry(marker)
                by[marker] = int(entry.by)
                if entry.asks:
                    probe = Count(Where(arena.question(state.data), int(entry.question)))
            ways[state.site] = state.mode, probe
    return Counting(ways, by)


# ---- the end -------------------------------------------------------------------------------------


def _switch_off_for_sure(
    switcher: Switcher, claim: Claim, asked: Asked, feed: Feed, counting: Counting
) -> None:
    """Switches off, and tries again for half a minute where that may help: another controller or
    tracer is at work, or a thread waits in the kernel. No later caller would try again."""
    deadline = monotonic() + _TRY_AGAIN_S
    while True:
        try:
            with switcher.turn() as turn:
                if claim.lease.is_ours():  # else another controller has the markers
                    _switch_off(turn, switcher, claim, asked.request, feed, counting)
            return
        except (TargetGone, NoSuchProcess):
            raise
        except MarkerError as error:
            passing = isinstance(error, Refused) and error.try_again
            may_help = passing or isinstance(error, NotPermitted)
            if not may_help or monotonic() > deadline:
                raise Refused(
                    f"{error}; STILL ON: markerjit off {switcher.target.pid} '{asked.name}' "
                    "ends it",
                    try_again=may_help,
                ) from None
        sleep(0.05)


def _switch_off(
    turn: Turn,
    switcher: Switcher,
    claim: Claim,
    request: Request,
    feed: Feed,
    counting: Counting,
) -> None:
    """Switches the trace's markers off, except those that another controller has switched since."""
    ours, taken = _still_ours(turn, claim, request)
    feed.let_go(sorted(taken))
    entered = may_be_entered(turn.target, ours)
    again = _count_again(turn, switcher, claim, ours, counting)
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


def _still_ours(turn: Turn, claim: Claim, request: Request) -> tuple[list[Site], set[str]]:
    """The sites that are still bound to this trace, and the markers that are on for another
    controller now."""
    arena = claim.recorders.arena
    mapped = set(turn.seen.sites)  # objects may have been unloaded since
    ours, taken = [], set()
    for state in turn.target.states([site for site in claim.sites if site in mapped]):
        marker = arena.markers.at(state.data)
        held = marker is not None and arena.markers.entry(marker).held == claim.lease.reading
        if held and is_bound(state, request, claim.recorders):
            ours.append(state.site)
        elif state.mode:
            taken.add(state.site.marker)
    return ours, taken


def _count_again(
    turn: Turn, switcher: Switcher, claim: Claim, sites: Sequence[Site], counting: Counting
) -> set[Site]:
    """Let the sites that only counted before count again; returns them. They were on all the time,
    and belong again to the controller that switched them on."""
    again = [site for site in sites if site in counting.ways]
    strategy = default_strategy(own=turn.target.own)
    for mode, probe in {counting.ways[site] for site in again}:
        alike = [site for site in again if counting.ways[site] == (mode, probe)]
        switcher.switch(turn, alike, Request(True, strategy, mode, probe))
    if again:
        Entries(turn, claim.recorders).note_by(counting.by)
    return set(again)


def trace_info(target: Target, types: tuple[RecordType, ...], clock: Calibration) -> TraceInfo:
    """The origin of events of these types, as a trace file states it."""
    sources: dict[str, str] = {}
    for site in target.seen.sites:
        sources.setdefault(site.marker, site.source)
    return TraceInfo(
        types, clock, target.pid, target.command, os.uname().nodename, time_ns(),
        {type_.marker: sources.get(type_.marker, "") for type_ in types},
    )  # fmt: skip
