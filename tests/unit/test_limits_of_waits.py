"""What a test waits for has a limit, and a failure says what that was."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
import time
from contextlib import suppress

import pytest

from tests.support import timing
from tests.support.timing import Hangs, Limited, joined, reaped

PIPES = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timing, "HANG_S", 0.01)
    monkeypatch.setattr(timing, "_SAMPLE_S", 0.01)


@pytest.mark.parametrize("options", [{"text": True}, {}, {"bufsize": 0}])
def test_what_a_program_writes_is_read_as_ever(options: dict[str, object]) -> None:
    with Limited(["cat"], **PIPES, **options) as program:
        empty = "" if options.get("text") else b""
        text = "first\nsecond\nrest"
        sent = text if options.get("text") else text.encode()
        program.stdin.write(sent)
        program.stdin.close()

        assert program.stdout.readline() == sent[:6]
        assert next(program.stdout) == sent[6:13]
        assert program.stdout.read() == sent[13:]
        assert program.stdout.read() == empty


@pytest.mark.parametrize("options", [{"text": True}, {}, {"bufsize": 0}])
def test_program_that_writes_nothing_is_not_waited_for_for_ever(
    options: dict[str, object], short: None
) -> None:
    with Limited(["cat"], **PIPES, **options) as program:
        with pytest.raises(Hangs, match=f"what process {program.pid} writes"):
            program.stdout.readline()
        with pytest.raises(Hangs, match=f"what process {program.pid} writes"):
            program.stdout.read()
        program.kill()
        with suppress(Hangs):
            program.wait()


def test_child_that_does_not_end_is_killed(short: None) -> None:
    child = os.fork()
    if not child:
        time.sleep(1000)
        os._exit(0)

    with pytest.raises(Hangs, match=f"the end of {child}"):
        reaped(child, 0.01)
    with pytest.raises(ProcessLookupError):
        os.kill(child, 0)


def test_status_of_a_child_is_that_of_the_kernel() -> None:
    child = os.fork()
    if not child:
        os.kill(os.getpid(), signal.SIGKILL)

    assert os.waitstatus_to_exitcode(reaped(child)) == -signal.SIGKILL


def test_thread_that_does_not_end_is_named(short: None) -> None:
    end = threading.Event()
    thread = threading.Thread(target=end.wait, name="for ever")
    thread.start()

    with pytest.raises(Hangs, match="the end of for ever"):
        joined(thread)
    end.set()
    thread.join()
