"""A session: attached to a process, looking at its markers and switching them.

    with markerjit.attach(pid) as session, session.trace("kv_*") as events:
        for event in events:
            print(event.name, event.fields)

A session stops no thread until something is switched. Its methods do all that they say, or raise a
MarkerError and leave the target as it was. They are not thread-safe. If the target is our own
child, no thread of this process should wait for it while we stop it: wait(2) reports the stop as a
change of the child.

What this does not do: it is a door. The process is a `Target`, the right to change it a `Turn`, and
what is done in a turn is a `Switcher`'s, a trace's or a flight recorder's.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from functools import partial
from time import monotonic_ns
from typing import TYPE_CHECKING, TypeVar

from markerjit.abi import LARGEST_RING, PAGE
from markerjit.arguments import (
    check_all,
    check_callable,
    check_flag,
    check_int,
    check_is,
    check_path,
    check_pid,
    check_power_of_two,
    check_seconds,
    check_text,
)
from markerjit.errors import BadArgument, Reason, Refused, Unsupported
from markerjit.model import Event, Mode, Seccomp
from markerjit.patch.apply import Applied
from markerjit.patch.plan import Plan
from markerjit.patch.request import Record, Request, as_mode
from markerjit.patch.switchable import LeftOut
from markerjit.probes.c.unit import Compiled
from markerjit.probes.recorders import COUNT, RECORD, compiled_probe, nothing_read, probe_of
from markerjit.ring.brakes import NO_BRAKES, Brakes
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
from markerjit.sites import EVERYTHING, ProbeName, parse_name

if TYPE_CHECKING:  # what records is imported when something is recorded
    from markerjit.allocations.summary import Allocations
    from markerjit.calls.graph import CallGraph
    from markerjit.events.feed import StreamStatistics
    from markerjit.events.flight import Flight
    from markerjit.events.stream import EventStream
    from markerjit.ring.clock import Calibration
    from markerjit.session.aggregate import AddingUp
    from markerjit.session.allocations import AllocationTrace
    from markerjit.session.background import Events, Subscription
    from markerjit.session.calls import CallTrace
    from markerjit.session.flight import FlightRecorder
    from markerjit.session.latency import Latency
    from markerjit.session.members import Members
    from markerjit.session.openings import Progress
    from markerjit.session.plot import Plots
    from markerjit.session.stepping import Stepper
    from markerjit.session.tracing import Tracing
    from markerjit.session.watch import Watch
    from markerjit.trace.sink import TraceInfo

MOST_KEYS = 1 << 24
"""Of an aggregate; how many there is room for depends on what is added up."""
DEFAULT_GROWTH = 64 << 20
"""Bytes by which the rings of a process may grow in all."""

T = TypeVar("T")

_MOST_ROOM = 10_000_000
_MOST_TID = (1 << 32) - 1
_MOST_DEPTH = 1 << 30

__all__ = ["COUNT", "RECORD", "Session"]


class Session(View):
    """A view that can also switch markers and trace them. See the module.

    `ring_size` is the bytes of records for each CPU, a power of two. The default is what the
    process already has, or 1 MiB. `seccomp` says what is done about the filters of the process:
    "read" runs them on each system call that is needed; "trust-errno" takes your word that they
    answer with an error and never kill. `breakpoints` takes your word that no thread blocks SIGTRAP
    where it comes to a function, instruction, call or USDT probe that only a breakpoint opens;
    without it these are left out. Raises NoSuchProcess, NotPermitted, Unsupported.

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
        breakpoints: bool = False,
    ) -> None:
        check_pid(pid)
        check_flag("breakpoints", breakpoints)
        if ring_size is not None:
            check_power_of_two("ring_size", ring_size, PAGE, LARGEST_RING)
        # First: it fails where the native part is missing, and then nothing is open.
        self._clock = EarlyClock()
        super().__init__(pid, seccomp=seccomp)
        self._again = partial(
            Session, pid, ring_size=ring_size, seccomp=seccomp, breakpoints=breakpoints
        )
        self._switcher = Switcher(self._target, ring_size=ring_size, breakpoints=breakpoints)
        self._recorder: FlightRecorder | None = None

    @property
    def _flights(self) -> FlightRecorder:
        if self._recorder is None:
            from markerjit.session.flight import FlightRecorder

            self._recorder = FlightRecorder(self._switcher)
        return self._recorder

    @property
    def plot(self) -> Plots:
        """Pictures for a notebook, by matplotlib: `session.plot.rate()`."""
        from markerjit.session.meanwhile import counting_meanwhile
        from markerjit.session.plot import Plots

        return Plots(
            self, lambda text, for_s: counting_meanwhile(self._switcher, parse_name(text), for_s)
        )

    def _named(self, pattern: str, where: str | None) -> tuple[Members, ProbeName, str | None]:
        """What a pattern names and the question that is asked of it, without members of structures
        and names of callers; and what says others without members."""
        from markerjit.session.members import Members

        check_text("pattern", pattern)
        name = parse_name(pattern)
        members = Members(self._target, name)
        if where is not None:
            check_is("where", where, str)
            where = members.without(where)
        if name.is_of_stubs and (where is not None or "@" in pattern):
            from markerjit.session.callers import by_callers

            self._target.look()
            return members, *by_callers(self._target, name, where)
        return members, name, where

    @contextmanager
    def _within(self, context: AbstractContextManager[T], *members: Members) -> Iterator[T]:
        """A context of this session, which is not collected meanwhile, as `attach(pid).aggregate()`
        would be. What is wrong in a text is said of the text with members."""
        with ExitStack() as stack:
            for each in members:
                stack.enter_context(each.said_before())
            yield stack.enter_context(context)

    def plan(
        self,
        pattern: str,
        *,
        on: bool = True,
        mode: Mode | str | None = None,
        probe: str = COUNT,
        quiesce: str | None = None,
    ) -> Plan:
        """The plan that `on` or `off` would apply now. Raises Refused with the reason.

        If the runtime is not in the target yet, its addresses are missing in the plan. Functions,
        instructions, calls and USDT probes have a plan once they have been on, for their stubs have
        a place then. Before, the reason says how they would be opened.
        """
        check_text("pattern", pattern)
        name = parse_name(pattern)
        check_flag("on", on)
        check_text("probe", probe)
        asked = probe_of(probe, nothing_read(probe))
        planner = self._switcher.planner
        request = planner.on(quiesce, mode, asked)._replace(on=on)
        self._target.look()
        self._target.refuse_unknown_runtime()
        if on and name.is_of_stubs:
            from markerjit.session.stubs import say_openings

            takes = request.takes_breakpoints
            say_openings(self._target, self._target.unprepared(name), breakpoints=takes)
        sites, recorders = self._target.matching(name), self._switcher.recorders
        take(self._target, recorders, name, request)
        states = self._target.states(sites)
        if on and recorders:
            self._switcher.refuse_replaced(recorders.arena, states)
        try:
            return planner.plan(states, request, recorders)
        except Refused as refused:
            if refused.reason is not Reason.NO_STUB:
                raise
            raise Refused(
                f"{refused.sentence}. Where the stub goes is known then: there is a plan once it "
                "has been on, and `on` looks before it writes",
                reason=refused.reason,
                try_again=refused.try_again,
            ) from None

    def on(
        self,
        pattern: str,
        *,
        mode: Mode | str | None = None,
        probe: str | Compiled = COUNT,
        quiesce: str | None = None,
        force: bool = False,
        strings: Strings | str = "fast",
        where: str | None = None,
        sample: str | None = None,
        at_most: int | str | None = None,
        stack: int | None = None,
        for_s: float | None = None,
    ) -> Applied:
        """Switch markers on: all that match, at all their sites, in one transaction, or none.
        Markers that can never be switched are left out (`Applied.left_out`); if there are no
        others, they are refused.

        `probe` is "count" or "record" (use `trace` to read what that records), or a probe in C:
        "FILE.c:function", or what `compile_probe` made of it. `strings` and `stack` are for
        "record", as in `trace`.

        `where` is a condition (docs/reference/questions.md) that is evaluated in the process,
        before the probe. An execution that does not meet it is neither counted nor recorded, and
        markers that lack a name of it are left out. `sample`, such as "1/100", takes that share of
        the executions that meet the condition, at random; hits are of those only. `at_most`, such
        as 1000, lets through this many of each marker in any second; the others are held back, and
        counted as held back.

        After `for_s` seconds the markers are overdue. `switch_off_overdue`, `repair`, or the next
        controller that changes the process switches them off then; nothing does it by itself.
        Without `for_s` they stay on.

        Markers that a trace records, also one of this process, or that a flight recorder keeps, are
        refused, unless `force` is to take them. Raises NoMarkers, UnknownMarker, Refused,
        UnexpectedBytes, NotPermitted, TargetGone; for a probe in C what compile_probe raises; and
        for a condition BadQuestion and Unsupported.
        """
        asked = "on", pattern, mode, probe, quiesce, strings
        is_plain = force is False and where is sample is at_most is stack is for_s is None
        applied = self._switcher.once_more(asked) if is_plain else None
        if applied:
            return applied
        members, name, where = self._named(pattern, where)
        check_flag("force", force)
        if for_s is not None:
            check_seconds("for_s", for_s)
        until_ns = 0 if for_s is None else monotonic_ns() + int(for_s * 1e9)
        compiled = compiled_probe(probe)
        switcher = self._switcher
        request = switcher.planner.on(
            quiesce, mode,
            probe_of(compiled or probe, nothing_read(probe, strings), where,
                     brakes=Brakes.of(sample=sample, at_most=at_most), stack=stack),
        )  # fmt: skip
        with members.said_before(), switcher.turn() as turn:
            switcher.need_stubs(turn, name, request)
            if compiled:
                load_probe(turn, switcher, turn.target.matching(name), request, compiled)
            took = take(self._target, switcher.recorders, name, request, force=force)
            notes: tuple[LeftOut, ...] = ()
            if name.usdt_globs:
                from markerjit.session.notes import left_out_by_notes

                notes = left_out_by_notes(self._target, name)
            if not compiled and request.probe.question is None and not until_ns:
                applied = switcher.switch_again(turn, name, request)
                if is_plain and not notes:
                    switcher.note_asked(turn, asked, name, request)
            else:
                from markerjit.session.asking import askable

                sites, left_out = askable(turn.target.matching(name), request.probe)
                applied = switcher.switch(turn, sites, request, until_ns=until_ns).applied
                applied = applied._replace(left_out=(*left_out, *applied.left_out))
        left_out = (*notes, *applied.left_out)
        return applied._replace(**took._asdict(), left_out=left_out)

    def off(
        self, pattern: str | None = None, *, quiesce: str | None = None, force: bool = False
    ) -> Applied:
        """Switch markers off, with the same promises and errors as `on`; also those that a flight
        recorder keeps, which ends it. Without a pattern it switches off whatever is on: markers,
        functions, instructions, calls and USDT probes. A site that is not ours to switch, or that
        another tool has patched, is left out; if there is no other, it is refused.

        Waits until no thread is in a probe written in C. A strategy under which threads of another
        process run cannot know that, so with such a probe it is refused."""
        switcher, asked = self._switcher, ("off", pattern, quiesce)
        applied = switcher.once_more(asked) if force is False else None
        if applied:
            return applied
        name = _name_or_everything(pattern)
        check_flag("force", force)
        request = Request(False, switcher.planner.strategy(quiesce))
        with switcher.turn() as turn:
            took = take(self._target, switcher.recorders, name, request, force=force)
            entered = set()
            if has_probes_in_c(self._target):  # else the sites are not read again
                entered = may_be_entered(self._target, turn.target.matching(name))
            applied = switcher.switch_again(turn, name, request)
            wait_until_left(self._target, entered)
            if not force:
                switcher.note_asked(turn, asked, name, request)
        return applied._replace(**took._asdict())

    enable, disable = on, off  # their names before 0.6

    def replace(self, function: str, new: str) -> Applied:
        """Replace a function of the process, `func:NAME`, by another one: `FILE.c:function`, which
        is compiled as a probe in C is. It must take and return what the old one does, and may call
        that as `markerjit_original(function)(…)`. `revert` takes the replacement back, byte for
        byte. The new code stays in the process as long as a thread may be in it. Calls of the new
        function are hits.

        Raises Refused if several functions have the name, or if the function is on, cannot be
        opened by a jump at its entry, or jumps back there itself. Raises what `on` and
        compile_probe raise.
        """
        check_text("function", function)
        check_text("new", new)
        from markerjit.session.replacing import replace

        return replace(self._switcher, parse_name(function), new)

    def revert(self, function: str) -> Applied:
        """Take the replacement of a function back, whoever made it. Raises Refused if the function
        is not replaced, and what `off` raises."""
        check_text("function", function)
        from markerjit.session.replacing import revert

        return revert(self._switcher, parse_name(function))

    def switch_off_overdue(self, *, early: str | None = None) -> tuple[str, ...]:
        """Switch off the markers whose time is over (`for_s` of `on`), and return their names. With
        `early`, a pattern, those that match it are switched off also before their time. Raises what
        `off` raises."""
        name = None
        if early is not None:
            check_text("early", early)
            name = parse_name(early)
        with self._switcher.turn(leave_overdue=True) as turn:
            return tuple(self._switcher.switch_off_overdue(turn, early=name))

    def stepping(
        self,
        pattern: str,
        *,
        on: bool = True,
        mode: Mode | str | None = None,
        quiesce: str | None = None,
        lease_s: int = 60,
    ) -> AbstractContextManager[Stepper]:
        """Switch markers on or off in stages, by `Stepper.step`. The process runs between the
        stages. At the end of the context the stages are taken back, unless all are made.

        The probe counts. `quiesce` is for each stage by itself. Between two stages other
        controllers refuse to switch, until `lease_s` seconds after the last step. From then on, or
        when this process has ended, `repair` or the next controller that switches takes the change
        back. Raises what `on` and `off` raise, and Refused for a change that cannot be made while
        threads run.
        """
        check_text("pattern", pattern)
        name = parse_name(pattern)
        check_flag("on", on)
        if name.is_of_stubs:
            raise Unsupported(
                f"'{name}' names {name.kind.value}, which cannot be switched in stages; switch "
                "them with on and off"
            )
        from markerjit.arena.journal import LONGEST_LEASE_S
        from markerjit.patch.stages import between
        from markerjit.session.stepping import stepping

        check_int("lease_s", lease_s, 1, LONGEST_LEASE_S)
        strategy = self._switcher.planner.strategy(quiesce)
        request = Request(on, between(strategy), as_mode(mode))
        return self._within(stepping(self._switcher, name, request, strategy, lease_s=lease_s))

    def end_record(self, pattern: str | None = None) -> Applied:
        """Switch off the markers that a flight recorder still keeps, those that match a pattern or
        all. Those that others have switched on since are left alone. Raises what `off` raises."""
        name = _name_or_everything(pattern)
        with self._switcher.turn() as turn:
            return self._flights.end(turn, name)

    def aggregate(
        self,
        pattern: str,
        what: str = "count()",
        *,
        by: str | None = None,
        where: str | None = None,
        keys: int | None = None,
        text: int = 64,
        mode: Mode | str | None = None,
        quiesce: str | None = None,
        strings: Strings | str = "fast",
    ) -> AbstractContextManager[AddingUp]:
        """Add events up in the process, by key, instead of recording them. The markers are off at
        the end of the context, however it ends.

        `what` is "count()", or "sum(x)", "min(x)", "max(x)", "avg(x)", "stat(x)" (all of these),
        "hist(x)" or "quantiles(x)" of an expression (docs/reference/questions.md). `by` is the key:
        one or several expressions that are integers or texts, such as "name, key[:4]". `where` is
        a condition, as for `on`. `keys` is how many keys there may be; events of further keys are
        counted as `missed`. `text` is how many bytes a text of the key may have, if it is not cut.
        `strings` is as for `trace`.

        `AddingUp.read` returns what was added up so far, and after the end all of it. Raises what
        `on` raises, and Refused while another reader holds one of the markers.
        """
        from markerjit.questions.aggregates import MOST_TEXT, parse_aggregate
        from markerjit.session.aggregate import Job, added_up

        check_text("what", what)
        if by is not None:
            check_is("by", by, str)
        members, name, where = self._named(pattern, where)
        if keys is not None:
            check_int("keys", keys, 1, MOST_KEYS)
        check_int("text", text, 1, MOST_TEXT)
        by = None if by is None else members.without(by)
        asked = parse_aggregate(members.without(what), by=by, where=where, bytes_of_text=text)
        planner = self._switcher.planner
        probe = Record(nothing_read(RECORD, strings))
        request = planner.on(quiesce, mode, probe)
        job = Job(name, asked, request, keys)
        return self._within(added_up(self._switcher, job), members)

    def latency(
        self,
        begin: str,
        end: str | None = None,
        *,
        by: str | None = None,
        end_by: str | None = None,
        per: str | None = None,
        where: str | None = None,
        slower: float | None = None,
        room: int | None = None,
        keys: int | None = None,
        forget: float = 10.0,
        text: int = 64,
        mode: Mode | str | None = None,
        quiesce: str | None = None,
        strings: Strings | str = "fast",
    ) -> AbstractContextManager[Latency]:
        """Measure in the process the time from one marker to the next with the same key, or how
        long the calls of functions take. The markers are off at the end of the context, however it
        ends.

        `begin` and `end` are patterns. `by` is the key, one or several expressions that are
        integers or texts (None: `tid`). `end_by` is the key at the end, if its names are different
        there. `where` is a condition for a begin. `per` is a key of the same kind that pairs
        nothing: it is evaluated at the begin, such as "stack", and divides the times
        (`Latencies.rows`) by `keys` keys at most, rounded up to a power of two (None: 64).

        Without `end`, `begin` is a pattern of functions, such as "func:malloc", and each call is a
        pair. `by` then divides the durations (`Latencies.rows`); None is by the names of the
        functions, if there are several. `by` and `where` are evaluated at the return.

        Pairs that take at least `slower` seconds are handed out with the fields of both ends
        (`Latency.slow`). `room` is how many begins may wait at a time, or how many keys of calls
        there may be. A begin that has waited for `forget` seconds gives its place to a new one if
        all places are taken. `text` is the most bytes of a text in a key or field. `strings` is as
        for `trace`.

        `Latency.read` returns what was measured so far, and after the end all of it. Raises what
        `on` raises, and Refused while another reader holds one of the markers.
        """
        from markerjit.questions.aggregates import MOST_TEXT
        from markerjit.questions.latencies import Timed
        from markerjit.questions.syntax import check_not_empty
        from markerjit.session.latency import TOOK, Timing, timed
        from markerjit.session.members import Members
        from markerjit.sites.names import returns_of

        check_text("begin", begin)
        if end is not None:
            check_text("end", end)
        for option, key in {"by": by, "end_by": end_by, "per": per}.items():
            if key is not None:
                check_text(option, key)
                check_not_empty(key)
        if end is None and end_by is not None:
            raise BadArgument("end_by", end_by, "None where calls of functions are timed")
        if end is None and per is not None:
            expected = "None where calls of functions are timed, which `by` divides"
            raise BadArgument("per", per, expected)
        if where is not None:
            check_is("where", where, str)
        if slower is not None:
            check_seconds("slower", slower)
        if room is not None:
            check_int("room", room, 1, MOST_KEYS)
        if keys is not None:
            check_int("keys", keys, 1, MOST_KEYS)
        check_seconds("forget", forget)
        check_int("text", text, 1, MOST_TEXT)
        slower_ns = None if slower is None else round(slower * 1e9)
        begins = parse_name(begin)
        ends = returns_of(begins) if end is None else parse_name(end)
        is_calls = end is None
        key = by or ("" if is_calls else "tid")
        first, last = Members(self._target, begins), Members(self._target, ends)
        if where is not None:
            where = (last if is_calls else first).without(where)
        if per is not None:
            per = first.without(per)
        if not is_calls:
            ends_key = last.without(key if end_by is None else end_by)
            key = first.without(key)
            end_by = None if end_by is None and ends_key == key else ends_key
        elif key:
            key = last.without(key)
        took = TOOK if is_calls else ""
        asked = Timed(begin, ends.text, key, end_by, where, slower_ns, text, took, per)
        probe = Record(nothing_read(RECORD, strings))
        request = self._switcher.planner.on(quiesce, mode, probe)
        timing = Timing(begins, ends, asked, request, room, forget, self._clock, keys)
        return self._within(timed(self._switcher, timing), first, last)

    def trace(
        self,
        pattern: str = "*",
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
        select: str | None = None,
        sample: str | None = None,
        at_most: int | str | None = None,
        budget: str | None = None,
        stack: int | None = None,
        duration: float | None = None,
        limit: int | None = None,
    ) -> Tracing:
        """Record markers and stream the events. The result is for `with`, which gives the stream,
        or for `for`, which gives the events. The markers go on there, and are off at its end,
        however it ends. Arguments are checked by the call itself.

        `probe` may be a probe in C, as for `on`; the events are then those that it emits. With
        `resume` the stream begins with what a dead reader left.

        What is recorded: `fields` are the names of fields (a str is one name), and `text` is the
        most bytes of a string. `select` are named expressions in place of the fields, such as
        "ms=dur/1e6, key". `stack` is the most frames of each event's stack, up to 256;
        `Event.stack` has them with the names of their functions. `time` is the clock of the events:
        "tsc", the time stamp counter; "monotonic" or "coarse", the system's clocks; "none", only
        the order on each CPU. None is "tsc" if that can be used, and "monotonic" otherwise.
        `strings` is how strings are read: "fast", from pages that could be read within the last
        millisecond; "careful", in a memory transaction if the processor has them, and otherwise by
        the kernel, with a system call for each.

        Which events: `where` is a condition, as for `on`. `sample`, such as "1/100", records that
        share of the events that meet it, at random. `at_most`, such as 1000, records this many of
        each marker in any second (`EventStream.held_back`). The type of the records has these
        (`RecordType.brakes`). `budget`, such as "1%", is the share of the process's processor time
        that the probes may take. Beyond it they are thinned, and at last the stream is ended
        (`EventStream.cuts`).

        The stream ends by itself `duration` seconds after the markers are on, and with event number
        `limit`.

        If the stream falls behind, the rings grow, by `ring_growth` bytes in all. Each grows to 16
        MiB at most, unless it began with more. The memory is given back at the end. With `lossless`
        they do not grow.

        With `lossless`, an event that finds its ring full waits until the stream is read, in the
        thread that executes the marker. The program may become much slower, and may hold locks
        meanwhile. An event waits only while the stream was asked for events within the last two
        seconds, and for ten seconds at most. Then it is lost, and counted. Its time is the end of
        the wait. `EventStream.waits` says how many events waited. Refused in our own process, whose
        reader would wait for itself.

        Markers that were on and counting before count again. Markers that another controller has
        taken by `force` are left alone (`EventStream.statistics().taken`). While the stream is
        polled it holds a lease of the rings. If it is not polled for longer than the lease, it
        loses its probes. Raises what `on` raises, and Refused while another controller reads the
        rings.
        """
        from markerjit.events.bounds import Bounds
        from markerjit.session.trace import Asked, check_that_threads_may_wait, traced
        from markerjit.session.tracing import Tracing

        self._target.check_open()
        members, name, where = self._named(pattern, where)
        check_seconds("poll_s", poll_s)
        check_flag("resume", resume)
        check_flag("lossless", lossless)
        check_int("ring_growth", ring_growth, 0)
        _check_bounds(duration, limit)
        if lossless and self._target.own:
            raise Refused(
                "lossless is for another process: a thread of this one that waits may be the "
                "reader itself, or hold what the reader needs"
            )
        if lossless:
            check_that_threads_may_wait(self._target)
        select = members.selected(select)
        planner = self._switcher.planner
        from markerjit.session.recording import recording_of

        recording = recording_of(
            planner, mode, probe, quiesce, time, thread_id, fields, text, strings, where,
            select, Brakes.of(sample=sample, at_most=at_most, budget=budget), lossless=lossless,
            stack=stack,
        )  # fmt: skip
        growth = 0 if lossless else ring_growth

        def begun() -> AbstractContextManager[EventStream]:
            bounds = Bounds(duration, limit)
            asked = Asked(name, recording.read(), resume, poll_s, self._clock, growth, bounds)
            return self._within(traced(self._switcher, self._flights, asked), members)

        return Tracing(f"{pattern} in process {self.pid}", begun)

    def atrace(
        self,
        pattern: str = "*",
        *,
        room: int = 10_000,
        where: str | None = None,
        sample: str | None = None,
        at_most: int | str | None = None,
        fields: Sequence[str] | str | None = None,
        stack: int | None = None,
        duration: float | None = None,
        limit: int | None = None,
    ) -> Events:
        """The events of a trace for `async for`, in a service that does other things meanwhile. A
        thread with its own session reads them into a queue of `room` events. Events that find it
        full are dropped, and counted. The other arguments are those of `trace`, and are checked by
        the call itself. Asking for the first event raises what beginning a trace raises."""
        from markerjit.session.background import Events

        begin = self._begin(pattern, room, where, sample, at_most, fields, stack, duration, limit)
        return Events(begin, room)

    def subscribe(
        self,
        pattern: str,
        function: Callable[[Event], object],
        *,
        room: int = 10_000,
        where: str | None = None,
        sample: str | None = None,
        at_most: int | str | None = None,
        fields: Sequence[str] | str | None = None,
        stack: int | None = None,
        duration: float | None = None,
        limit: int | None = None,
    ) -> Subscription:
        """Call a function with each event of a trace, in a thread of its own, until the
        subscription is closed. Arguments as for `atrace`. Raises what `trace` raises."""
        from markerjit.session.background import Subscription, is_asynchronous

        check_callable("function", function)
        if is_asynchronous(function):
            raise BadArgument("function", function, "a plain function; for async there is atrace")
        begin = self._begin(pattern, room, where, sample, at_most, fields, stack, duration, limit)
        return Subscription(begin, room, function)

    def _begin(
        self,
        pattern: str,
        room: int,
        where: str | None,
        sample: str | None,
        at_most: int | str | None,
        fields: Sequence[str] | str | None,
        stack: int | None,
        duration: float | None,
        limit: int | None,
    ) -> Callable[[], AbstractContextManager[EventStream]]:
        """What begins a trace in another thread, with a session of its own."""
        check_int("room", room, 1, _MOST_ROOM)
        trace = partial(
            Session.trace, pattern=pattern, where=where, sample=sample, at_most=at_most,
            fields=fields, stack=stack, duration=duration, limit=limit,
        )  # fmt: skip
        trace(self)  # checks the arguments
        again = self._again

        @contextmanager
        def traced() -> Iterator[EventStream]:
            with again() as session, trace(session) as stream:
                yield stream

        return traced

    def record_to(
        self,
        path: str,
        pattern: str = "*",
        *,
        duration: float | None = None,
        limit: int | None = None,
        force: bool = False,
        mode: Mode | str | None = None,
        probe: str | Compiled = RECORD,
        quiesce: str | None = None,
        time: Time | str | None = None,
        thread_id: bool = True,
        fields: Sequence[str] | str | None = None,
        text: int = DEFAULT_TEXT,
        strings: Strings | str = "fast",
        lossless: bool = False,
        ring_growth: int = DEFAULT_GROWTH,
        where: str | None = None,
        select: str | None = None,
        sample: str | None = None,
        at_most: int | str | None = None,
        budget: str | None = None,
        stack: int | None = None,
    ) -> StreamStatistics:
        """Trace markers into a file, in the format of its suffix; returns the counts. It lasts for
        `duration` seconds, or until there are `limit` events, or until the process ends. An
        existing file is replaced only with `force`. The other arguments are those of `trace`.

        The file can be read however it ends, also by KeyboardInterrupt. Raises what `trace` and
        `open_sink` raise.
        """
        from markerjit.session.to_file import write_events
        from markerjit.trace.open import check_output

        check_output(path, force=force)
        with self.trace(
            pattern, mode=mode, probe=probe, quiesce=quiesce, time=time, thread_id=thread_id,
            fields=fields, text=text, strings=strings, lossless=lossless, ring_growth=ring_growth,
            where=where, select=select, sample=sample, at_most=at_most, budget=budget,
            stack=stack, duration=duration, limit=limit,
        ) as stream:  # fmt: skip
            write_events(self._target, stream, path, exact=limit is not None, force=force)
        return stream.statistics()

    def trace_calls(
        self,
        pattern: str | None = None,
        *,
        duration: float | None = None,
        limit: int | None = None,
        depth: int | None = None,
        tids: Sequence[int] | None = None,
        below: str | None = None,
        breakpoints: bool = False,
        lossless: bool = False,
        ring_growth: int = DEFAULT_GROWTH,
        quiesce: str | None = None,
        slices: str | None = None,
        force: bool = False,
        progress: Progress | None = None,
    ) -> AbstractContextManager[CallTrace]:
        """Follow the calls of functions, and add them up as a call graph. The entry and all exits
        of each function are on meanwhile, and off at the end of the context, however it ends.

        `pattern` names functions, with or without `func:`. None is all functions of the program
        itself, without its libraries. A function is left out (`CallTrace.not_opened`) if its entry
        or one of its exits cannot be opened, or if it needs a breakpoint and neither `breakpoints`
        nor the session takes it. The trace ends by itself after `duration` seconds, and after the
        poll with call number `limit`.

        `depth` is how deep calls are shown, `tids` are the threads, and `below` is a function: only
        what happens below it is shown. Calls that these leave out are recorded all the same.
        `slices` is a file for Perfetto (.pftrace) with all single calls; `force` replaces an
        existing one. `lossless` and `ring_growth` are as for `trace`. `progress` is called with a
        text and a number from 0 to 1 while functions are planned, before anything is switched on.

        The caller polls it (`CallTrace.poll`), or waits for its end (`CallTrace.wait`). Raises what
        `trace` raises, and Refused if no function can be followed, or if the process has no room
        for all of them.
        """
        from markerjit.session.calls import AskedCalls, Filter, called, functions_named
        from markerjit.session.openings import silent
        from markerjit.session.recording import recording_of
        from markerjit.session.trace import check_that_threads_may_wait

        if pattern is not None:
            check_text("pattern", pattern)
        _check_bounds(duration, limit)
        if depth is not None:
            check_int("depth", depth, 1, _MOST_DEPTH)
        if tids is not None:
            check_all("tids", tids, int)
            for tid in tids:
                check_int("tids", tid, 0, _MOST_TID)
        if below is not None:
            check_text("below", below)
        check_flag("breakpoints", breakpoints)
        check_flag("lossless", lossless)
        check_int("ring_growth", ring_growth, 0)
        check_flag("force", force)
        if progress is not None:
            check_callable("progress", progress)
        if slices is not None:
            check_path("slices", slices)
            from markerjit.calls.files import SLICES, check_calls_file

            check_calls_file(slices, force=force)
            if not os.fspath(slices).endswith(SLICES):
                raise BadArgument("slices", slices, f"a file with the suffix {SLICES[0]}")
        with self._target.known():
            name = functions_named(pattern, self.pid)
        if lossless:
            check_that_threads_may_wait(self._target)
        recording = recording_of(
            self._switcher.planner, None, RECORD, quiesce, None, True, (), DEFAULT_TEXT, "fast",
            None, None, NO_BRAKES, lossless=lossless,
        )  # fmt: skip
        if breakpoints:
            recording = recording.with_breakpoints()
        asked = AskedCalls(
            name, recording, Filter(depth, None if tids is None else tuple(tids), below),
            0 if lossless else ring_growth, self._clock, limit, duration,
            None if slices is None else (os.fspath(slices), force), progress or silent,
        )  # fmt: skip
        return self._within(called(self._switcher, self._flights, asked))

    def calls(
        self,
        pattern: str | None = None,
        *,
        duration: float | None = None,
        limit: int | None = None,
        depth: int | None = None,
        tids: Sequence[int] | None = None,
        below: str | None = None,
        breakpoints: bool = False,
        lossless: bool = False,
        ring_growth: int = DEFAULT_GROWTH,
        quiesce: str | None = None,
        slices: str | None = None,
        force: bool = False,
        progress: Progress | None = None,
    ) -> CallGraph:
        """The calls of functions as a call graph, for `duration` seconds, until there are `limit`
        calls, or until the process ends. Arguments and errors as for `trace_calls`.
        """
        with self.trace_calls(
            pattern, duration=duration, limit=limit, depth=depth, tids=tids, below=below,
            breakpoints=breakpoints, lossless=lossless, ring_growth=ring_growth, quiesce=quiesce,
            slices=slices, force=force, progress=progress,
        ) as trace:  # fmt: skip
            trace.wait()
        return trace.graph()

    def trace_allocations(
        self,
        *,
        allocs: Sequence[str] | str = (),
        frees: Sequence[str] | str = (),
        by: str = "site",
        read: bool = False,
        duration: float | None = None,
        limit: int | None = None,
        quiesce: str | None = None,
    ) -> AbstractContextManager[AllocationTrace]:
        """Follow what is allocated and freed, by call site. The functions are those of the C
        library's malloc, or of the allocator that replaces it. They are off at the end of the
        context, however it ends.

        `by` says what a site is: "site", the immediate caller; "stack", the whole stack, of at most
        64 frames; or "stack(N)", of at most N frames.

        `allocs` and `frees` name what allocates and frees instead. They are markers with fields
        `ptr` and `size`, or functions. An allocating function returns the block and takes the size
        first; a freeing one takes the block first. With `read` the bytes that were really given are
        read in the process, from the word before each block of glibc; otherwise they follow the
        rules of the allocator. The trace ends by itself after `duration` seconds, and after the
        poll with allocation number `limit`.

        Blocks are added up in the process, and those that are live are kept there. So nothing is
        lost if the caller is late.

        The caller polls it (`AllocationTrace.poll`), or waits for its end (`AllocationTrace.wait`).
        Raises what `aggregate` raises. Raises BadArgument if there are `allocs` without `frees` or
        fields that are not known, and Unsupported if the allocator of the process is not known, or
        `read` is given for another one than glibc's. By stacks it raises Refused if the process has
        no room for them.
        """
        from markerjit.session.allocations import AskedAllocations, followed
        from markerjit.session.allocators import allocator_of, depth_of, own_allocator

        allocs, frees = _names_of("allocs", allocs), _names_of("frees", frees)
        depth = depth_of(by)
        check_flag("read", read)
        _check_bounds(duration, limit)
        if bool(allocs) != bool(frees):
            raise BadArgument(
                "frees" if allocs else "allocs", (),
                f"given together with {'allocs' if allocs else 'frees'}",
            )  # fmt: skip
        if allocs and read:
            raise BadArgument("read", read, "for the C library's malloc, whose blocks are known")
        with self._target.known():
            self._target.look()
            if allocs:
                recorded = own_allocator(self._target, allocs, frees, depth=depth)
            else:
                recorded = allocator_of(self._target, read=read, depth=depth)
        request = self._switcher.planner.on(quiesce)
        asked = AskedAllocations(recorded, request, self._clock, read, limit, duration)
        return self._within(followed(self._switcher, asked))

    def allocations(
        self,
        *,
        allocs: Sequence[str] | str = (),
        frees: Sequence[str] | str = (),
        by: str = "site",
        read: bool = False,
        duration: float | None = None,
        limit: int | None = None,
        quiesce: str | None = None,
    ) -> Allocations:
        """The allocations for `duration` seconds, until there are `limit`, or until the process
        ends. Arguments and errors as for `trace_allocations`."""
        with self.trace_allocations(
            allocs=allocs, frees=frees, by=by, read=read, duration=duration, limit=limit,
            quiesce=quiesce,
        ) as trace:  # fmt: skip
            trace.wait()
        return trace.allocations()

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
        select: str | None = None,
        sample: str | None = None,
        at_most: int | str | None = None,
        stack: int | None = None,
    ) -> Applied:
        """Switch markers on as a flight recorder: the rings keep the newest events, and only
        `flight` reads them, by taking a picture. `off` ends it. Arguments as for `trace`.

        Raises what `on` raises, and Refused while another controller reads the rings.
        """
        members, name, where = self._named(pattern, where)
        select = members.selected(select)
        planner = self._switcher.planner
        from markerjit.session.recording import recording_of

        recording = recording_of(
            planner, mode, probe, quiesce, time, thread_id, fields, text, strings, where,
            select, Brakes.of(sample=sample, at_most=at_most), stack=stack,
        )  # fmt: skip
        with members.said_before(), self._switcher.turn() as turn:
            return self._flights.begin(turn, name, recording)

    def flight(self) -> Flight:
        """The flight recorder that is, or was, switched on in the process; see `record`.

        Raises Refused if there is none.
        """
        self._target.look()
        self._target.refuse_unknown_runtime()
        return self._flights.flight()

    def watch_flight(self) -> Watch:
        """A watch for a caller that waits beside the flight recorder until the process ends.

        Raises Refused if there is none, or if the rings would end with the process.
        """
        self._target.look()
        self._target.refuse_unknown_runtime()
        return self._flights.watch()

    @property
    def ring_size(self) -> int:
        """Bytes of records for each CPU. Raises MarkerError after `close`."""
        self._target.check_open()
        arena = self._target.seen.arena
        return arena.rings.sizes()[0] if arena else self._switcher.ring_size or 0

    def trace_info(self, types: tuple[RecordType, ...], clock: Calibration) -> TraceInfo:
        """The origin of events of these types, as a trace file states it."""
        from markerjit.ring.clock import Calibration
        from markerjit.session.trace import trace_info

        check_all("types", types, RecordType)
        check_is("clock", clock, Calibration)
        return trace_info(self._target, types, clock)


def _names_of(parameter: str, names: Sequence[str] | str) -> tuple[str, ...]:
    texts = (names,) if isinstance(names, str) else names
    check_all(parameter, texts, str)
    for text in texts:
        check_text(parameter, text)
    return tuple(texts)


def _name_or_everything(pattern: str | None) -> ProbeName:
    if pattern is None:
        return EVERYTHING
    check_text("pattern", pattern)
    return parse_name(pattern)


def _check_bounds(duration: float | None, limit: int | None) -> None:
    if duration is not None:
        check_seconds("duration", duration)
    if limit is not None:
        check_int("limit", limit, 1)
