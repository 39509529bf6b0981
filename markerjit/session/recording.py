"""The preparation for recording: the runtime knows the markers, and the rings have the right size.

What this does not do: claim the rings (trace.py, flight.py), and switch.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from markerjit.arena.arena import Arena
from markerjit.arena.lease import is_recorded_into
from markerjit.arguments import check_all, check_flag, check_int, check_is, check_text
from markerjit.errors import Refused
from markerjit.events.rings import Rings
from markerjit.model import Mode, Site
from markerjit.patch.request import Count, Record, Request
from markerjit.patch.switchable import LeftOut
from markerjit.probes.c.unit import Compiled
from markerjit.probes.recorders import (
    Recorders,
    check_fields,
    compiled_probe,
    options_of,
    probe_of,
)
from markerjit.ring.brakes import Brakes
from markerjit.ring.types import Strings, Time
from markerjit.session.asking import askable
from markerjit.session.holding import refuse_added_up
from markerjit.session.notes import left_out_by_notes
from markerjit.session.planning import Planner
from markerjit.session.probes_in_c import load_probe
from markerjit.session.switch import Switcher, tell_of_markers
from markerjit.session.turn import Turn
from markerjit.sites import ProbeName
from markerjit.tuples import NamedTuple


class Recording(NamedTuple):
    """A request to record: how markers are switched on, and the probe in C if it has one."""

    request: Request
    compiled: Compiled | None

    def read(self) -> Recording:
        """The same for a reader: what it takes out of the rings need not be counted."""
        probe = self.request.probe
        if not isinstance(probe, Count):
            probe = probe._replace(options=probe.options._replace(counted=False))
        return self._replace(request=self.request._replace(probe=probe))

    def with_breakpoints(self) -> Recording:
        """The same with breakpoints where nothing else opens code that nobody prepared."""
        return self._replace(request=self.request._replace(breakpoints=True))

    def with_rsp(self) -> Recording:
        """The same with the stack pointer in each event, for sites that have a stub."""
        probe = self.request.probe
        assert isinstance(probe, Record)
        probe = probe._replace(options=probe.options._replace(rsp=True))
        return self._replace(request=self.request._replace(probe=probe))


def recording_of(
    planner: Planner,
    mode: Mode | str | None,
    probe: str | Compiled,
    quiesce: str | None,
    time: Time | str | None,
    thread_id: bool,
    fields: Sequence[str] | str | None,
    text: int,
    strings: Strings | str,
    where: str | None,
    select: str | None,
    brakes: Brakes,
    *,
    lossless: bool = False,
    stack: int | None = None,
) -> Recording:
    """From the arguments that `Session.trace` and `Session.record` share, which are checked."""
    check_is("probe", probe, str, Compiled)
    check_flag("thread_id", thread_id)
    check_flag("lossless", lossless)
    if fields is not None:
        names = [fields] if isinstance(fields, str) else fields
        check_all("fields", names, str)
        for name in names:
            check_text("fields", name)
    check_int("text", text, 1)
    compiled = compiled_probe(probe)
    options = options_of(compiled, time, thread_id, fields, text, strings, lossless=lossless)
    asked = probe_of(compiled or probe, options, where, select, brakes, stack)
    return Recording(planner.on(quiesce, mode, asked), compiled)


Prepare = Callable[[Turn], Sequence[Site]]
"""Has sites ready that can be switched on."""


class Recordable(NamedTuple):
    """The arena's recorders, the sites that match, and markers that a question leaves out, or a
    note that is not understood."""

    recorders: Recorders
    sites: Sequence[Site]
    left_out: tuple[LeftOut, ...]


def ready_to_record(
    turn: Turn,
    switcher: Switcher,
    name: ProbeName,
    recording: Recording,
    prepare: Prepare | None = None,
) -> Recordable:
    """What is to be recorded: what the name is of, or has been prepared. The runtime knows of the
    markers then, but none is switched on. Raises Refused, UnknownMarker, and what a question and a
    plan raise."""
    request, compiled = recording
    if prepare:
        matching = prepare(turn)
    else:
        switcher.need_stubs(turn, name, request)
        matching = turn.target.matching(name)
    sites, left_out = askable(matching, request.probe)
    check_fields([site.signature for site in sites], request.probe.options.fields or ())
    if compiled:
        load_probe(turn, switcher, sites, request, compiled)
    recorders = switcher.need_arena(turn, sites, request)
    refuse_added_up(turn.target, recorders, sites)
    _check_time(recorders.arena, request.probe.options.time)
    tell_of_markers(turn, sites, request, recorders)
    notes = left_out_by_notes(turn.target, name)
    return Recordable(recorders, sites, (*notes, *left_out))


def fit_rings(turn: Turn, arena: Arena, size: int | None, *, keep: bool = False) -> None:
    """Make the rings as large as was asked for; without a size as large as they were before a
    trace let them grow that did not come to its end. Raises Refused for another size where what is
    in them is to be kept, or something records into them."""
    turn.check()
    sizes = set(arena.rings.sizes())
    first = arena.rings.first_size
    if sizes == {size or first}:
        return
    if keep or is_recorded_into(arena):
        if size in (None, first):
            return
        raise Refused(
            f"the rings of process {arena.pid} have {max(sizes) >> 10} KiB and are in use; "
            "leave out --ring-size"
        )
    Rings(arena, {}).start()
    arena.rings.resize(size or first)


def shrink_rings(turn: Turn, arena: Arena) -> None:
    """Give back the memory by which the rings have grown. Nothing is left in them. Leaves it to the
    next trace where something records into them."""
    turn.check()
    if not is_recorded_into(arena) and not Rings(arena, {}).unread():
        arena.rings.resize(arena.rings.first_size)


def _check_time(arena: Arena, time: Time) -> None:
    if time in (Time.MONOTONIC, Time.COARSE) and not arena.facts.clock:
        raise Refused(
            f"process {arena.pid} has no vDSO that we know, so its clock would take a system "
            "call for each event; use the time stamp counter (tsc) or no time (none)"
        )
