"""Commands that tests run beside themselves are forked, and are children of ours nevertheless."""

from __future__ import annotations

import os
import signal
import subprocess

import psutil

from tests.support.commands import Adopted, running


def test_a_command_that_runs_beside_a_test_is_a_child_of_ours() -> None:
    with running("read", "-", stdin=subprocess.PIPE) as command:
        assert isinstance(command, Adopted)
        assert psutil.Process(command.pid).ppid() == os.getpid()
        out, errors = command.communicate("no trace\n")

    assert command.returncode == 1
    assert (out, errors.count("\n")) == ("", 1)


def test_its_end_by_a_signal_is_seen() -> None:
    with running("read", "-", stdin=subprocess.PIPE) as command:
        command.kill()

        assert command.wait() == -signal.SIGKILL


def test_it_holds_no_pipe_of_another() -> None:
    with (
        running("read", "-", stdin=subprocess.PIPE) as first,
        running("read", "-", stdin=subprocess.PIPE) as second,
    ):
        first.communicate("")

        assert second.poll() is None


def test_orphans_are_not_given_to_us() -> None:
    with running("--version") as command:
        command.communicate()
    leaving = ["sh", "-c", "sleep 600 >/dev/null 2>&1 & echo $!"]
    left = psutil.Process(int(subprocess.run(leaving, capture_output=True, check=True).stdout))
    try:
        assert left.ppid() != os.getpid()
    finally:
        left.kill()
