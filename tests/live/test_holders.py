"""Markers that somebody records: others are refused to switch them, or take them by force; and who
loses one is told, and leaves what is no longer its own alone."""

from __future__ import annotations

import json
import shlex
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import markerjit
from markerjit.session.probes_in_c import wait_until_left
from tests.support.commands import ENVIRONMENT, cli, facts, one_line, running, started
from tests.support.markers import wait_until_on
from tests.support.programs import Target
from tests.support.timing import wait_until


@pytest.fixture
def trace(tmp_path: Path) -> Iterator[Callable[..., Any]]:
    """Start `markerjit trace`; it has begun when the marker is held."""
    traces = []

    def start(pid: int, *args: str, **kwargs: Any) -> subprocess.Popen[str]:
        process = started("trace", pid, *args, **kwargs)
        traces.append(process)
        wait_until_on(pid, lambda: any(marker["held"] for marker in status(pid).values()))
        return process

    yield start
    for process in traces:
        process.kill()
        process.communicate()


def status(pid: int) -> dict[str, Any]:
    return {marker["name"]: marker for marker in facts("status", pid)["markers"]}


def end(tracer: subprocess.Popen[str]) -> tuple[list[Any], str]:
    tracer.send_signal(signal.SIGINT)
    out, errors = tracer.communicate()
    return [json.loads(line) for line in out.splitlines()], errors


@pytest.fixture
def modes(target: Callable) -> Target:
    return target("truth_values")


def refusal(*args: object) -> str:
    return one_line(cli(*args), "")


def names(pid: int) -> list[str]:
    return [marker["name"] for marker in facts("list", pid)["markers"]]


# ---- a trace -------------------------------------------------------------------------------------


@pytest.mark.parametrize("command", ["on", "off"])
def test_marker_that_is_traced_is_switched_by_nobody_else(
    target: Callable, trace: Callable, command: str
) -> None:
    program = target("truth_process")
    # With a command line of its own, which a process that was forked does not have.
    tracer = trace(program.pid, "*", "--json", env=ENVIRONMENT)

    refused = refusal(command, program.pid, "*")
    program.command("pass 10")
    *events, last = end(tracer)[0]

    assert f"recorded by process {tracer.pid} (" in refused
    assert f" trace {program.pid} *" in refused.partition(", on since ")[0]
    assert f"markerjit {command} {program.pid} '*' --force takes it" in refused
    assert len(events) == 10
    assert last["summary"] == {"events": 10, "lost": 0, "not_shown": 0, "taken": []}


def test_session_does_not_end_its_own_trace_by_the_way(target: Callable) -> None:
    program = target("truth_process")

    with markerjit.attach(program.pid) as session:
        with session.trace("*") as stream:
            for switch in (session.enable, session.disable, session.plan):
                with pytest.raises(markerjit.Refused, match="a trace of this very process") as no:
                    switch("*")
                assert no.value.try_again
            program.command("pass 10")
        assert len(stream.drain()) == 10
        session.enable("*")


def test_marker_that_is_taken_by_force_is_left_to_who_took_it(
    target: Callable, trace: Callable
) -> None:
    program = target("truth_process")
    tracer = trace(program.pid, "*", "--json")
    program.command("pass 10")

    on = json.loads(cli("on", program.pid, "*", "--force", "--json").stdout)
    program.command("pass 5")
    code = tracer.wait()
    out, errors = tracer.communicate()
    *events, last = map(json.loads, out.splitlines())
    (marker,) = status(program.pid).values()

    assert on["taken"] == ["truth_process"]
    assert len(events) == 10
    assert last["summary"] == {"events": 10, "lost": 0, "not_shown": 0, "taken": ["truth_process"]}
    assert code == 1, "it has nothing left to do"
    assert errors.count("truth_process") == 1
    assert (marker["on"], marker["probe"], marker["held"]) == (True, "count", None)
    program.command("pass 5")
    (marker,) = status(program.pid).values()
    assert marker["total"] == program.ask("counts")["evaluated"] == 20


def test_trace_that_loses_one_of_its_markers_goes_on_with_the_others(
    modes: Target, trace: Callable
) -> None:
    first, second, *_ = names(modes.pid)
    tracer = trace(modes.pid, "*", "--json")

    cli("off", modes.pid, first, "--force")
    modes.command("fire 0 5")
    cli("on", modes.pid, second, "--force", "--mode", "int3")
    *events, last = end(tracer)[0]
    after = status(modes.pid)

    assert last["summary"]["taken"] == sorted([first, second])
    assert tracer.returncode == 0
    assert len([event for event in events if event["name"] == second]) == 5
    assert not [event for event in events if event["name"] == first]
    assert [name for name, marker in after.items() if marker["on"]] == [second]
    assert (after[second]["mode"], after[second]["probe"]) == ("int3", "count")


def test_statistics_of_a_stream_name_what_was_taken(target: Callable) -> None:
    program = target("truth_process")

    with markerjit.attach(program.pid) as session, session.trace("*") as stream:
        assert stream.statistics().taken == ()
        cli("off", program.pid, "*", "--force")
        assert list(stream) == [], "nothing can come any more"
        assert stream.statistics().taken == ("truth_process",)
        cli("on", program.pid, "*", "--force")

    (marker,) = status(program.pid).values()
    assert marker["probe"] == "count"


def test_probe_in_c_that_others_connect_anew_is_theirs(target: Callable, tmp_path: Path) -> None:
    """Slot and entry are the same; only the number of the reading tells the two apart."""
    source = tmp_path / "passed.c"
    source.write_text("#include <markerjit/probe.h>\nvoid passed(struct mj_slot *slot, ...) {}\n")
    program = target("truth_process")

    with markerjit.attach(program.pid) as session:
        with session.trace("*", probe=f"{source}:passed"):
            session.disable("*", force=True)
            session.enable("*", probe=f"{source}:passed")
        (marker,) = session.statistics()

    assert (marker.probe, marker.held) == ("passed.c:passed", None)


def test_one_holder_refuses_all_markers_of_a_pattern_and_nothing_is_switched(
    modes: Target, trace: Callable
) -> None:
    first, *_ = names(modes.pid)
    trace(modes.pid, first)

    refused = refusal("on", modes.pid, "*")

    assert f"{first} is recorded by" in refused
    assert [name for name, marker in status(modes.pid).items() if marker["on"]] == [first]


def test_operator_can_switch_off_everything_by_pasting_what_the_refusal_says(
    modes: Target, trace: Callable
) -> None:
    tracer = trace(modes.pid, "*")

    refused = refusal("off", modes.pid, "*")
    pasted = refused.partition("end that, or ")[2].partition(" takes")[0]
    cli(*shlex.split(pasted)[1:])

    assert not any(marker["on"] for marker in status(modes.pid).values())
    assert tracer.wait() == 1


def test_prepared_switch_asks_for_holders_too(target: Callable, tmp_path: Path) -> None:
    """The bytes would not tell: a probe in C that is traced is connected as one that is not."""
    source = tmp_path / "passed.c"
    source.write_text("#include <markerjit/probe.h>\nvoid passed(struct mj_slot *slot, ...) {}\n")
    probe = f"{source}:passed"
    program = target("truth_process")

    with markerjit.attach(program.pid) as other, markerjit.attach(program.pid) as session:
        for _ in range(3):
            session.enable("*", probe=probe)
            session.disable("*")
        with other.trace("*", probe=probe):
            with pytest.raises(markerjit.Refused, match="recorded by"):
                session.disable("*")
            (marker,) = other.statistics()
            assert (marker.probe, marker.held) == ("passed.c:passed", "trace")


def test_reader_that_is_gone_holds_nothing(target: Callable, trace: Callable) -> None:
    program = target("truth_process")
    tracer = trace(program.pid, "*")
    tracer.kill()
    tracer.wait()

    cli("on", program.pid, "*")

    (marker,) = status(program.pid).values()
    assert (marker["probe"], marker["held"]) == ("count", None)


def test_status_says_that_a_marker_is_held_and_by_whom(target: Callable, trace: Callable) -> None:
    program = target("truth_process")
    tracer = trace(program.pid, "*")

    assert f"pid {tracer.pid} (trace)" in cli("status", program.pid).stdout


# ---- a flight recorder ---------------------------------------------------------------------------


def test_flight_recorder_is_not_ended_by_switching_a_marker_on(target: Callable) -> None:
    program = target("truth_process")
    cli("flight", "start", program.pid, "*")

    refused = refusal("on", program.pid, "*")
    (marker,) = status(program.pid).values()

    assert "truth_process is kept by the flight recorder that process " in refused
    assert f"markerjit on {program.pid} '*' --force takes it" in refused
    assert (marker["probe"], marker["held"]) == ("record", "flight")
    assert "(flight)" in cli("status", program.pid).stdout


def test_switching_off_says_that_it_ends_a_flight_recorder_and_which_goes_on(
    modes: Target,
) -> None:
    first, second, third, *_ = names(modes.pid)
    for name in (first, second, third):
        cli("flight", "start", modes.pid, name)

    off = cli("off", modes.pid, first).stdout
    taken = json.loads(cli("on", modes.pid, second, "--force", "--json").stdout)
    last = cli("off", modes.pid, third).stdout

    assert f"the flight recorder of {first} is ended; it goes on with" in off
    assert taken["ended"] == [second]
    assert f"the flight recorder of {third} is ended; it has no marker left" in last


def test_trace_is_refused_while_a_flight_recorder_is_on_and_says_whose(target: Callable) -> None:
    program = target("truth_process")
    cli("flight", "start", program.pid, "*")
    (marker,) = status(program.pid).values()

    refused = refusal("trace", program.pid, "*", "--duration", "1")

    assert "truth_process is kept by the flight recorder that process" in refused
    assert f"process {marker['by']} began" in refused


def test_end_of_a_flight_recorder_leaves_alone_what_others_have_switched_on(
    target: Callable, tmp_path: Path
) -> None:
    program = target("truth_process")
    path = tmp_path / "kept.jsonl"
    with running("flight", "start", program.pid, "*", "-o", path) as recorder:
        wait_until(
            lambda: any(marker["held"] for marker in status(program.pid).values()), "a flight"
        )
        cli("on", program.pid, "*", "--force")

        recorder.send_signal(signal.SIGINT)
        assert recorder.wait() == 0

    (marker,) = status(program.pid).values()
    assert (marker["on"], marker["probe"]) == (True, "count")


def test_markers_of_one_flight_may_be_recorded_again(target: Callable) -> None:
    program = target("truth_process")
    cli("flight", "start", program.pid, "*")

    cli("flight", "start", program.pid, "*")

    (marker,) = status(program.pid).values()
    assert marker["held"] == "flight"


def test_end_that_has_to_be_tried_again_takes_nothing_from_itself(
    target: Callable, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What counts again already is the trace's own doing, and not another controller's."""
    program = target("truth_process")

    with markerjit.attach(program.pid) as session:
        session.enable("*")
        with session.trace("*") as stream:
            wait, failures = wait_until_left, iter([True])

            def fail_once(of: Any, slots: Any) -> None:
                if next(failures, False):
                    raise markerjit.Refused("not now", try_again=True)
                wait(of, slots)

            monkeypatch.setattr("markerjit.session.trace.wait_until_left", fail_once)
        assert stream.statistics().taken == ()
        assert not stream.all_taken
        (marker,) = session.statistics()
    assert (marker.probe, marker.mode is not None) == ("count", True)
