"""Nonsense for every argument of every public function: it is refused in a sentence, or works, and
the target is as it was."""

from __future__ import annotations

import gc
import inspect
import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from enum import Enum
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import Mock

import pytest

import markerjit
from markerjit.elf import prototypes
from markerjit.events.stream import feeds_of
from markerjit.memory import ProcessMemory, read_maps
from tests.support.choice import share
from tests.support.made_records import make_info
from tests.support.nonsense import CLOCK, NONSENSE, call, complaints, of_values, public_functions
from tests.support.programs import Target
from tests.support.shortage import open_descriptors
from tests.support.timing import Limited

pytestmark = pytest.mark.live

NO_NONSENSE = {
    "progress": "a function that reports progress is the caller's, and so are its errors",
}
"""Parameters for which there is no nonsense, and why."""


class Place(NamedTuple):
    """What is there to be called with."""

    program: Target
    session: markerjit.Session
    stream: markerjit.EventStream
    folder: Path


def right(place: Place) -> dict[str, tuple[Callable[..., Any], dict[str, Any]]]:
    """Every public function, and arguments with which it works or would."""
    session, stream, folder = place.session, place.stream, place.folder
    info = make_info(clock=CLOCK)
    path = str(folder / "trace.txt")
    pattern, record = {"pattern": "truth_loop"}, {
        "pattern": "truth_loop", "mode": "jump", "quiesce": "stop", "probe": "record",
        "time": "tsc", "thread_id": True,
        "fields": None, "text": 256, "strings": "fast", "where": "i >= 0", "sample": "1/2",
        "at_most": "1000/s", "stack": 3,
    }  # fmt: skip
    trace = markerjit.open_trace(path)
    types = tuple(stream.types.values())
    how = {"mode": "jump", "quiesce": "stop"}
    apart = {
        **pattern, "room": 10, "where": "i < -1", "fields": None, "duration": 0.0, "limit": 1,
        "sample": "1/2", "at_most": "1000/s", "stack": 3,
    }  # fmt: skip
    enabled = {
        **pattern, "mode": "jump", "quiesce": "stop", "probe": "record", "strings": "fast",
        "force": False, "where": "i >= 0",
        "for_s": 60, "sample": "1/2", "at_most": "1000/s", "stack": 3,
    }  # fmt: skip
    record["select"] = "i"
    followed = {
        "pattern": "nobody*", "duration": 0.0, "limit": 1, "depth": 1, "tids": [1], "below": "main",
        "breakpoints": False, "lossless": False, "ring_growth": 0, "quiesce": "stop",
        "slices": str(folder / "calls.pftrace"), "force": True,
    }  # fmt: skip
    allocated = {
        "allocs": "func:nobody", "frees": "func:free", "read": False, "duration": 0.0, "limit": 1,
        "by": "stack", "quiesce": "stop",
    }  # fmt: skip
    nothing_allocated = markerjit.Allocations(
        0.0, (), 0, 0.0, 0, 0, 0, 0, 0, "", False, (), (), 0, 1, ""
    )
    no_calls = markerjit.CallGraph(0.0, (), (), (), ())
    folded = str(folder / "calls.folded")
    flight = markerjit.Flight(session._target.seen.arena, dict)
    polls = {"packets": False, "columns": True}
    of_stream = {
        "feed": feeds_of([stream])[0],
        "poll_s": 0.0,
        "dropped_bytes": 0,
        "unswitched": (),
    }
    probe = {
        "source": str(folder / "none.c"), "function": "f", "compiler": None, "options": (),
        "include": None,
    }  # fmt: skip
    target = session._target
    of_watch = {"flight": flight, "arena": target.seen.arena, "pidfd": target.memory.pidfd}
    every = {"trace": trace, "select": lambda name: True}
    opened = {"pid": place.program.pid, "seccomp": "read"}
    vouched = {**opened, "ring_size": 1 << 20, "breakpoints": False}
    listed = {"path": str(place.program.path), "pattern": "*"}
    family = partial(
        markerjit.Family, [place.program.pid], lambda session: session.trace("truth_loop")
    )
    newcomers = partial(
        markerjit.Newcomers,
        markerjit.Targets(exe="/bin/true"),  # which nobody executes
        lambda session: session.trace("truth_loop"),
    )
    fleet = partial(markerjit.Fleet, [place.program.pid])
    launched = partial(markerjit.launch, ["/bin/true"])
    axes = Mock()  # a picture that nobody sees
    formatted = {"fields": stream.fields, "json": False, "clock": None}
    return {
        "attach": (markerjit.attach, vouched),
        "Session": (markerjit.Session, vouched),
        "Fleet": (
            markerjit.Fleet,
            {
                "pids": [place.program.pid],
                "ring_size": 1 << 20,
                "seccomp": "read",
                "breakpoints": False,
            },
        ),
        "Family": (
            markerjit.Family,
            {
                "pids": [place.program.pid],
                "request": lambda session: session.trace("truth_loop"),
                "program": None,
                "ring_size": 1 << 20,
                "seccomp": "read",
                "breakpoints": False,
            },
        ),
        "Newcomers": (
            markerjit.Newcomers,
            {
                "targets": markerjit.Targets(exe="/bin/true"),  # which nobody executes
                "request": lambda session: session.trace("truth_loop"),
                "ring_size": 1 << 20,
                "seccomp": "read",
                "breakpoints": False,
            },
        ),
        "Family.wait": (within(family, "wait"), {"most_s": 0.0}),
        "Family.retire": (within(family, "retire"), {"member": None}),
        "Newcomers.wait": (within(newcomers, "wait"), {"most_s": 0.0}),
        "Newcomers.retire": (within(newcomers, "retire"), {"member": None}),
        "Fleet.each": (within(fleet, "each"), {"request": str}),
        "Fleet.trace": (
            within(fleet, "trace"),
            {"request": lambda session: session.trace("truth_loop")},
        ),
        "Launched.attach": (
            within(launched, "attach"),
            {"ring_size": 1 << 20, "seccomp": "read", "breakpoints": False},
        ),
        "Launched.note_end": (within(launched, "note_end"), {"status": 0}),
        "Launched.send": (within(launched, "send"), {"number": 0}),
        "Watch.wait": (markerjit.Watch(**of_watch).wait, {"until_off": True}),
        "Launched": (markerjit.Launched, {"command": ["/bin/true"], "patience": 1.0}),
        "launch": (markerjit.launch, {"command": ["/bin/true"], "patience": 1.0}),
        "parse_targets": (markerjit.parse_targets, {"text": "1,2"}),
        "find_processes": (markerjit.find_processes, {"targets": markerjit.Targets((1,))}),
        "choose_one": (markerjit.choose_one, {"targets": markerjit.Targets((1,))}),
        "View": (markerjit.View, opened),
        "View.usdt": (session.usdt, pattern),
        "View.usdt_needs": (session.usdt_needs, pattern),
        "View.usdt_problems": (session.usdt_problems, pattern),
        "View.functions": (session.functions, {"pattern": "func:main"}),
        "View.as_reads": (session.as_reads, {"pattern": "func:main", "text": "argc > 1"}),
        "View.sites": (session.sites, pattern),
        "View.status": (session.status, {**pattern, "look": False}),
        "View.statistics": (session.statistics, {**pattern, "look": False}),
        "View.states": (session.states, {"sites": session.sites("truth_loop")}),
        "View.read": (session.read, {"address": session.sites()[0].address, "size": 1}),
        "Session.plan": (session.plan, {**pattern, "on": True, "probe": "count", **how}),
        "Session.on": (session.on, enabled),
        "Session.off": (session.off, {**pattern, "force": False, "quiesce": "stop"}),
        "Session.switch_off_overdue": (session.switch_off_overdue, {"early": "truth_loop"}),
        "Session.enable": (session.enable, enabled),
        "Session.disable": (session.disable, {**pattern, "force": False, "quiesce": "stop"}),
        "Session.end_record": (session.end_record, pattern),
        "Session.record": (session.record, record),
        "Session.stepping": (session.stepping, {**pattern, "on": True, "lease_s": 60, **how}),
        "Session.aggregate": (
            session.aggregate,
            {
                **pattern,
                "what": "count()",
                "by": "tid",
                "where": "i < -1",
                "keys": 10,
                "text": 8,
                "strings": "fast",
                **how,
            },
        ),
        "Session.latency": (
            session.latency,
            {
                "begin": "truth_loop",
                "end": "truth_loop",
                "by": "tid",
                "end_by": "tid",
                "per": "i",
                "where": "i < -1",
                "slower": 0.1,
                "room": 10,
                "keys": 10,
                "forget": 1.0,
                "text": 8,
                "strings": "fast",
                **how,
            },
        ),
        "Session.trace": (
            session.trace,
            {
                **record,
                "budget": "1%",
                "poll_s": 0.02,
                "lossless": False,
                "ring_growth": 0,
                "resume": False,
                "duration": 0.0,
                "limit": 1,
            },
        ),
        "Session.atrace": (session.atrace, apart),
        "Session.subscribe": (session.subscribe, {**apart, "function": lambda event: event}),
        "Session.record_to": (
            session.record_to,
            {
                **record,
                "budget": "1%",
                "path": str(folder / "to.txt"),
                "lossless": False,
                "ring_growth": 0,
                "duration": 0.0,
                "limit": 1,
                "force": True,
            },
        ),
        "Session.trace_allocations": (session.trace_allocations, allocated),
        "Session.allocations": (session.allocations, allocated),
        "Session.trace_calls": (session.trace_calls, followed),
        "Session.calls": (session.calls, followed),
        "Session.replace": (session.replace, {"function": "func:main", "new": "none.c:main"}),
        "Session.revert": (session.revert, {"function": "func:main"}),
        "Plots.rate": (
            session.plot.rate,
            {**pattern, "duration": 0.0, "every": 0.1, "axes": axes},
        ),
        "Plots.histogram": (
            session.plot.histogram,
            {**pattern, "value": "i", "duration": 0.0, "where": "i < -1", "axes": axes},
        ),
        "Plots.timeline": (
            session.plot.timeline,
            {**pattern, "duration": 0.0, "limit": 1, "axes": axes},
        ),
        "Session.trace_info": (session.trace_info, {"types": types, "clock": CLOCK}),
        "EventStream": (markerjit.EventStream, of_stream),
        "EventStream.record_batches": (stream.record_batches, polls),
        "EventStream.poll_batch": (stream.poll_batch, {**polls, "most": 1}),
        "EventStream.rest": (stream.rest, polls),
        "EventStream.poll": (stream.poll, {"most": 1}),
        "EventStream.use_clock_of": (stream.use_clock_of, {"other": stream}),
        "merge": (markerjit.merge, {"streams": [stream], "poll_s": 0.0}),
        "Merger.add": (markerjit.Merger([stream]).add, {"stream": stream}),
        "Merger": (markerjit.Merger, {"streams": [stream]}),
        "Merger.poll": (markerjit.Merger([stream]).poll, {"most": 1}),
        "Merger.hand_out": (markerjit.Merger([stream]).hand_out, {"most": 1}),
        "Merger.poll_columns": (markerjit.Merger([stream]).poll_columns, {"most": 1}),
        "Merger.hand_out_columns": (markerjit.Merger([stream]).hand_out_columns, {"most": 1}),
        "Flight": (
            markerjit.Flight,
            {"arena": session._target.seen.arena, "known": dict, "stacks": None},
        ),
        "Watch": (markerjit.Watch, of_watch),
        "repair": (markerjit.repair, opened),
        "table": (markerjit.table, {"values": session.sites()}),
        "list_file": (markerjit.list_file, listed),
        "coverage_of_file": (
            markerjit.coverage_of_file,
            {"path": str(place.program.path), "instructions": 0},
        ),
        "coverage_of_process": (
            markerjit.coverage_of_process,
            {"pid": place.program.pid, "mapped": "", "instructions": 0},
        ),
        "stacks_of_process": (
            markerjit.stacks_of_process,
            {"pid": place.program.pid, "tid": place.program.pid, "depth": 1},
        ),
        "sample_stacks": (
            markerjit.sample_stacks,
            {
                "pid": place.program.pid,
                "count": 1,
                "every": 0.0,
                "tid": None,
                "depth": 1,
                "running": False,
            },
        ),
        "list_file_functions": (
            markerjit.list_file_functions,
            {**listed, "pattern": "func:main"},
        ),
        "list_file_usdt": (markerjit.list_file_usdt, listed),
        "compile_probe": (markerjit.compile_probe, probe),
        "compiled_probe": (markerjit.compiled_probe, {"probe": "count"}),
        "open_sink": (
            markerjit.open_sink,
            {"path": path, "info": info, "force": False, "of_columns": False},
        ),
        "is_joint": (markerjit.is_joint, {"path": path}),
        "needs_all_first": (markerjit.needs_all_first, {"path": path}),
        "join_traces": (
            markerjit.join_traces,
            {"traces": [], "path": str(folder / "joined.jsonl"), "select": bool, "force": True},
        ),
        "open_joint": (
            markerjit.open_joint,
            {"path": str(folder / "joint.jsonl"), "force": True},
        ),
        "times_of": (markerjit.times_of, {"columns": [], "clock": CLOCK}),
        "LineTemplate": (markerjit.LineTemplate, {"text": "{time} {name}"}),
        "open_trace": (markerjit.open_trace, {"path": path}),
        "read": (markerjit.read, {"path": path}),
        "open_traces": (markerjit.open_traces, {"path": path}),
        "check_output": (markerjit.check_output, {"path": path, "force": False}),
        "check_calls_file": (
            markerjit.check_calls_file,
            {"path": folded, "force": True, "slices": True},
        ),
        "check_allocations_file": (
            markerjit.check_allocations_file,
            {"path": folded, "force": True},
        ),
        "write_allocations": (
            markerjit.write_allocations,
            {"allocations": nothing_allocated, "path": folded, "force": True},
        ),
        "write_calls": (markerjit.write_calls, {"graph": no_calls, "path": folded, "force": True}),
        "takes_packets": (markerjit.takes_packets, {"sink": None}),
        "convert": (
            markerjit.convert,
            {**every, "path": str(folder / "other.jsonl"), "force": True},
        ),
        "line_formatter": (markerjit.line_formatter, formatted),
        "event_lines": (
            markerjit.event_lines,
            {"columns": [], "clock": CLOCK, "json": False, "pids": None},
        ),
        "find_marked": (markerjit.find_marked, {"pids": [place.program.pid]}),
        "overview": (markerjit.overview, {"everyone": False, "usdt": False}),
        "matching_names": (markerjit.matching_names, {"pattern": "n*", "names": ["n"]}),
        "only_fields": (markerjit.only_fields, {"trace": trace, "names": ["n"]}),
        "select_fields": (markerjit.select_fields, {"trace": trace, "text": "n"}),
        "weigh_stacks": (markerjit.weigh_stacks, {"traces": [trace], "select": lambda name: True}),
        "where": (
            markerjit.where,
            {**every, "text": "tid > 0", "tids": [1], "cpus": [0], "since": 0, "before": 1},
        ),
        "summarise": (markerjit.summarise, {**every, "budget": None}),
    }


@pytest.fixture
def place(target: Callable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Place]:
    """A stream that has ended: nothing of it may wait."""
    monkeypatch.chdir(tmp_path)  # where files with strange names may come into being
    program = target("truth_threads", "2", "--rate", "500")
    with markerjit.attach(program.pid) as session:
        with session.trace("truth_loop") as stream:
            pass
        stream.stop()
        sink = markerjit.open_sink(str(tmp_path / "trace.txt"), make_info(clock=CLOCK))
        sink.close({})
        yield Place(program, session, stream, tmp_path)


def code_of(program: Target) -> list[bytes]:
    """The bytes of the program's code, as they are in memory."""
    with ProcessMemory(program.pid) as memory:
        return [
            memory.read(mapping.start, mapping.size)
            for mapping in read_maps(program.pid)
            if mapping.executable and mapping.path == str(program.path)
        ]


def within(made: Callable[[], Any], method: str) -> Callable[..., Any]:
    """A method of something that is made for each call, and closed after it."""

    def called(**arguments: Any) -> None:
        with made() as owner:
            call(getattr(owner, method), arguments)

    return called


def open_without_debugging_information() -> set[str]:
    """What is open, without the files of types, which stay so: some of other programs that are
    looked at, too. drgn's types refer to each other, so only the collector closes their file."""
    prototypes._programs.clear()
    gc.collect()
    return open_descriptors()


def test_nonsense_is_refused_or_works_and_the_target_is_as_it_was(place: Place) -> None:
    """A number that is no limit of a text killed the target with SIGSEGV."""
    before, open_before = code_of(place.program), open_without_debugging_information()
    wrong, turns = [], count()
    for name, (function, arguments) in right(place).items():
        for argument in arguments:
            values = share(NONSENSE, 3, next(turns))
            wrong += complaints(name, function, arguments, argument, values)
            place.session.disable("*")

    assert not wrong, "\n".join(wrong)
    assert place.program.process.poll() is None
    assert code_of(place.program) == before
    assert open_without_debugging_information() == open_before
    assert place.program.ask("counts")["truth_loop"] > 0


def test_every_argument_of_every_public_function_is_in_a_table(place: Place) -> None:
    tables = {**right(place), **of_values(place.folder)}
    missing = []
    for name, function in public_functions():
        if _is_value(function):
            continue
        table = tables.get(name) or tables.get(name.replace("Session.", "View."), (None, {}))
        parameters = set(inspect.signature(function).parameters) - {"self", *NO_NONSENSE}
        missing += [f"{name}({parameter})" for parameter in sorted(parameters - set(table[1]))]
    assert missing == []


def test_the_tables_have_nothing_that_there_is_not(place: Place) -> None:
    known = {name for name, _ in public_functions()}

    assert {*right(place), *of_values(place.folder)} <= known


def _is_value(function: Any) -> bool:
    """Errors, enumerations, named tuples and some more are made by us."""
    made = (
        markerjit.AddingUp, markerjit.AllocationTrace, markerjit.CallTrace, markerjit.Events,
        markerjit.Latency, markerjit.Plots, markerjit.StackText, markerjit.Subscription,
        markerjit.Tracing,
    )  # fmt: skip
    classes = (*made, markerjit.Compiled, markerjit.Field, markerjit.Stepper, markerjit.Trace)
    made_by_us = (Exception, tuple, Enum, *classes)
    return isinstance(function, type) and issubclass(function, made_by_us)


def test_a_closed_session_refuses_whatever_it_is_asked(place: Place) -> None:
    """Without a look at anything else: as_reads parses, and trace_info repeats what it is given."""
    table = {
        name: rest for name, rest in right(place).items()
        if name.startswith(("View.", "Session.")) and not name.endswith(("as_reads", "trace_info"))
    }  # fmt: skip
    before = code_of(place.program)
    place.session.close()

    for name, (function, arguments) in table.items():
        with pytest.raises(markerjit.MarkerError, match=r"released, .* attach again") as refused:
            call(function, arguments)
        assert type(refused.value) is markerjit.MarkerError, name
    assert code_of(place.program) == before


def test_a_closed_session_answers_nothing_else_either(place: Place) -> None:
    """What has no argument: methods and properties."""
    session = place.session
    session.close()
    plain = {"pid", "command", "closed", "close", "plot", "as_reads", "trace_info"}
    names = {name for name in dir(session) if not name.startswith("_")} - plain

    answered = []
    for name in sorted(names):
        try:
            member = getattr(session, name)
            required = [
                each for each in inspect.signature(member).parameters.values()
                if each.default is inspect.Parameter.empty
            ]  # fmt: skip
            if required:
                continue
            made = member()
        except markerjit.MarkerError as error:
            assert "attach again" in str(error), name
        else:
            with ExitStack() as stack, suppress(markerjit.MarkerError):
                stack.enter_context(made)
                answered.append(name)
            if not hasattr(made, "__enter__"):
                answered.append(name)
    assert answered == []


def test_what_is_no_process_is_refused_at_every_door(place: Place) -> None:
    child = Limited(["true"])
    child.wait()
    pid = place.program.pid
    thread = next(int(tid) for tid in os.listdir(f"/proc/{pid}/task") if int(tid) != pid)
    wrong = {
        thread: (markerjit.Unsupported, f"{thread} is a thread; name the process"),
        **{
            number: (markerjit.NoSuchProcess, f"no process {number}; has it ended")
            for number in (child.pid, 0, -1, 1 << 31, 1 << 40)
        },
    }
    doors: dict[str, Callable[[int], Any]] = {
        "attach": markerjit.attach,
        "View": markerjit.View,
        "Fleet": lambda number: markerjit.Fleet([number]),
        "Family": lambda number: markerjit.Family([number], lambda session: session.trace("*")),
        "repair": markerjit.repair,
        "coverage_of_process": markerjit.coverage_of_process,
        "stacks_of_process": markerjit.stacks_of_process,
        "sample_stacks": lambda number: markerjit.sample_stacks(number, count=1),
    }
    before = code_of(place.program)

    for door in doors.values():
        for number, (kind, message) in wrong.items():
            with pytest.raises(kind, match=message):
                door(number)
    assert code_of(place.program) == before


def test_a_limit_below_a_text_is_refused_at_the_door(target: Callable) -> None:
    program = target("truth_texts")
    with markerjit.attach(program.pid) as session:
        for text in (-1, 0, 65535.0):
            with pytest.raises(markerjit.BadArgument, match=r"text is .*from 1 on") as bad:
                session.trace("texts_*", text=text).__enter__()
            assert (bad.value.name, bad.value.value) == ("text", text)
            assert isinstance(bad.value, ValueError)
        with session.trace("texts_string", text=1 << 70):
            assert program.command("pass 100") == "pass bad=0"
        assert session.statistics("texts_string")[0].hits > 0


def test_a_str_is_one_name_of_a_field(target: Callable) -> None:
    program = target("truth_threads", "1", "--rate", "500")
    with markerjit.attach(program.pid) as session:
        with session.trace("truth_loop", fields="n") as events:
            assert [field.name for field in events.fields["truth_loop"]] == ["n"]
        with (
            pytest.raises(markerjit.Refused, match="no marker has a field turn; there are i, n"),
            session.trace("truth_loop", fields="turn"),
        ):
            raise AssertionError
