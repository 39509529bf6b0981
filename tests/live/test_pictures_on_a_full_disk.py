"""A flight recorder's picture that has no room: whoever asked for it is told, and so is whoever
waits for a crash from the background."""

from __future__ import annotations

import os
import re
import resource
import signal
import subprocess
import syslog
from collections.abc import Callable
from pathlib import Path

import pytest

import markerjit
from tests.support.commands import CLI, ENVIRONMENT, cli, one_line, python
from tests.support.processes import is_gone
from tests.support.programs import Target
from tests.support.timing import HANG_S, wait_until

ROOM = 1 << 13
EVENTS = 5000
SUFFIXES = ["txt", "jsonl", "ctf", "ctf2", "json", "pftrace", "arrow", "parquet"]
every_suffix = pytest.mark.parametrize("suffix", SUFFIXES)


def with_little_room(pid: int) -> None:
    """For files that this process writes from now on; it must not have to write to the arena."""
    resource.prlimit(pid, resource.RLIMIT_FSIZE, (ROOM, ROOM))


DUMP = f"""
import resource, sys
from markerjit.cli.main import main
resource.setrlimit(resource.RLIMIT_FSIZE, ({ROOM}, {ROOM}))
main(["flight", "dump", *sys.argv[1:]])
"""


def flying(target: Callable) -> Target:
    """A program with more in its rings than there is room for."""
    program = target("truth_modes-jump", may_die=True)
    assert cli("flight", "start", program.pid, "truth_mode").returncode == 0
    program.command(f"run {EVENTS}")
    return program


@every_suffix
def test_a_picture_without_room_says_that_it_is_a_part(
    target: Callable, tmp_path: Path, suffix: str
) -> None:
    program = flying(target)
    path = tmp_path / f"part.{suffix}"

    done = python(DUMP, program.pid, "-o", path)

    one_line(done, rf"{path}: File too large; .* at most a part .* {program.pid}")
    assert done.returncode == 1
    with markerjit.attach(program.pid) as session:
        assert sum(kept.events for kept in session.flight().picture().kept.values()) == EVENTS


def crash(program: Target, begun: subprocess.CompletedProcess[str], events: int) -> None:
    """What a watcher that has little room from now on waits for, up to its end."""
    watcher = int(re.search(r"as process (\d+)", begun.stdout)[1])
    with_little_room(watcher)
    program.command(f"run {events}")
    os.kill(program.pid, signal.SIGSEGV)
    wait_until(lambda: is_gone(watcher), "the watcher to save and end")


@pytest.mark.parametrize("events", [EVENTS, 10], ids=["too much", "fits"])
def test_a_crash_whose_events_have_no_room_is_told_on_standard_error(
    target: Callable, tmp_path: Path, events: int
) -> None:
    program = target("truth_modes-jump", may_die=True)
    path, errors = tmp_path / "crash.txt", tmp_path / "errors"
    command = [*CLI, "flight", "start", str(program.pid), "truth_mode", "--on-crash", "-o", path]

    with errors.open("w") as file:
        begun = subprocess.run(
            command, env=ENVIRONMENT, stdout=subprocess.PIPE, stderr=file, text=True, check=True
        )
    crash(program, begun, events)

    part = f"the file has at most a part of what process {program.pid} had recorded"
    sentence = f"markerjit: {path}: File too large; {part}\n"
    assert errors.read_text() == ("" if events == 10 else sentence)
    assert 0 < path.stat().st_size <= ROOM


def test_a_crash_that_cannot_be_saved_is_in_the_system_log_where_nobody_reads_errors(
    target: Callable, tmp_path: Path
) -> None:
    program = target("truth_modes-jump", may_die=True)
    path, log = tmp_path / "crash.txt", tmp_path / "log"
    with_log = (
        "import sys, syslog\n"
        "from markerjit.cli.main import main\n"
        f"syslog.syslog = lambda level, line: print(level, line, file=open({str(log)!r}, 'a'))\n"
        "main(sys.argv[1:])"
    )
    command = [CLI[0], "-c", with_log, "flight", "start", str(program.pid), "truth_mode"]

    begun = subprocess.run(  # its pipes end, though the watcher lives on
        [*command, "--on-crash", "-o", path],
        env=ENVIRONMENT, capture_output=True, text=True, check=True, timeout=HANG_S,
    )  # fmt: skip
    crash(program, begun, EVENTS)

    (line,) = log.read_text().splitlines()
    assert line.startswith(f"{syslog.LOG_ERR} markerjit: {path}: File too large; ")
