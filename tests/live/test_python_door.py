"""The Python door: a script as it is written without looking anything up works."""

from __future__ import annotations

import copy
import gc
import pickle
import re
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import nullcontext
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

import markerjit
from tests.support.commands import ENVIRONMENT
from tests.support.programs import Target

pytestmark = [pytest.mark.live, pytest.mark.pythons]

SOON = timedelta(seconds=60)


@pytest.fixture
def program(target: Callable[..., Target]) -> Target:
    return target("truth_threads", "2", "--rate", "2000")


# ---- processes by what they are called -----------------------------------------------------------


def test_a_process_is_attached_to_by_its_number_as_text_and_by_its_name(program: Target) -> None:
    with markerjit.attach(str(program.pid)) as session:
        assert session.pid == program.pid
    with markerjit.attach([str(program.pid), "truth_threads"]) as fleet:
        assert program.pid in fleet.sessions
    with markerjit.attach([program.pid]) as fleet:
        assert [*fleet.sessions] == [program.pid]


def test_a_name_of_several_is_refused_with_the_numbers(target: Callable[..., Target]) -> None:
    pids = [target("truth_twins").pid for _ in range(2)]

    with pytest.raises(markerjit.Refused, match="processes are named truth_twins") as refused:
        markerjit.attach("truth_twins")
    assert all(str(pid) in str(refused.value) for pid in pids)
    with markerjit.attach(["truth_twins"]) as fleet:
        assert {*pids} <= {*fleet.sessions}


def test_a_name_that_no_program_has_is_no_match() -> None:
    with pytest.raises(markerjit.NoMatch, match="no process is named no-such-program"):
        markerjit.attach("no-such-program")


@pytest.mark.parametrize("wrong", [[], ["1", 1], [1, 1], "1,2", "", b"12", {1: 2}, True, [None]])
def test_what_is_no_process_is_a_bad_argument(wrong: object) -> None:
    with pytest.raises(markerjit.BadArgument):
        markerjit.attach(wrong)  # type: ignore[call-overload]


def test_a_launched_program_is_traced_from_its_start(build: Path) -> None:
    with (
        markerjit.launch([str(build / "truth_start"), "exit", "3"]) as program,
        program.attach() as session,
        session.trace("truth_*") as events,
    ):
        assert "waits" in repr(program)
        program.go()
        names = [event.name for event in events]
    assert names == ["truth_constructed", "truth_main", "truth_end"]
    assert program.wait() == 3
    assert "has ended" in repr(program)


def test_a_launched_program_that_is_forgotten_is_ended_with_a_warning(build: Path) -> None:
    program = markerjit.launch([str(build / "truth_start"), "exit", "3"])
    pid = program.pid

    with pytest.warns(ResourceWarning, match=f"unclosed <Launched {pid} "):
        del program
        gc.collect()

    with pytest.raises(markerjit.NoSuchProcess):
        markerjit.View(pid)


# ---- the verbs of the command line ---------------------------------------------------------------


def test_on_off_and_status_are_those_of_the_command_line(program: Target) -> None:
    with markerjit.attach(program.pid) as session:
        session.on("truth_loop")
        (marker,) = session.status("truth_loop")
        assert (marker.name, str(marker.mode), marker.probe) == ("truth_loop", "jump", "count")
        session.off("truth_loop")
        (marker,) = session.status("truth_loop")
        assert marker.mode is None
        assert (session.enable, session.disable) == (session.on, session.off)
        assert session.statistics == session.status


def test_a_site_has_its_name_and_source(program: Target) -> None:
    with markerjit.attach(program.pid) as session:
        (site,) = session.sites("truth_loop")

    assert site.name == site.marker == "truth_loop"
    assert site.source.startswith("native/targets/truth_threads.c:")


def test_values_say_in_a_line_what_they_are(program: Target) -> None:
    with markerjit.attach(program.pid) as session:
        session.on("truth_loop")
        (marker,), (site,) = session.status("truth_loop"), session.sites("truth_loop")
        session.off("*")
        with session.trace("truth_loop", limit=5) as stream:
            (batch, *_) = stream.record_batches()

    assert repr(marker).startswith("<MarkerStatus of truth_loop: on (jump, count), 1 site, ")
    assert repr(site) == (f"<Site of truth_loop at {site.address:#x} (jump), {site.source}>")
    assert re.fullmatch(r"<Batch of \d records? \(truth_loop \d\)>", repr(batch))


def test_lists_and_batches_are_tables_in_a_notebook(program: Target) -> None:
    with markerjit.attach(program.pid) as session:
        statuses, sites = session.status(), session.sites()
        with session.trace("truth_loop", limit=30) as stream:
            batches = [*stream.record_batches()]

    for shown, count in ((statuses, len(statuses)), (sites, len(sites)), (statuses[:1], 0)):
        if count:
            assert shown._repr_html_().count("<tr>") == count + 1  # type: ignore[union-attr]
    shown = max(batches, key=lambda batch: batch.records)
    assert shown._repr_html_().count("<tr>") == min(shown.records, 20) + 1


# ---- a stream ends by itself ---------------------------------------------------------------------


def test_iteration_ends_with_the_limit_and_no_event_more_is_handed_out(program: Target) -> None:
    with markerjit.attach(program.pid) as session:
        with session.trace("truth_loop", limit=7) as stream:
            first = [*stream]
            assert (len(first), [*stream], stream.poll(), stream.drain()) == (7, [], [], [])
            assert stream.is_over()
            assert stream.rest() is None
        assert stream.statistics().events == 7
        with session.trace("truth_loop", limit=7) as stream:
            assert sum(batch.records for batch in stream.record_batches()) == 7
        with session.trace("truth_loop", limit=7) as stream:
            assert len([*markerjit.merge([stream])]) <= 7
        (marker,) = session.status("truth_loop")
    assert marker.mode is None


def test_iteration_ends_with_the_duration(program: Target) -> None:
    """That of a marker that nothing executes, too."""
    with markerjit.attach(program.pid) as session:
        for pattern in ("truth_loop", "truth_birth"):
            begun = time.monotonic()
            with session.trace(pattern, duration=0.2) as stream:
                events = [*stream]
            assert time.monotonic() - begun >= 0.2
            assert bool(events) is (pattern == "truth_loop")


def test_events_without_a_clock_are_limited_too(program: Target) -> None:
    with (
        markerjit.attach(program.pid) as session,
        session.trace("truth_loop", time="none", limit=3) as stream,
    ):
        events = [*stream]
    assert len(events) == 3
    assert {event.when for event in events} == {None}


def is_off(session: markerjit.Session) -> bool:
    return all(marker.mode is None for marker in session.status())


def test_functions_are_named_without_their_kind_where_only_they_are_meant(
    program: Target,
) -> None:
    with markerjit.attach(program.pid) as session:
        assert session.functions("main") == session.functions("func:main")


def test_a_trace_is_iterated_over_without_a_context(program: Target) -> None:
    with markerjit.attach(program.pid) as session:
        trace = session.trace(limit=5)
        assert is_off(session)
        for _ in range(2):
            assert len([*trace]) == 5
            assert is_off(session)
        assert repr(trace) == f"<Tracing of * in process {program.pid}, not begun>"


@pytest.mark.parametrize("error", [None, KeyError])
def test_a_loop_that_is_left_early_leaves_the_markers_off(
    program: Target, error: type[Exception] | None
) -> None:
    with markerjit.attach(program.pid) as session:
        with pytest.raises(KeyError) if error else nullcontext():
            for event in session.trace("truth_loop"):
                assert not is_off(session)
                if error:
                    raise error(event.name)
                break
        assert is_off(session)


def test_a_trace_does_not_begin_twice_at_once(program: Target) -> None:
    with markerjit.attach(program.pid) as session:
        trace = session.trace("truth_loop")
        with trace as stream:
            assert "going on" in repr(trace)
            with pytest.raises(markerjit.Refused, match="is going on already"):
                trace.__enter__()
            assert stream.poll() is not None
            assert not is_off(session)
        assert is_off(session)


def test_arguments_are_checked_by_the_call_without_a_context(program: Target) -> None:
    wrong = 3.5
    with markerjit.attach(program.pid) as session:
        for call in (
            lambda: session.trace(wrong),  # type: ignore[arg-type]
            lambda: session.trace("truth_loop", limit=0),
            lambda: session.atrace("truth_loop", where=wrong),  # type: ignore[arg-type]
            lambda: session.atrace("truth_loop", sample="x"),
            lambda: session.atrace("truth_loop", stack=-1),
            lambda: session.aggregate("truth_loop", keys=0),
            lambda: session.latency("truth_loop", "truth_loop", room=0),
            lambda: session.trace_calls(depth=0),
            lambda: session.trace_allocations(by="nothing"),
            lambda: session.stepping("truth_loop", lease_s=0),
        ):
            with pytest.raises(markerjit.BadArgument):
                call()


def test_what_goes_on_says_in_a_line_what_it_is(program: Target) -> None:
    process = f"of process {program.pid}"
    with markerjit.attach(program.pid) as session:
        with session.aggregate("truth_loop") as adding:
            assert repr(adding) == f"<AddingUp {process}, going on>"
        assert repr(adding) == f"<AddingUp {process}, over>"
        with session.latency("func:truth_threads:main") as latency:
            assert repr(latency) == f"<Latency {process}, going on>"
        with session.trace_calls("func:truth_threads:main") as calls:
            assert repr(calls) == f"<CallTrace {process}: 1 function, going on>"
        with session.trace_allocations() as allocations:
            assert repr(allocations) == f"<AllocationTrace {process}, going on>"
        with session.trace("truth_loop") as stream:
            assert repr(markerjit.Merger([stream])) == "<Merger of 1 stream>"
        with session.stepping("truth_loop") as stepper:
            stages = len(stepper.stages.stages)
            assert repr(stepper) == f"<Stepper {process}: 0 of {stages} stages made>"
    assert repr(markerjit.LineTemplate("{name} {time}")) == "<LineTemplate of name, time>"


def test_a_session_lives_as_long_as_what_it_began(program: Target) -> None:
    """`attach(pid).aggregate(...)`: nothing else has the session."""

    def add_up() -> int:
        with markerjit.attach(program.pid).aggregate("truth_loop") as adding:
            gc.collect()
            return adding.read().room

    def trace() -> int:
        with markerjit.attach(program.pid).trace("truth_loop", limit=3) as stream:
            gc.collect()
            return len([*stream])

    def iterate() -> int:
        return len([*markerjit.attach(program.pid).trace("truth_loop", limit=3)])

    for use in (add_up, trace, iterate):
        with pytest.warns(ResourceWarning, match="unclosed <Session of"):
            assert use() >= 3
            gc.collect()
    with markerjit.View(program.pid) as view:
        assert {marker.mode for marker in view.status()} == {None}


def test_a_trace_that_is_forgotten_is_ended_before_its_session(program: Target) -> None:
    with pytest.warns(ResourceWarning, match="unclosed <Session of"):
        session = markerjit.attach(program.pid)
        trace = session.trace("truth_loop")
        stream = trace.__enter__()
        del session, trace, stream
        gc.collect()

    with markerjit.View(program.pid) as view:
        assert {marker.mode for marker in view.status()} == {None}


def test_a_name_that_the_package_does_not_have_is_told_with_those_like_it() -> None:
    script = "import markerjit; markerjit.atach"
    done = subprocess.run(
        [sys.executable, "-c", script], env=ENVIRONMENT, capture_output=True, text=True, check=False
    )

    assert "Did you mean: 'attach'?" in done.stderr


# ---- when and where an event was recorded --------------------------------------------------------


def test_an_event_says_when_and_in_which_process(program: Target) -> None:
    with (
        markerjit.attach(program.pid) as session,
        session.trace("truth_loop", limit=20) as stream,
    ):
        events = [*stream]

    now = datetime.now(UTC)
    for event in events:
        assert event.process == event.pid == program.pid
        assert event.when is not None
        assert now - SOON < event.when <= now
    assert [event.when for event in events] == sorted(event.when for event in events if event.when)


def test_an_event_keeps_its_origin_in_a_copy_and_is_equal_to_its_values(program: Target) -> None:
    with (
        markerjit.attach(program.pid) as session,
        session.trace("truth_loop", limit=1) as stream,
    ):
        (event,) = stream

    for same in (pickle.loads(pickle.dumps(event)), copy.deepcopy(event), event._replace(cpu=0)):
        assert (same.pid, same.when) == (event.pid, event.when)
    plain = markerjit.Event(*event)
    assert plain == event
    assert (plain.pid, plain.when) == (0, None)
    assert repr(plain) == repr(event)


# ---- files and tables ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "suffix", ["ctf", "ctf2", "parquet", "arrow", "pftrace", "json", "jsonl", "txt"]
)
def test_a_trace_is_recorded_in_one_call_and_read_as_a_table(
    suffix: str, program: Target, tmp_path: Path
) -> None:
    pa = pytest.importorskip("pyarrow")
    if suffix == "pftrace":
        pytest.importorskip("perfetto")
    path = tmp_path / f"trace.{suffix}"
    with markerjit.attach(program.pid) as session:
        counts = session.record_to(str(path), "truth_loop", limit=100)
        assert (counts.events, counts.lost) == (100, 0)
        with pytest.raises(markerjit.Refused, match="exists"):
            session.record_to(str(path), "truth_loop", limit=1)
        (marker,) = session.status("truth_loop")
        assert marker.mode is None

    trace = markerjit.read(str(path))
    events = [*trace]
    batches = [*trace.record_batches()]
    assert len(events) == sum(batch.records for batch in batches) == 100
    table = pa.concat_tables([batch.to_arrow() for batch in batches])
    assert table.schema == trace.to_arrow().schema
    assert table["n"].to_pylist() == [event.fields["n"] for event in events]
    in_table = [at // 1000 for at in table["time"].cast(pa.int64()).to_pylist()]
    begin = datetime(1970, 1, 1, tzinfo=UTC)
    assert [begin + timedelta(microseconds=at) for at in in_table] == [
        event.when for event in events
    ]
    assert abs(datetime.now(UTC) - max(event.when for event in events if event.when)) < SOON
    assert {event.pid for event in events} == {program.pid}


def test_a_duration_ends_a_recording(program: Target, tmp_path: Path) -> None:
    with markerjit.attach(program.pid) as session:
        counts = session.record_to(str(tmp_path / "x.jsonl"), "truth_loop", duration=0.2)

    assert counts.events == len([*markerjit.read(str(tmp_path / "x.jsonl"))]) > 0


def test_batches_have_columns_with_names_types_and_real_times(
    target: Callable[..., Target],
) -> None:
    pytest.importorskip("pyarrow")
    program = target("truth_texts")
    with (
        markerjit.attach(program.pid) as session,
        session.trace("texts_string") as stream,
    ):
        program.command("pass 20")
        batch = stream.rest()

    assert batch
    names = batch.to_arrow().column_names
    fields = stream.fields["texts_string"]
    assert names == ["time", "cpu", "tid", "name", *(field.name for field in fields)]
    (text,) = (field.name for field in fields if str(field.type) == "string")
    for frames, string in (("pandas", "string"), ("polars", "String")):
        pytest.importorskip(frames)
        frame = getattr(batch, f"to_{frames}")()
        assert ([*frame.columns], len(frame)) == (names, batch.records)
        assert str(frame[text].dtype) == string
        assert {"ns", "UTC"} <= {*re.findall(r"\w+", str(frame["time"].dtype))}


def test_a_table_of_no_events_has_the_same_columns(program: Target) -> None:
    pytest.importorskip("pyarrow")
    with markerjit.attach(program.pid) as session, session.trace("truth_loop", limit=1) as stream:
        (batch,) = stream.record_batches()

    empty = batch._replace(columns=[])
    assert empty.to_arrow().schema == batch.to_arrow().schema
    assert len(empty.to_arrow()) == 0
    with pytest.raises(markerjit.Refused, match="without a clock"):
        batch._replace(clock=None).to_arrow()


@pytest.mark.parametrize("package", ["pandas", "polars"])
def test_a_package_that_is_missing_is_named_with_its_extra(
    package: str, program: Target, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("pyarrow")
    with markerjit.attach(program.pid) as session, session.trace("truth_loop", limit=1) as stream:
        (batch,) = stream.record_batches()
    monkeypatch.setitem(sys.modules, package, None)

    with pytest.raises(markerjit.Unsupported, match=rf"markerjit\[{package}\]"):
        getattr(batch, f"to_{package}")()
