"""Children that execute the same program are named where their parent alone was asked for."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

import markerjit
from markerjit.proc.children import children_of
from tests.support.commands import cli
from tests.support.programs import Target
from tests.support.timing import Limited, wait_until


@pytest.fixture
def parent(target: Callable[..., Target]) -> Target:
    return target("truth_family")


def keep(parent: Target) -> int:
    """The pid of a child that stays."""
    word, pid = parent.command("keep").split("=")
    assert word == "keep pid"
    return int(pid)


COMMANDS = [
    ["count", "{pid}", "truth_family"],
    ["hist", "{pid}", "truth_family", "n"],
    ["trace", "{pid}", "truth_family"],
]
every_command = pytest.mark.parametrize("command", COMMANDS, ids=lambda words: words[0])


@every_command
def test_a_command_of_the_parent_says_that_its_child_is_left_out(
    parent: Target, command: list[str]
) -> None:
    words = [word.format(pid=parent.pid) for word in command]
    alone = cli(*words, "--duration", "0.1")
    keep(parent)

    done = cli(*words, "--duration", "0.1")

    assert "same program" not in alone.stderr
    assert (
        f"markerjit: left out: 1 process of the same program, started by process {parent.pid}; "
        "--follow takes all\n" in done.stderr
    )
    assert done.returncode == 0


@every_command
def test_the_child_is_taken_as_well_where_all_are_followed(
    parent: Target, command: list[str]
) -> None:
    keep(parent)

    done = cli(*[word.format(pid=parent.pid) for word in command], "--follow", "--duration", "0.1")

    assert "left out" not in done.stderr
    assert "followed 2 programs with such markers" in done.stderr
    assert done.returncode == 0


def test_nothing_is_said_where_the_child_is_among_the_targets(parent: Target) -> None:
    child = keep(parent)

    done = cli("count", f"{parent.pid},{child}", "truth_family", "--duration", "0.1")

    assert "same program" not in done.stderr


def test_a_child_of_another_program_is_no_worker() -> None:
    shell = Limited(["sh", "-c", "sleep 1000 & wait"])
    children: set[int] = set()
    try:
        wait_until(lambda: children_of(shell.pid), "a child of the shell")
        children = children_of(shell.pid)
        (child,) = children
        comm = Path(f"/proc/{child}/comm")
        wait_until(lambda: comm.read_text() == "sleep\n", "the child to execute sleep")
        with markerjit.View(shell.pid) as view:
            assert list(view.workers) == []
    finally:
        for child in children:
            os.kill(child, signal.SIGKILL)
        shell.kill()
        shell.wait()


def test_a_closed_session_tells_no_workers(parent: Target) -> None:
    session = markerjit.attach(parent.pid)
    session.close()

    with pytest.raises(markerjit.MarkerError):
        _ = session.workers
