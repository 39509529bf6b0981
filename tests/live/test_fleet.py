"""Several processes with one request: all are switched, each for itself; one that cannot be is
named, and the others go on."""

from __future__ import annotations

import json
import os
import shutil
import signal
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import pytest

import markerjit
from tests.support.commands import cli, one_line, running
from tests.support.markers import modes_of, wait_on, wait_switched
from tests.support.processes import text_of
from tests.support.programs import Target
from tests.support.timing import wait_until

NOBODY = 1 << 30
"""Above the largest pid that a kernel gives."""

Start = Callable[..., Target]


def family(target: Start, count: int = 3) -> list[Target]:
    return [target("truth_family") for _ in range(count)]


def pids_of(programs: list[Target]) -> list[int]:
    return [program.pid for program in programs]


def comma(pids: list[int]) -> str:
    return ",".join(map(str, pids))


@pytest.fixture
def own_name(build: Path, tmp_path: Path) -> Path:
    """A copy of a program whose name no other program of this machine has."""
    return Path(shutil.copy(build / "truth_family", tmp_path / f"mj{os.getpid()}"))


@pytest.fixture
def named(own_name: Path) -> Any:
    """Three processes of that program."""
    programs = [Target(own_name) for _ in range(3)]
    try:
        for program in programs:
            program.wait_ready()
        yield programs
    finally:
        for program in programs:
            program.end()


# ---- a fleet -------------------------------------------------------------------------------------


def test_fleet_switches_each_and_leaves_all_as_they_were(target: Start) -> None:
    programs = family(target)
    texts = [text_of(program.pid) for program in programs]

    with markerjit.Fleet(pids_of(programs)) as fleet:
        on = fleet.each(lambda session: session.enable("*"))
        for turns, program in enumerate(programs, 1):
            program.command(f"pass {turns}")
        hits = fleet.each(lambda session: session.statistics()[0].hits)
        fleet.each(lambda session: session.disable("*"))

    assert list(on) == pids_of(programs)
    assert list(hits.values()) == [1, 2, 3]
    assert [text_of(program.pid) for program in programs] == texts


def test_streams_of_a_fleet_end_together_and_have_everything(target: Start) -> None:
    programs = family(target)
    texts = [text_of(program.pid) for program in programs]

    with markerjit.Fleet(pids_of(programs)) as fleet:
        streams = fleet.trace(lambda session: session.trace("*"))
        for program in programs:
            program.command("pass 10")
        fleet.end_traces()
        off = [text_of(program.pid) for program in programs]
        merger = markerjit.Merger([*streams.values()])
        merger.find_rest()
        events = merger.hand_out(1000)

    assert off == texts
    assert {event.fields["pid"] for _, event in events} == {*streams}
    assert len(events) == 30
    assert [event.time for _, event in events] == sorted(event.time for _, event in events)


def test_process_that_cannot_start_is_named_and_the_others_go_on(target: Start) -> None:
    (program,) = family(target, 1)

    with markerjit.Fleet([NOBODY, program.pid]) as fleet:
        (failed,) = fleet.failed
        on = fleet.each(lambda session: session.enable("*"))

    assert (failed.pid, type(failed.error)) == (NOBODY, markerjit.NoSuchProcess)
    assert failed.sentence == f"process {NOBODY}: no process {NOBODY}; has it ended?"
    assert list(on) == [program.pid]


def test_process_that_ends_meanwhile_leaves_the_fleet(target: Start) -> None:
    stays, ends = target("truth_family"), target("truth_family", may_die=True)

    with markerjit.Fleet([stays.pid, ends.pid]) as fleet:
        fleet.each(lambda session: session.enable("*"))
        os.kill(ends.pid, signal.SIGKILL)
        wait_until(lambda: ends.process.poll() is not None, "its end")
        off = fleet.each(lambda session: session.disable("*"))

        assert list(off) == [stays.pid] == list(fleet.sessions)
        assert [(each.pid, type(each.error)) for each in fleet.failed] == [
            (ends.pid, markerjit.TargetGone)
        ]


def test_members_that_die_in_the_middle_of_a_switch_leave_and_the_others_are_switched(
    target: Start,
) -> None:
    """Some are killed at a moment of their own switch, up to two milliseconds after it began."""
    stay = family(target)
    die = [target("truth_family", may_die=True) for _ in range(12)]
    texts = [text_of(program.pid) for program in stay]
    moments, alive = Random(14), set(pids_of(die))

    def end(pid: int, moment_s: float) -> None:
        time.sleep(moment_s)
        os.kill(pid, signal.SIGKILL)

    def switched(session: markerjit.Session, *, on: bool) -> None:
        if session.pid in alive and moments.random() < 0.3:
            alive.remove(session.pid)
            killer.submit(end, session.pid, moments.uniform(0, 0.002))
        (session.on if on else session.off)("*")

    with (
        ThreadPoolExecutor(1) as killer,
        markerjit.Fleet([*alive, *pids_of(stay)]) as fleet,
    ):
        while alive:
            fleet.each(partial(switched, on=True))
            fleet.each(partial(switched, on=False))
        killer.shutdown()
        fleet.each(lambda session: session.on("*"))
        for turns, program in enumerate(stay, 1):
            program.command(f"pass {turns}")
        hits = fleet.each(lambda session: session.statistics()[0].hits)
        fleet.each(lambda session: session.off("*"))
        failed = {each.pid: each.error for each in fleet.failed}

    assert hits == dict(zip(pids_of(stay), (1, 2, 3), strict=True))
    assert {*failed} == {*pids_of(die)}
    gone = (markerjit.TargetGone, markerjit.NoSuchProcess)
    assert all(isinstance(error, gone) for error in failed.values()), failed
    assert [text_of(program.pid) for program in stay] == texts


def test_traces_that_began_end_where_no_other_can_begin(target: Start) -> None:
    programs = family(target, 2)
    texts = [text_of(program.pid) for program in programs]

    def trace(session: markerjit.Session) -> Any:
        if session.pid == programs[1].pid:
            raise KeyboardInterrupt
        return session.trace("*")

    with (
        pytest.raises(KeyboardInterrupt),
        markerjit.Fleet(pids_of(programs)) as fleet,
    ):
        fleet.trace(trace)

    assert [text_of(program.pid) for program in programs] == texts


def test_fleet_without_a_session_is_refused_with_a_reason(target: Start) -> None:
    with pytest.raises(markerjit.NoSuchProcess):
        markerjit.Fleet([NOBODY])
    with pytest.raises(markerjit.Refused, match=rf"all 2 processes are left out; process {NOBODY}"):
        markerjit.Fleet([NOBODY, NOBODY + 1])
    (program,) = family(target, 1)
    with markerjit.Fleet([program.pid]) as fleet, pytest.raises(markerjit.UnknownMarker):
        fleet.each(lambda session: session.enable("no_such_marker"))


def test_wrong_argument_is_nobodys_failure(target: Start) -> None:
    programs = family(target, 2)

    with markerjit.Fleet(pids_of(programs)) as fleet:
        with pytest.raises(markerjit.BadArgument, match="pattern"):
            fleet.each(lambda session: session.enable("x\0"))

        assert list(fleet.sessions) == pids_of(programs)


def test_a_hundred_processes_are_switched_with_one_request(target: Start) -> None:
    programs = [target("truth_process") for _ in range(100)]

    with markerjit.Fleet(pids_of(programs)) as fleet:
        on = fleet.each(lambda session: session.enable("*"))
        off = fleet.each(lambda session: session.disable("*"))

        assert list(on) == list(off) == pids_of(programs)
        assert not fleet.failed


# ---- commands ------------------------------------------------------------------------------------


def test_on_status_and_off_take_several_pids(target: Start) -> None:
    pids = pids_of(family(target))

    on = cli("on", comma(pids), "*")
    status = json.loads(cli("status", comma(pids), "--json").stdout)
    off = json.loads(cli("off", comma(pids), "*", "--json").stdout)

    assert (on.returncode, on.stderr) == (0, "")
    heads = [line for line in on.stdout.splitlines() if line.startswith("process ")]
    assert heads == [f"process {pid}:" for pid in pids]
    assert [each["pid"] for each in status["processes"]] == pids
    assert all(each["markers"][0]["on"] for each in status["processes"])
    assert [each["pid"] for each in off["processes"]] == pids
    assert status["failed"] == off["failed"] == []


@pytest.mark.parametrize("command", [("on", "*"), ("off", "*"), ("status",)])
def test_process_that_is_left_out_is_named_and_the_exit_code_says_so(
    command: tuple[str, ...], target: Start
) -> None:
    (pid,) = pids_of(family(target, 1))

    done = cli(command[0], f"{NOBODY},{pid}", *command[1:], "--json")

    assert done.returncode == 1
    document = json.loads(done.stdout)
    assert [each["pid"] for each in document["processes"]] == [pid]
    assert [each["pid"] for each in document["failed"]] == [NOBODY]
    assert done.stderr == (
        f"markerjit: left out: process {NOBODY}: no process {NOBODY}; has it ended?\n"
    )


def test_reason_of_many_processes_that_are_left_out_is_said_once(target: Start) -> None:
    (pid,) = pids_of(family(target, 1))
    others = ", ".join(str(NOBODY + number) for number in range(1, 9))

    few = cli("status", comma([NOBODY, NOBODY + 1, pid]))
    many = cli("status", comma([*range(NOBODY, NOBODY + 12), pid]))

    first = f"markerjit: left out: process {NOBODY}: no process {NOBODY}; has it ended?\n"
    like = f"markerjit: left out like process {NOBODY}:"
    assert few.stderr == f"{first}{like} process {NOBODY + 1}\n"
    assert many.stderr == f"{first}{like} processes {others} and 3 more\n"


def test_name_means_all_processes_of_a_program(named: list[Target], own_name: Path) -> None:
    pids = sorted(pids_of(named))
    for arguments in (
        [own_name.name, "*"],
        ["--name", own_name.name, "*"],
        ["*", f"--name={own_name.name}"],
        ["--exe", own_name, "*"],
        ["--exe", own_name, "--user", os.getuid(), "*"],
    ):
        on = json.loads(cli("on", *arguments, "--json").stdout)
        off = json.loads(cli("off", *arguments, "--json").stdout)

        assert [each["pid"] for each in on["processes"]] == pids, arguments
        assert [each["pid"] for each in off["processes"]] == pids, arguments


def test_replaced_file_is_still_the_one_that_is_executed(
    named: list[Target], own_name: Path
) -> None:
    shutil.copy(own_name, f"{own_name}.new")
    os.replace(f"{own_name}.new", own_name)

    assert markerjit.find_processes(markerjit.Targets(exe=str(own_name))) == sorted(pids_of(named))
    assert markerjit.find_processes(markerjit.Targets(name=own_name.name)) == sorted(pids_of(named))


def test_name_of_several_is_to_be_chosen_from_where_one_is_meant(
    named: list[Target], own_name: Path
) -> None:
    for command in ("list", "explain"):
        line = one_line(cli(command, own_name.name, "*"), "^markerjit: 3 processes are named ")

        assert all(f" {program.pid} (" in line for program in named)


def test_name_of_nobody_is_one_line(own_name: Path) -> None:
    for command in (("on", "*"), ("trace", "*"), ("flight start", "*"), ("status",)):
        one_line(
            cli(*command[0].split(), own_name.name, *command[1:]),
            f"^markerjit: no process is named {own_name.name}; ",
        )


def test_control_group_means_the_processes_in_it(named: list[Target]) -> None:
    path = Path(f"/proc/{named[0].pid}/cgroup").read_text().splitlines()[0].split(":", 2)[2]

    processes = markerjit.find_processes(
        markerjit.Targets(name=Path(named[0].path).name, cgroup=path)
    )

    assert processes == sorted(pids_of(named))


def test_trace_by_name_has_events_with_their_pids_in_order(
    named: list[Target], own_name: Path
) -> None:
    with running("trace", own_name.name, "*", "--json", "--events", 30) as tracer:
        for program in named:
            wait_on(program.pid, "truth_family", tracer)
        for _ in range(10):
            for program in named:
                program.command("pass 1")
        out, errors = tracer.communicate()

    *events, last = map(json.loads, out.splitlines())
    assert (tracer.returncode, errors) == (0, "")
    assert last["summary"]["events"] == 30
    assert all(event["pid"] == event["fields"]["pid"] for event in events)
    assert {event["pid"] for event in events} == {*pids_of(named)}
    assert [event["time"] for event in events] == sorted(event["time"] for event in events)
    assert not any(mode for program in named for mode in modes_of(program.pid).values())


def test_member_that_dies_while_it_is_traced_is_no_error(
    build: Path, own_name: Path, tmp_path: Path
) -> None:
    stays, dies = Target(own_name), Target(own_name)
    try:
        for program in (stays, dies):
            program.wait_ready()
        text = text_of(stays.pid)
        with running("trace", own_name.name, "*", "--json") as tracer:
            for program in (stays, dies):
                wait_on(program.pid, "truth_family", tracer)
            dies.process.kill()
            dies.process.wait()
            stays.command("pass 7")
            tracer.send_signal(signal.SIGINT)
            out, errors = tracer.communicate()

        assert (tracer.returncode, errors) == (0, "")
        assert json.loads(out.splitlines()[-1])["summary"]["events"] == 7
        assert text_of(stays.pid) == text
    finally:
        dies.end()
        stays.end()


def test_flight_recorders_are_kept_by_each(named: list[Target], own_name: Path) -> None:
    done = cli("flight", "start", own_name.name, "*")

    assert (done.returncode, done.stderr) == (0, "")
    for program in named:
        assert f"markerjit flight dump {program.pid} -o FILE" in done.stdout
        program.command("pass 3")
        with markerjit.attach(program.pid) as session:
            assert session.flight().picture().kept["truth_family"].events == 3
    one_line(
        cli("flight", "start", own_name.name, "*", "-o", "x.jsonl"),
        "-o saves the events of one process, and these are 3",
    )
    one_line(
        cli("flight", "dump", own_name.name, "-o", "x.jsonl"),
        "-o saves the events of one process, and these are 3: ",
    )
    stopped = cli("flight", "stop", own_name.name)
    assert stopped.stdout.count("the flight recorder of truth_family is ended") == 3


def test_flight_recorder_of_the_only_process_of_a_name_is_saved(
    own_name: Path, tmp_path: Path
) -> None:
    program = Target(own_name)
    try:
        program.wait_ready()
        cli("flight", "start", own_name.name, "*")
        program.command("pass 3")

        done = cli("flight", "dump", own_name.name, "-o", tmp_path / "a.jsonl")

        assert (done.returncode, done.stderr) == (0, "")
        assert done.stdout.endswith(f"3 events in {tmp_path / 'a.jsonl'}\n")
    finally:
        program.end()


def test_killed_controller_leaves_the_processes_running_and_off_restores_them(
    named: list[Target], own_name: Path
) -> None:
    texts = [text_of(program.pid) for program in named]
    with running("trace", own_name.name, "*") as tracer:
        for program in named:
            wait_on(program.pid, "truth_family", tracer)
            wait_switched(program.pid)
        tracer.kill()
        tracer.wait()
    turns = [program.ask("pass 5")["first"] for program in named]
    off = cli("off", own_name.name, "*", "--force")

    assert turns == [5, 5, 5]
    assert (off.returncode, off.stderr) == (0, "")

    assert [text_of(program.pid) for program in named] == texts
