"""The processes of experiments: all can be ended, and none is left behind or killed twice."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from markerjit.lab import child, inside, processes
from markerjit.lab.processes import ALIVE, end, ending_of, kill_all, start
from tests.support.timing import HANG_S

WAITS = [sys.executable, "-c", "print(flush=True); input()"]


def started() -> subprocess.Popen[bytes]:
    return start(WAITS, stdin=subprocess.PIPE, stderr=subprocess.DEVNULL)


def descriptors() -> list[str]:
    return sorted(os.listdir("/proc/self/fd"))


def test_all_are_killed_and_end_leaves_no_descriptor() -> None:
    before = descriptors()
    both = [started(), started()]
    assert [ending_of(process, 0) for process in both] == [ALIVE, ALIVE]

    kill_all()

    assert [ending_of(process, HANG_S) for process in both] == ["SIGKILL", "SIGKILL"]
    for process in both:
        end(process)
    assert descriptors() == before


def test_one_that_was_ended_is_not_killed_again() -> None:
    process = started()
    end(process)

    kill_all()

    assert process not in processes._running


def test_one_that_was_waited_for_and_not_ended_is_no_error() -> None:
    process = start([sys.executable, "-c", ""], stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    assert ending_of(process, HANG_S) == "exit code 0"

    kill_all()

    end(process)


def test_one_that_cannot_be_held_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[int] = []

    def no_descriptor(pid: int) -> int:
        made.append(pid)
        raise OSError(24, "too many open files")

    monkeypatch.setattr(os, "pidfd_open", no_descriptor)

    with pytest.raises(OSError, match="too many"):
        started()

    assert not os.path.exists(f"/proc/{made[0]}")


def test_a_child_that_cannot_be_started_leaves_no_descriptor_and_no_mapping(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def no_process(*args: object, **named: object) -> None:
        raise OSError(12, "cannot allocate memory")

    image, before = inside.image(), descriptors()
    monkeypatch.setattr(child, "start", no_process)

    with pytest.raises(OSError, match="cannot allocate") as error:
        child.Child(image)

    assert descriptors() == before, "the error keeps the child, so nothing was collected"
    assert error.value.errno == 12
