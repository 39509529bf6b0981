"""A session: attached to a process, looking at its markers and switching them.

    with markerjit.attach(pid) as session, session.trace("kv_*") as events:
        for event in events:
            print(event.name, event.fields)

A session stops nobody until something is switched. Its methods either do all that they say or raise
a MarkerError and leave the target as it was. Not thread-safe; and where the target is our own
child, nobody in this process should wait for it while it is being stopped: to wait(2) a stop for us
looks like a change of the child.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from time import CLOCK_BOOTTIME, clock_gettime, monotonic, sleep, time_ns
from typing import Any, NamedTuple

from markerjit.arena.lease import Lease, read_by_us, reader_of
from markerjit.arguments import (
    check_all,
    check_flag,
    check_int,
    check_is,
    check_pid,
    check_seconds,
    check_text,
)
from markerjit.errors import MarkerError, NoSuchProcess, NotPermitted, Refused, TargetGone
from markerjit.events.flight import Flight
from markerjit.events.rings import Rings
from markerjit.events.stream import EventStream
from markerjit.model import Mode, Site
from markerjit.patch.apply import NOTHING, Applied
from markerjit.patch.holds import Held
from markerjit.patch.plan import Plan, SiteState
from markerjit.patch.wanted import COUNT, RECORD, Wanted, as_mode
from markerjit.probes.c.unit import Compiled, split_probe
from markerjit.probes.recorders import (
    compiled_probe,
    name_of_probe,
    nothing_read,
    options_of,
)
from markerjit.quiesce.strategy import default_strategy
from markerjit.remote.native import clock_pair
from markerjit.ring.clock import Calibration
from markerjit.ring.types import DEFAULT_TEXT, Options, RecordType, Time
from markerjit.session.readying import Counting, Readying
from markerjit.session.watch import Watch
from markerjit.trace.sink import TraceInfo

__all__ = ["COUNT", "RECORD", "Session", "attach"]

_TRY_AGAIN_S = 30
_RECENT_S = 10


class Tracing(NamedTuple):
    """What a trace has switched on: sites, how, and as which pattern; its claim on the rings, and
    its stream."""

    lease: Lease
    stream: EventStream
    sites: Sequence[Site]
    wanted: Wanted
    pattern: str


def attach(pid: int | None = None, *, ring_size: int | None = None) -> Session:
    """Open a session with a process; without a pid with this one.

    `ring_size` is the bytes of records for each CPU, a power of two; without it what the process
    has already, or 1 MiB. Raises NoSuchProcess, NotPermitted, Unsupported, NoMarkers.
    """
    return Session(os.getpid() if pid is None else pid, ring_size=ring_size)


def _check_recording(probe: object, thread_id: object, fields: Any, text: object) -> None:
    """The arguments that `trace` and `record` share."""
    check_is("probe", probe, str, Compiled)
    check_flag("thread_id", thread_id)
    if fields is not None:
        names = [fields] if isinstance(fields, str) else fields
        check_all("fields", names, str)
        for name in names:
            check_text("fields", name)
    check_int("text", text, 1)


class Session(Readying):
    """A view that can also switch markers and trace them. See the module.

    `quiesce` is the name of a strategy (markerjit.quiesce.strategy): "stop", the default for
    another process; "membarrier", the default for this one; "signals", "none". `mode` is a Mode or
    the name of one. Any other name is a ValueError.
    """

    def __init__(self, pid: int, *, ring_size: int | None = None) -> None:
        check_pid(pid)
        # First: it fails where the native part is missing, and then nothing is open.
        self._first_clock, self._attached_at = clock_pair(), clock_gettime(CLOCK_BOOTTIME)
        super().__init__(pid, ring_size=ring_size)

    def plan(
        self,
        pattern: str,
        *,
        on: bool = True,
        mode: Mode | str | None = None,
        probe: str = COUNT,
        quiesce: str | None = None,
    ) -> Plan:
        """What `enable` or `disable` would write now. Raises Refused with the reason.

        Where the runtime is not in the target yet, its addresses are missing in the plan.
        """
        check_text("pattern", pattern)
        check_flag("on", on)
        if probe not in (COUNT, RECORD):
            check_text("probe", probe)
            split_probe(probe)
        wanted = Wanted(on, self._strategy(quiesce), as_mode(mode), probe, nothing_read(probe))
        sites = self.sites(pattern)
        self._refuse_unknown_runtime()
        self._take(pattern, wanted)
        return self._plan(sites, wanted)

    def enable(
        self,
        pattern: str,
        *,
        mode: Mode | str | None = None,
        probe: str | Compiled = COUNT,
        quiesce: str | None = None,
        force: bool = False,
    ) -> Applied:
        """Switch markers on: all that match, at all their sites, in one transaction, or none. What
        can never be switched is left out, and refused if there is nothing else; see
        `Applied.left_out`.

        `probe` is "count" or "record" (use `trace` to read what that records), or one in C:
        "FILE.c:function", or what `compile_probe` made of it. Markers that a trace records, also
        one of this process, or a flight recorder keeps, are refused, unless they are to be taken
        by `force`. Raises UnknownMarker, Refused, UnexpectedBytes, NotPermitted, TargetGone, and
        for one in C what compile_probe raises.
        """
        check_text("pattern", pattern)
        check_flag("force", force)
        compiled = compiled_probe(probe)
        options = nothing_read(probe)
        wanted = self._wanted(quiesce, mode, probe, options)
        with self._alone():
            if compiled:
                self._load_probe(self._matching(pattern), wanted, compiled)
            took = self._take(pattern, wanted, force=force)
            if not compiled:
                applied = self._switch_again(pattern, wanted)
            else:
                _, _, applied = self._switch(self._matching(pattern), wanted)
        return applied._replace(**took._asdict())

    def disable(self, pattern: str, *, quiesce: str | None = None, force: bool = False) -> Applied:
        """Switch markers off, with the same promises and errors as `enable`; those that a flight
        recorder keeps, too: that is how it ends. A site that is not ours to switch, or that another
        tool has patched, is left out, and refused if there is nothing else. Waits until no thread
        is in a probe written in C, which a strategy under which threads of another process run
        cannot promise: then it is refused."""
        check_text("pattern", pattern)
        check_flag("force", force)
        wanted = Wanted(False, self._strategy(quiesce))
        with self._alone():
            took = self._take(pattern, wanted, force=force)
            entered = set()
            if self._has_probes_in_c():  # else nobody looks through all sites again
                entered = self._may_be_entered(self._matching(pattern))
            applied = self._switch_again(pattern, wanted)
            self._wait_until_left(entered)
        return applied._replace(**took._asdict())

    def end_record(self, pattern: str) -> Applied:
        """Switch off those markers that a flight recorder keeps still: what others have switched on
        since is theirs. Raises what `disable` raises."""
        check_text("pattern", pattern)
        applied = NOTHING
        with self._alone():
            flown = self._flown_markers(self._arena) if self._arena else {}
            names = {site.marker for site in self._matching(pattern)} & flown.keys()
            sites = [site for site in self._matching(pattern) if site.marker in names]
            if sites:
                entered = self._may_be_entered(sites)
                _, _, applied = self._switch(sites, self._wanted_off())
                self._wait_until_left(entered)
        return applied._replace(ended=tuple(sorted(names)))

    @contextmanager
    def trace(
        self,
        pattern: str,
        *,
        mode: Mode | str | None = None,
        poll_s: float = 0.02,
        probe: str | Compiled = RECORD,
        quiesce: str | None = None,
        time: Time | str | None = None,
        thread_id: bool = True,
        fields: Sequence[str] | str | None = None,
        text: int = DEFAULT_TEXT,
        resume: bool = False,
    ) -> Iterator[EventStream]:
        """Record markers and stream the events; at the end they are off, however it ends.

        `probe` may be one in C, as for `enable`: then the events are those that it emits. `time` is
        where an event's time comes from: "tsc", the time stamp counter; "monotonic" or
        "coarse", the system's clocks; "none", only the order on each CPU; None: the first where it
        can be used, or else the second. `fields` are the names of those to record (a str is one
        name), `text` the most
        bytes of a string. With `resume` it begins with what a reader left that died.

        Markers that were on and counting before count again; those that somebody else has taken by
        `force` meanwhile are left alone (`EventStream.statistics().taken`). While the stream is
        polled it holds a lease of the rings; one that is not for longer than that loses its
        probes. Raises what `enable` raises, and Refused while another controller reads the rings.
        """
        check_text("pattern", pattern)
        check_seconds("poll_s", poll_s)
        check_flag("resume", resume)
        _check_recording(probe, thread_id, fields, text)
        compiled = compiled_probe(probe)
        options = options_of(compiled, time, thread_id, fields, text)._replace(counted=False)
        wanted = self._wanted(quiesce, mode, probe, options)
        with self._alone():
            arena, sites = self._ready_to_record(pattern, wanted, compiled)
            self._refuse_while_flying(arena)
            lease = Lease(arena)
            lease.claim()
            try:
                resume = resume and not arena.is_overwritten()  # there nobody was to read
                dropped = 0 if resume else Rings(arena, {}).unread()
                self._fit_rings(arena, keep=resume)
            except BaseException:
                lease.release()
                raise
        switched = off = False
        try:
            stream = EventStream(
                arena,
                self._types(sites, wanted, resume=resume),
                alive=lambda: self._memory.alive() and self._memory.has_program(arena.base),
                renew=lease.renew,
                is_ours=lease.is_ours,
                poll_s=poll_s,
                resume=resume,
                dropped_bytes=dropped,
                first_clock=self._early_clock(),
                held=Held(arena, lease.reading, self._names_by_entry(sites, wanted)),
            )
            tracing = Tracing(lease, stream, sites, wanted, pattern)
            with self._alone():
                counting = self._counting(sites)
                switched = True  # or partly, whatever interrupts us: only an error has undone it
                try:
                    _, _, applied = self._switch(sites, wanted, held=lease.reading)
                except MarkerError:
                    switched = False
                    raise
            stream.unswitched = applied.left_out
            try:
                yield stream
            finally:
                with suppress(TargetGone, NoSuchProcess):
                    self._disable_for_sure(tracing, counting)
                off = True
                with suppress(TargetGone):
                    if lease.is_ours():
                        stream.finish()
        finally:
            with suppress(TargetGone):
                lease.release(keep=switched and not off)

    def record(
        self,
        pattern: str,
        *,
        mode: Mode | str | None = None,
        probe: str | Compiled = RECORD,
        quiesce: str | None = None,
        time: Time | str | None = None,
        thread_id: bool = True,
        fields: Sequence[str] | str | None = None,
        text: int = DEFAULT_TEXT,
    ) -> Applied:
        """Switch markers on as a flight recorder: the rings keep the newest events, and nobody
        reads them but who takes a picture (`flight`). `disable` ends it. Arguments as of `trace`.

        Raises what `enable` raises, and Refused while another controller reads the rings.
        """
        check_text("pattern", pattern)
        _check_recording(probe, thread_id, fields, text)
        compiled = compiled_probe(probe)
        options = options_of(compiled, time, thread_id, fields, text)
        wanted = self._wanted(quiesce, mode, probe, options)
        with self._alone():
            arena, sites = self._ready_to_record(pattern, wanted, compiled)
            reader = reader_of(arena)
            if reader and (not reader.over or read_by_us(self.pid)):
                raise Refused(f"{reader.owner} is tracing process {self.pid}; end that trace first")
            flying = self._is_flying(arena)
            self._refuse_other_flight(options)
            if flying:
                self._fit_rings(arena, keep=True)
            else:
                self._fit_rings(arena)
                for entry in arena.entries():
                    arena.note_counts(int(entry.id))
                Rings(arena, {}).start(overwrite=True)
            _, _, applied = self._switch(sites, wanted)
        return applied

    def flight(self) -> Flight:
        """The flight recorder that is, or was, switched on in the process; see `record`.

        Raises Refused where there is none.
        """
        self._look_again()
        self._refuse_unknown_runtime()
        if not self._arena or not self._recorders or not self._arena.is_overwritten():
            raise Refused(
                f"process {self.pid} has no flight recorder; "
                f"markerjit record {self.pid} PATTERN --flight begins one"
            )
        notes = [site.note for site in self._objects.sites]
        return Flight(self._arena, partial(self._recorders.types, notes))

    def watch_flight(self) -> Watch:
        """For who waits beside the flight recorder until the process ends.

        Raises Refused where there is none, or where the rings would end with the process.
        """
        flight = self.flight()
        assert self._arena
        return Watch(flight, self._arena, self._memory.pidfd)

    @property
    def ring_size(self) -> int:
        """Bytes of records for each CPU."""
        return self._arena.ring_sizes()[0] if self._arena else self._ring_size or 0

    def trace_info(self, types: tuple[RecordType, ...], clock: Calibration) -> TraceInfo:
        """What a file with events of these types says of where they come from."""
        check_all("types", types, RecordType)
        check_is("clock", clock, Calibration)
        sources: dict[str, str] = {}
        for site in self._objects.sites:
            sources.setdefault(site.marker, site.source)
        return TraceInfo(
            types,
            clock,
            self.pid,
            self.command,
            os.uname().nodename,
            time_ns(),
            {type_.marker: sources.get(type_.marker, "") for type_ in types},
        )

    def _early_clock(self) -> tuple[int, int] | None:
        """The clocks when we came: so the stream need not wait to see them move. Not if that is
        long ago: meanwhile the machine may have slept."""
        recent = clock_gettime(CLOCK_BOOTTIME) - self._attached_at < _RECENT_S
        return self._first_clock if recent else None

    def _disable_for_sure(self, tracing: Tracing, counting: Counting) -> None:
        """Nobody comes after us to try again, so we do, for half a minute, where that may help:
        another controller or tracer is at work, or a thread waits in the kernel."""
        deadline = monotonic() + _TRY_AGAIN_S
        while True:
            try:
                with self._alone():
                    if tracing.lease.is_ours():  # else the markers are somebody else's by now
                        self._disable_what_is_ours(tracing, counting)
                return
            except (TargetGone, NoSuchProcess):
                raise
            except MarkerError as error:
                passing = isinstance(error, Refused) and error.try_again
                may_help = passing or isinstance(error, NotPermitted)
                if not may_help or monotonic() > deadline:
                    raise Refused(
                        f"{error}; STILL ON: markerjit off {self.pid} '{tracing.pattern}' ends it",
                        try_again=may_help,
                    ) from None
            sleep(0.05)

    def _wanted(
        self, quiesce: str | None, mode: Mode | str | None, probe: str | Compiled, options: Options
    ) -> Wanted:
        strategy = self._strategy(quiesce)
        return Wanted(True, strategy, as_mode(mode), name_of_probe(probe), options)

    @staticmethod
    def _refuse_altered(states: Sequence[SiteState]) -> None:
        """Raises UnexpectedBytes for a site that another tool has patched: it was left as it is."""
        for state in states:
            if state.problem:
                raise state.problem

    def _disable_what_is_ours(self, tracing: Tracing, counting: Counting) -> None:
        """What somebody else has switched since stays as it is."""
        ours, taken = self._still_ours(tracing.sites, tracing.wanted, tracing.lease.reading)
        tracing.stream.let_go(sorted(taken))
        entered = self._may_be_entered(ours)
        again = self._count_again(ours, counting)
        rest = [site for site in ours if site not in again]
        states, _, _ = self._switch(rest, self._wanted_off())
        self._wait_until_left(entered)
        self._refuse_altered(states)

    def _wanted_off(self) -> Wanted:
        return Wanted(False, default_strategy(own=self._own))
