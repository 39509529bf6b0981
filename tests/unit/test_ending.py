"""A process that ends while it is worked on: whatever fails then, it is said to have ended."""

from __future__ import annotations

import builtins
import errno
import io
import os
import re
import signal
import subprocess
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import markerjit
from markerjit.arena.find import Unfinished
from markerjit.errors import MarkerError, MemoryFault, NoSuchProcess, Refused, TargetGone
from markerjit.memory import ProcessMemory, has_ended, process
from markerjit.memory.base import is_ending
from markerjit.model import RemoteAddress
from markerjit.proc import permission
from markerjit.remote import native
from markerjit.remote.outcome import explain_failure
from markerjit.session import repair
from tests.support.timing import Limited, wait_until

Process = subprocess.Popen[bytes]


@pytest.fixture
def child() -> Iterator[Process]:
    with Limited(["cat"], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        yield child
        child.kill()


def kill(child: Process) -> None:
    """It is a zombie then: dead, and its number not given away."""
    child.kill()
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)


def test_a_process_has_ended_from_its_end_on(child: Process) -> None:
    before = has_ended(child.pid)
    kill(child)
    dead = has_ended(child.pid)
    child.wait()

    assert (before, dead, has_ended(child.pid)) == (False, True, True)
    assert not has_ended(os.getpid())


def test_a_process_that_is_killed_and_waits_for_a_cpu_is_gone(
    child: Process, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its threads have the signal pending. ptrace knows none of them any more."""
    opened = builtins.open

    def opening(path: Any, *args: Any, **options: Any) -> Any:
        file = opened(path, *args, **options)
        if not str(path).endswith("/status"):
            return file
        with file:
            return io.BytesIO(re.sub(rb"SigPnd:\t[0-9a-f]+", b"SigPnd:\t0100", file.read()))

    assert not is_ending(child.pid)
    monkeypatch.setattr(builtins, "open", opening)

    assert is_ending(child.pid)
    refusal = explain_failure(child.pid, native.NOT_SYNCED, native.Report(error=errno.ESRCH))
    assert isinstance(refusal, TargetGone)


ERRORS = [
    *(OSError(code, os.strerror(code)) for code in (errno.EACCES, errno.EPERM, errno.ESRCH)),
    *(OSError(code, os.strerror(code)) for code in (errno.ENOENT, errno.EIO)),
    Refused("no thread can be borrowed", try_again=True),
    MemoryFault(0, 1, "read", "not mapped"),
    MarkerError("any other"),
]


@pytest.mark.parametrize("error", ERRORS, ids=str)
def test_any_error_is_that_the_process_has_ended(child: Process, error: Exception) -> None:
    with ProcessMemory(child.pid) as memory:
        kill(child)

        with pytest.raises(TargetGone, match=f"process {child.pid} has ended"), memory.watched():
            raise error


@pytest.mark.parametrize("error", ERRORS, ids=str)
def test_errors_of_a_process_that_lives_are_what_they_are(child: Process, error: Exception) -> None:
    with (
        ProcessMemory(child.pid) as memory,
        pytest.raises(type(error)) as caught,
        memory.watched(),
    ):
        raise error
    assert caught.value is error


def test_a_bug_of_ours_keeps_its_traceback(child: Process) -> None:
    with ProcessMemory(child.pid) as memory:
        kill(child)

        with pytest.raises(TypeError), memory.watched():
            raise TypeError("a bug")


def test_a_process_that_became_another_program_is_gone_too() -> None:
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with Limited(["sh", "-c", "echo; read line; exec cat"], **pipes) as shell:
        assert shell.stdin
        assert shell.stdout
        shell.stdout.readline()
        with ProcessMemory(shell.pid) as memory:
            assert not memory.is_gone()
            shell.stdin.write(b"\necho\n")
            shell.stdin.flush()
            shell.stdout.readline()  # cat has answered

            with pytest.raises(TargetGone, match="started another program"), memory.watched():
                raise PermissionError(errno.EACCES, "its files are root's")
        shell.kill()


def test_memory_that_may_not_be_opened_because_the_process_ends_is_of_no_process(
    child: Process, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its files in /proc are root's then, and say to others that it is not permitted."""

    memory, as_before = f"/proc/{child.pid}/mem", os.open

    def refuse(path: str, *arguments: int) -> int:
        if path == memory:
            raise PermissionError(errno.EACCES, "Permission denied", path)
        return as_before(path, *arguments)

    kill(child)
    monkeypatch.setattr(process.os, "open", refuse)

    with pytest.raises(NoSuchProcess):
        ProcessMemory(child.pid)


def test_a_process_without_memory_that_ends_is_no_kernel_thread(
    child: Process, monkeypatch: pytest.MonkeyPatch
) -> None:
    status = permission.read_status(child.pid)._replace(has_memory=False)
    monkeypatch.setattr(permission, "read_status", lambda _: status)
    kill(child)

    with pytest.raises(NoSuchProcess):
        permission.check_before_looking(child.pid)


@pytest.mark.live
def test_a_repair_whose_process_ends_meanwhile_says_so(
    target: Callable, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = target("truth_threads", "1", may_die=True)

    def end(*_: object) -> None:
        os.kill(program.pid, signal.SIGKILL)
        wait_until(lambda: has_ended(program.pid), "its end")
        raise Refused("no thread can be borrowed")

    left = Unfinished(RemoteAddress(0), 0, ())
    monkeypatch.setattr(repair, "find_unfinished", lambda *_: [left])
    monkeypatch.setattr(repair, "remove_unfinished", end)

    with pytest.raises(TargetGone):
        markerjit.repair(program.pid)
