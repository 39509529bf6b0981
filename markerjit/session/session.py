"""A session: attached to a process, looking at its markers and switching them.

    with markerjit.attach(pid) as session, session.trace("kv_*") as events:
        for event in events:
            print(event.name, event.fields)

A session stops no thread until something is switched. Its methods either do all that they say or
raise a MarkerError and leave the target as it was. They are not thread-safe. Where the target is
our own child, no thread of this process should wait for it while we stop it: wait(2) reports the
stop as a change of the child.

What this does not do: it is a door. The process is a `Target`, the right to change it a `Turn`, and
what is done in a turn is a `Switcher`'s, a trace's or a flight recorder's.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from markerjit.abi import LARGEST_RING, PAGE
from markerjit.arguments import (
    check_all,
    check_flag,
    check_int,
    check_is,
    check_pid,
    check_power_of_two,
    check_seconds,
    check_text,
)
from markerjit.errors import Refused, Unsupported
from markerjit.model import Mode, Seccomp
from markerjit.patch.apply import Applied
from markerjit.patch.plan import Plan
from markerjit.patch.request import Request, as_mode
from markerjit.probes.c.unit import Compiled
from markerjit.probes.recorders import COUNT, RECORD, compiled_probe, nothing_read, probe_of
from markerjit.ring.types import DEFAULT_TEXT, RecordType, Strings, Time
from markerjit.session.clock import EarlyClock
from markerjit.session.holding import take
from markerjit.session.probes_in_c import (
    has_probes_in_c,
    load_probe,
    may_be_entered,
    wait_until_left,
)
from markerjit.session.switch import Switcher
from markerjit.session.view import View
from markerjit.sites import parse_name

if TYPE_CHECKING:  # what records is imported when something is recorded
    from markerjit.events.flight import Flight
    from markerjit.events.stream import EventStream
    from markerjit.ring.clock import Calibration
    from markerjit.session.flight import FlightRecorder
    from markerjit.session.stepping import Stepper
    from markerjit.session.watch import Watch
    from markerjit.trace.sink import TraceInfo

DEFAULT_GROWTH = 64 << 20
"""Bytes by which the rings of a process may grow in all."""

__all__ = ["COUNT", "RECORD", "Session", "attach"]


def attach(
    pid: int | None = None,
    *,
    ring_size: int | None = None,
    seccomp: Seccomp | str = "read",
) -> Session:
    """Open a session with a process; without a pid with this one.

    `ring_size` is the bytes of records for each CPU, a power of two; without it what the process
    has already, or 1 MiB. `seccomp` says what is done about the filters of the process: "read" runs
    them on each call that is needed; "trust-errno" takes your word that they answer with an error
    and never kill. Raises NoSuchProcess, NotPermitted, Unsupported.
    """
    return Session(os.getpid() if pid is None else pid, ring_size=ring_size, seccomp=seccomp)


class Session(View):
    """A view that can also switch markers and trace them. See the module.

    `quiesce` is the name of a strategy (markerjit.quiesce.strategies): "stop", the default for
    another process; "membarrier", the default for this one; "signals", "none". `mode` is a Mode or
    the name of one. Any other name is a ValueError.
    """

    def __init__(
        self,
        pid: int,
        *,
        ring_size: int | None = None,
        seccomp: Seccomp | str = "read",
    ) -> None:
        check_pid(pid)
        if ring_size is not None:
            check_power_of_two("ring_size", ring_size, PAGE, LARGEST_RING)
        # First: it fails where the native part is missing, and then nothing is open.
        self._clock = EarlyClock()
        super().__init__(pid, seccomp=seccomp)
        self._switcher = Switcher(self._target, ring_size=ring_size)
        self._recorder: FlightRecorder | None = None

    @property
    def _flights(self) -> FlightRecorder:
        if self._recorder is None:
            from markerjit.session.flight import FlightRecorder

            self._recorder = FlightRecorder(self._switcher)
        return self._recorder

    def plan(
        self,
        pattern: str,
        *,
        on: bool = True,
        mode: Mode | str | None = None,
        probe: str = COUNT,
        quiesce: str | None = None,
    ) -> Plan:
        """The plan that `enable` or `disable` would apply now. Raises Refused with the reason.

        Where the runtime is not in the target yet, its addresses are missing in the plan.
        """
        check_text("pattern", pattern)
        name = parse_name(pattern)
        check_flag("on", on)
        check_text("probe", probe)
        asked = probe_of(probe, nothing_read(probe))
        planner = self._switcher.planner
        request = Request(on, planner.strategy(quiesce), as_mode(mode), asked)
        self._target.look()
        self._target.refuse_unknown_runtime()
        if on and name.is_of_stubs:
            from markerjit.session.stubs import say_openings

            say_openings(self._target, self._target.unprepared(name))
        sites, recorders = self._target.matching(name), self._switcher.recorders
        take(self._target, recorders, name, request)
        return planner.plan(self._target.states(sites), request, recorders)

    def enable(
        self,
        pattern: str,
        *,
        mode: Mode | str | None = None,
        probe: str | Compiled = COUNT,
        quiesce: str | None = None,
        force: bool = False,
        strings: Strings | str = "fast",
        where: str | None = None,
    ) -> Applied:
        """Switch markers on: all that match, at all their sites, in one transaction, or none. What
        can never be switched is left out, and refused if there is nothing else; see
        `Applied.left_out`.

        `probe` is "count" or "record" (use `trace` to read what that records), or one in C:
        "FILE.c:function", or what `compile_probe` made of it. `strings` is for "record", as in
        `trace`. `where` is a condition (docs/reference/questions.md), which is asked in the
        process, before the probe: what does not meet it is neither counted nor recorded. Markers
        that do not have a name of it are left out. Markers that a trace records, also one
        of this process, or a flight recorder keeps, are refused, unless they are to be taken by
        `force`. Raises NoMarkers, UnknownMarker, Refused, UnexpectedBytes, NotPermitted,
        TargetGone, for a probe in C what compile_probe raises, and for a condition BadQuestion and
        Unsupported.
        """
        check_text("pattern", pattern)
        name = parse_name(pattern)
        check_flag("force", force)
        compiled = compiled_probe(probe)
        switcher = self._switcher
        request = Request(
            True, switcher.planner.strategy(quiesce), as_mode(mode),
            probe_of(compiled or probe, nothing_read(probe, strings), where),
        )  # fmt: skip
        with switcher.turn() as turn:
            switcher.need_stubs(turn, name, request)
            if compiled:
                load_probe(turn, switcher, turn.target.matching(name), request, compiled)
            took = take(self._target, switcher.recorders, name, request, force=force)
            if not compiled and where is None:
                applied = switcher.switch_again(turn, name, request)
            else:
                from markerjit.session.asking import askable

                sites, left_out = askable(turn.target.matching(name), request.probe)
                applied = switcher.switch(turn, sites, request).applied
                applied = applied._replace(left_out=(*left_out, *applied.left_out))
        return applied._replace(**took._asdict())

    def disable(self, pattern: str, *, quiesce: str | None = None, force: bool = False) -> Applied:
        """Switch markers off, with the same promises and errors as `enable`; those that a flight
        recorder keeps, too: that is how it ends. A site that is not ours to switch, or that another
        tool has patched, is left out, and refused if there is nothing else. Waits until no thread
        is in a probe written in C, which a strategy under which threads of another process run
        cannot promise: then it is refused."""
        check_text("pattern", pattern)
        name = parse_name(pattern)
        check_flag("force", force)
        switcher = self._switcher
        request = Request(False, switcher.planner.strategy(quiesce))
        with switcher.turn() as turn:
            took = take(self._target, switcher.recorders, name, request, force=force)
            entered = set()
            if has_probes_in_c(self._target):  # else the sites are not read again
                entered = may_be_entered(self._target, turn.target.matching(name))
            applied = switcher.switch_again(turn, name, request)
            wait_until_left(self._target, entered)
        return applied._replace(**took._asdict())

    @contextmanager
    def stepping(
        self,
        pattern: str,
        *,
        on: bool = True,
        mode: Mode | str | None = None,
        quiesce: str | None = None,
        lease_s: int = 60,
    ) -> Iterator[Stepper]:
        """Switch markers on or off stage by stage, by `Stepper.step`, while the process runs
        between the stages. What is made is taken back at the end of the context, unless all is.

        The probe counts. `quiesce` is for each stage by itself. Between two stages other
        controllers refuse to switch, until `lease_s` seconds after the last step: then the change
        is taken back by the next one that switches, or by `repair`, and so it is at once when this
        process ends. Raises what `enable` and `disable` raise, and Refused for a change that cannot
        be made while threads run.
        """
        check_text("pattern", pattern)
        name = parse_name(pattern)
        check_flag("on", on)
        if name.is_of_stubs:
            raise Unsupported(
                f"'{name}' names {name.kind.value}, which are not switched in steps; switch them "
                "at once"
            )
        from markerjit.arena.journal import LONGEST_LEASE_S
        from markerjit.patch.stages import between
        from markerjit.session.stepping import Stepper

        check_int("lease_s", lease_s, 1, LONGEST_LEASE_S)
        strategy = self._switcher.planner.strategy(quiesce)
        request = Request(on, between(strategy), as_mode(mode))
        stepper = Stepper(self._switcher, name, request, strategy, lease_s=lease_s)
        try:
            yield stepper
        finally:
            stepper.take_back()

    def end_record(self, pattern: str) -> Applied:
        """Switch off those markers that a flight recorder keeps still: what others have switched on
        since is theirs. Raises what `disable` raises."""
        check_text("pattern", pattern)
        name = parse_name(pattern)
        with self._switcher.turn() as turn:
            return self._flights.end(turn, name)

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
        strings: Strings | str = "fast",
        lossless: bool = False,
        ring_growth: int = DEFAULT_GROWTH,
        resume: bool = False,
        where: str | None = None,
    ) -> Iterator[EventStream]:
        """Record markers and stream the events; at the end they are off, however it ends.

        `probe` may be one in C, as for `enable`: then the events are those that it emits. `time` is
        where an event's time comes from: "tsc", the time stamp counter; "monotonic" or
        "coarse", the system's clocks; "none", only the order on each CPU; None: the first where it
        can be used, or else the second. `fields` are the names of those to record (a str is one
        name), `text` the most bytes of a string. `strings` is how those are read where the
        processor has no memory transactions: "fast", from pages that could be read within the last
        millisecond; "careful", by the kernel, with a system call for each. With `resume` it begins
        with what a reader left that died. `where` is a condition, as of `enable`: what does not
        meet it is not recorded.

        Where the stream falls behind, the rings grow: by `ring_growth` bytes in all, and each to
        16 MiB at most, if it did not begin with more. The memory is given back at the end. With
        `lossless` they do not grow.

        With `lossless` an event whose ring is full waits for the stream to be read, in the thread
        that executes the marker: the program may become much slower, and may hold locks meanwhile.
        It waits only while the stream was asked for events within the last two seconds, and for ten
        seconds at most; then the event is lost, and counted. Its time is that of the end of the
        wait. Refused in our own process, whose reader would wait for itself. `EventStream.waits`
        says how many events waited.

        Markers that were on and counting before count again; those that another controller has
        taken by `force` meanwhile are left alone (`EventStream.statistics().taken`). While the
        stream is polled it holds a lease of the rings; one that is not for longer than that loses
        its probes. Raises what `enable` raises, and Refused while another controller reads the
        rings.
        """
        from markerjit.session.trace import Asked, check_that_threads_may_wait, traced

        check_text("pattern", pattern)
        name = parse_name(pattern)
        check_seconds("poll_s", poll_s)
        check_flag("resume", resume)
        check_flag("lossless", lossless)
        check_int("ring_growth", ring_growth, 0)
        if lossless and self._target.own:
            raise Refused(
                "lossless is for another process: a thread of this one that waits may be the "
                "reader itself, or hold what the reader needs"
            )
        if lossless:
            check_that_threads_may_wait(self._target)
        planner = self._switcher.planner
        from markerjit.session.recording import recording_of

        recording = recording_of(
            planner, mode, probe, quiesce, time, thread_id, fields, text, strings, where,
            lossless=lossless,
        )  # fmt: skip
        growth = 0 if lossless else ring_growth
        asked = Asked(name, recording.read(), resume, poll_s, self._clock, growth)
        with traced(self._switcher, self._flights, asked) as stream:
            yield stream

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
        strings: Strings | str = "fast",
        where: str | None = None,
    ) -> Applied:
        """Switch markers on as a flight recorder: the rings keep the newest events, and only
        `flight` reads them, by taking a picture. `disable` ends it. Arguments as of `trace`.

        Raises what `enable` raises, and Refused while another controller reads the rings.
        """
        check_text("pattern", pattern)
        name = parse_name(pattern)
        planner = self._switcher.planner
        from markerjit.session.recording import recording_of

        recording = recording_of(
            planner, mode, probe, quiesce, time, thread_id, fields, text, strings, where
        )
        with self._switcher.turn() as turn:
            return self._flights.begin(turn, name, recording)

    def flight(self) -> Flight:
        """The flight recorder that is, or was, switched on in the process; see `record`.

        Raises Refused where there is none.
        """
        self._target.look()
        self._target.refuse_unknown_runtime()
        return self._flights.flight()

    def watch_flight(self) -> Watch:
        """A watch for a caller that waits beside the flight recorder until the process ends.

        Raises Refused where there is none, or where the rings would end with the process.
        """
        self._target.look()
        self._target.refuse_unknown_runtime()
        return self._flights.watch()

    @property
    def ring_size(self) -> int:
        """Bytes of records for each CPU."""
        arena = self._target.seen.arena
        return arena.rings.sizes()[0] if arena else self._switcher.ring_size or 0

    def trace_info(self, types: tuple[RecordType, ...], clock: Calibration) -> TraceInfo:
        """The origin of events of these types, as a trace file states it."""
        from markerjit.ring.clock import Calibration
        from markerjit.session.trace import trace_info

        check_all("types", types, RecordType)
        check_is("clock", clock, Calibration)
        return trace_info(self._target, types, clock)
