"""Commands that stay: what a process starts, and what is started later, is switched on, too, and
the hits of all of it are added up."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import signal
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import markerjit
from markerjit.targets import arrivals
from tests.support.commands import cli, one_line, running
from tests.support.timing import Limited, wait_until

CHILDREN = {"fork": 4, "exec": 3, "vfork": 3}
in_every_way = pytest.mark.parametrize("way", CHILDREN)


def is_on(pid: int) -> bool:
    try:
        with markerjit.View(pid) as view:
            return any(marker.mode for marker in view.statistics())
    except markerjit.MarkerError:  # it begins or ends just now
        return False


def ended(command: Limited) -> tuple[dict[str, Any], str]:
    """What a command that stays prints at its end, and what it said."""
    command.send_signal(signal.SIGTERM)
    printed, errors = command.communicate()
    assert command.returncode == 0, errors
    return json.loads(printed), errors


def hits_of(document: dict[str, Any]) -> int:
    (marker,) = document["markers"]
    assert marker["name"] == "truth_follow"
    return int(marker["hits"])


# ---- --follow ------------------------------------------------------------------------------------


@in_every_way
def test_hits_of_a_family_are_those_that_it_counts_itself(target: Callable, way: str) -> None:
    program = target("truth_follow")

    with running("on", "--follow", program.pid, "truth_follow", "--json") as command:
        wait_until(lambda: is_on(program.pid), "the switch")
        counts = program.ask(f"{way} {CHILDREN[way]}")
        document, errors = ended(command)

    assert counts["bad"] == 0
    assert counts["children"] == 3 * CHILDREN[way]
    assert hits_of(document) == counts["turns"] + counts["children"]
    assert document["on"] == [program.pid]
    assert document["failed"] == document["missed"] == []
    assert document["price"]["processes"] == CHILDREN[way]
    assert "1 marker on in 1 process" in errors
    assert is_on(program.pid)


def test_what_stays_on_is_switched_off_by_the_command_that_is_said(target: Callable) -> None:
    program = target("truth_follow")

    with running("on", "--follow", program.pid, "truth_f*") as command:
        wait_until(lambda: is_on(program.pid), "the switch")
        command.send_signal(signal.SIGTERM)
        printed, errors = command.communicate()

    begin, *_ = errors.splitlines()
    assert begin == (
        f"1 marker on in 1 process; what process {program.pid} starts is followed until Ctrl-C"
    )
    sentence = re.search(r"still on in 1 process; markerjit (.*)", printed)
    assert sentence and is_on(program.pid)
    assert cli(*shlex.split(sentence[1])).returncode == 0
    assert not is_on(program.pid)


@pytest.mark.parametrize(
    ("option", "sentence"), [("--follow", "followed for 0.1 s"), ("--new", "awaited for 0.1 s")]
)
def test_time_after_which_the_command_ends_is_said_at_the_beginning(
    target: Callable, option: str, sentence: str
) -> None:
    program = target("truth_follow")
    which = [program.pid] if option == "--follow" else ["--exe", program.path]

    done = cli("on", option, *which, "truth_follow", "-d", "0.1s", "--off-at-end")

    assert f"; {'what' if option == '--follow' else 'others'} " in done.stderr
    assert f"{sentence}\n" in done.stderr
    assert "until" not in done.stderr


def test_family_is_switched_off_at_the_end_where_that_is_asked_for(target: Callable) -> None:
    program = target("truth_follow")

    words = ["on", "--follow", program.pid, "truth_follow", "--off-at-end", "--json"]
    with running(*words) as command:
        wait_until(lambda: is_on(program.pid), "the switch")
        counts = program.ask("fork 2")
        document, _ = ended(command)

    assert hits_of(document) == counts["turns"] + counts["children"]
    assert document["on"] == []
    assert not is_on(program.pid)


def test_command_ends_with_the_last_process_of_the_family(target: Callable) -> None:
    program = target("truth_follow", may_die=True)

    with running("on", "--follow", program.pid, "truth_follow", "--json") as command:
        wait_until(lambda: is_on(program.pid), "the switch")
        counts = program.ask("fork 2")
        program.process.stdin.close()
        printed, errors = command.communicate()

    assert command.returncode == 0, errors
    document = json.loads(printed)
    assert hits_of(document) == counts["turns"] + counts["children"]
    assert document["on"] == []


def test_flight_recorder_of_each_program_is_saved_when_it_is_over(
    target: Callable, tmp_path: Path
) -> None:
    program = target("truth_follow")
    output = tmp_path / "all.ctf"

    words = ["flight", "start", "--follow", program.pid, "truth_follow", "-o", output, "--json"]
    with running(*words) as command:
        wait_until(lambda: is_on(program.pid), "the switch")
        counts = program.ask("exec 2")
        ended(command)

    traces = markerjit.open_traces(output)
    events = [event for trace in traces for event in trace.events()]
    assert len(events) == counts["turns"] + counts["children"]
    # Each child is two programs: the one that was forked, and the one that it executed.
    assert len(traces) == 1 + 2 * counts["turns"]
    assert not is_on(program.pid)


def test_only_what_crashes_is_saved_with_on_crash(tmp_path: Path) -> None:
    source = tmp_path / "crashing.c"
    source.write_text(
        "#include <markerjit/marker.h>\n#include <stdlib.h>\n#include <sys/wait.h>\n"
        "#include <unistd.h>\n"
        "int main(void) {\n"
        "    char c;\n"
        '    if (write(1, "r", 1) != 1 || read(0, &c, 1) != 1) return 1;\n'
        "    for (int child = 0; child < 3; child++) {\n"
        "        if (!fork()) {\n"
        '            MARK(child, "n %d", child);\n'
        "            if (child == 1) abort();\n"
        "            _exit(0);\n"
        "        }\n"
        "        wait(0);\n"
        "    }\n"
        "    return 0;\n"
        "}\n"
    )
    binary = source.with_suffix("")
    flags = cli("--cflags").stdout.split()
    subprocess.run(["cc", *flags, "-o", binary, source], check=True)
    output = tmp_path / "crashed.ctf"

    with Limited([binary], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as program:
        assert program.stdout is not None
        assert program.stdin is not None
        assert program.stdout.read(1) == b"r"
        words = ["flight", "start", "--on-crash", "--follow", program.pid, "child"]
        with running(*words, "-o", output, "--json") as command:
            wait_until(lambda: is_on(program.pid), "the switch")
            program.stdin.write(b"g")
            program.stdin.close()
            _, errors = command.communicate()

    assert command.returncode == 0, errors
    (trace,) = markerjit.open_traces(output)
    assert [event.fields["n"] for event in trace.events()] == [1]


# ---- --new ---------------------------------------------------------------------------------------


@pytest.fixture
def named(build: Path, tmp_path: Path) -> Path:
    """A program with a name that no other process has."""
    name = tmp_path / f"new{os.getpid() % 100000}{tmp_path.name[-4:]}"[:60]
    shutil.copy(build / "truth_follow", name)
    return name


@contextmanager
def started(path: Path) -> Iterator[subprocess.Popen[str]]:
    """The program, ready for commands."""
    with Limited([path], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as program:
        assert program.stdout is not None
        assert program.stdout.readline().startswith("ready")
        yield program


def ask(program: subprocess.Popen[str], command: str) -> dict[str, int]:
    assert program.stdin is not None
    assert program.stdout is not None
    program.stdin.write(f"{command}\n")
    program.stdin.flush()
    words = program.stdout.readline().split()[1:]
    return {name: int(count) for name, count in (word.split("=") for word in words)}


def test_process_that_starts_later_is_switched_on_too(named: Path) -> None:
    words = ["on", "--new", "--exe", named, "truth_follow", "--json"]
    with started(named) as first, running(*words) as command:
        wait_until(lambda: is_on(first.pid), "the switch")
        with started(named) as second:
            wait_until(lambda: is_on(second.pid), "the switch of the second")
            counts = [ask(program, "quick 1") for program in (first, second)]
            document, errors = ended(command)

    assert sum(count["turns"] for count in counts) == 2
    assert hits_of(document) >= 2
    assert {first.pid, second.pid} <= {*document["on"]}
    assert "those that start later are seen by" in errors


def test_command_waits_for_a_process_of_which_there_is_none_yet(named: Path) -> None:
    with running("trace", "--new", "--exe", named, "truth_follow", "--json") as command:
        assert command.stderr is not None
        assert "those that start later are seen by" in command.stderr.readline()
        with started(named) as program:
            wait_until(lambda: is_on(program.pid), "the switch")
            ask(program, "quick 1")
            command.send_signal(signal.SIGTERM)
            printed, errors = command.communicate()

    assert command.returncode == 0, errors
    events = [line for line in map(json.loads, printed.splitlines()) if "name" in line]
    assert program.pid in {event["pid"] for event in events}


@pytest.mark.parametrize("way", ["as it is", "by /proc"])
def test_newcomers_are_seen_by_whatever_there_is(
    named: Path, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if way == "by /proc":
        monkeypatch.setattr(arrivals, "_connector", lambda: None)
    request = lambda session: session.trace("truth_follow")  # noqa: E731

    with markerjit.Newcomers(markerjit.Targets(exe=str(named)), request) as newcomers:
        assert (newcomers.way.startswith("/proc")) or way == "as it is"
        assert newcomers.members == []
        with started(named) as program:
            wait_until(lambda: newcomers.poll() or newcomers.members, "the newcomer")
            (member,) = newcomers.members
            assert member.pid == program.pid
            assert program.stdin is not None
            program.stdin.close()
            wait_until(lambda: not newcomers.poll() and newcomers.take_ended(), "its end")
            newcomers.retire(member)
        assert newcomers.members == []


# ---- what is refused -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["on", "--follow", "--new"], "--follow and --new"),
        (["count", "--follow", "--each"], "--each is for processes that are there"),
        (["on", "--new"], "--new is for processes that are known by a name"),
        (["trace", "--new"], "--new is for processes that are known by a name"),
        (["on", "-d", "1s"], "-d is for --follow and --new"),
        (["on", "--off-at-end"], "--off-at-end is for --follow and --new"),
        (["flight", "start", "--follow", "-o", "x.jsonl"], "a directory that ends in .ctf"),
    ],
)
def test_what_cannot_be_together_is_refused(
    target: Callable, words: list[str], sentence: str
) -> None:
    program = target("truth_follow")

    one_line(cli(*words, program.pid, "*"), sentence)

    assert not is_on(program.pid)
