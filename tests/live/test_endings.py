"""A process that ends while a command looks at it has ended: that is all there is to say.

The kernel takes a process apart piece by piece. On the way its files belong to root, it has no
memory as kernel threads have none, and its maps are empty; each of these has been taken for a fact
about it. The target is killed at every read of every command that only looks.
"""

from __future__ import annotations

import builtins
import io
import os
import random
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import markerjit
from markerjit.cli.main import run
from markerjit.memory import has_ended
from markerjit.proc import permission
from tests.support.commands import cli, one_line, running
from tests.support.processes import state_of
from tests.support.timing import Limited, wait_until

READS = [
    (os, "open"), (os, "pread"), (os, "readlink"), (os, "listdir"), (os, "stat"),
    (os, "pidfd_open"), (builtins, "open"),
]  # fmt: skip
COMMANDS = [("list",), ("status",), ("explain", "truth_loop"), ("doctor",)]


@pytest.fixture
def start(build: Path) -> Iterator[Callable[[], subprocess.Popen[bytes]]]:
    """Start a target that does nothing for itself."""
    started: list[subprocess.Popen[bytes]] = []

    def run_it() -> subprocess.Popen[bytes]:
        program = [build / "truth_threads", "2", "--paused"]
        process = Limited(program, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        assert process.stdout and process.stdout.readline().startswith(b"ready")
        started.append(process)
        return process

    yield run_it

    for process in started:
        process.kill()
        process.communicate()


@contextmanager
def doing_at_read(pid: int, number: int, action: Callable[[], object]) -> Iterator[list[int]]:
    """Do something before the n-th read of what is there of a process. Yields how many there
    were."""
    count = [0]

    def hooked(function: Callable[..., Any]) -> Callable[..., Any]:
        def read(what: object, *args: Any, **kwargs: Any) -> Any:
            if function is os_pread or str(pid) in str(what):
                count[0] += 1
                if count[0] == number:
                    action()
            return function(what, *args, **kwargs)

        return read

    os_pread = os.pread
    with pytest.MonkeyPatch.context() as patch:
        for module, name in READS:
            patch.setattr(module, name, hooked(getattr(module, name)))
        patch.setattr(io, "open", builtins.open)
        yield count


def kill(process: subprocess.Popen[bytes], *, reap: bool) -> None:
    """Kill it and wait for its end; without `reap` it stays a zombie."""
    process.kill()
    os.waitid(os.P_PID, process.pid, os.WEXITED | (0 if reap else os.WNOWAIT))
    if reap:
        process.returncode = -signal.SIGKILL


@pytest.mark.product
@pytest.mark.parametrize("reap", [False, True], ids=["zombie", "reaped"])
@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command[0])
def test_a_process_that_is_killed_at_any_read_has_ended(
    command: tuple[str, ...], reap: bool, start: Callable, capsys: pytest.CaptureFixture[str]
) -> None:
    whole = start()
    arguments = [command[0], str(whole.pid), *command[1:]]
    run(arguments)  # what is imported is read, too
    with doing_at_read(whole.pid, 0, lambda: None) as count:
        assert run(arguments) == 0
    capsys.readouterr()

    unseen: list[int] = []
    numbers: list[int] = []
    for number in range(1, count[0] + 1, 1 if count[0] < 80 else 3):
        process = start()
        with doing_at_read(process.pid, number, partial(kill, process, reap=reap)):
            code = run([command[0], str(process.pid), *command[1:]])
        shown = capsys.readouterr()
        if code == 0:
            continue  # all had been read
        assert (code, shown.out) == (1, "")
        if "no process" in shown.err:
            unseen.append(number)
            assert shown.err == f"markerjit: no process {process.pid}; has it ended?\n"
        else:
            numbers.append(number)
            assert shown.err == f"markerjit: process {process.pid} has ended\n"
    assert len(numbers) > 10
    assert len(unseen) <= (2 if reap else 0)  # before the first look at it
    assert all(number < numbers[0] for number in unseen)


def test_a_process_that_is_killed_at_any_moment_has_ended(start: Callable) -> None:
    """From outside, at moments that nobody chose, and seen in pieces."""
    chosen = random.Random(7)
    for command in ("list", "status", "doctor", "trace"):
        for _ in range(4):
            process = start()
            pattern = ["truth_loop"] if command == "trace" else []
            with running(command, process.pid, *pattern) as looking:
                time.sleep(chosen.uniform(0, 0.4))
                process.kill()
                _, errors = looking.communicate()
            last = errors.splitlines()[-1] if errors else ""
            assert last in ("", f"markerjit: process {process.pid} has ended")
            assert looking.returncode == (1 if last else 0)


def test_a_process_on_its_way_is_no_kernel_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """What /proc/PID/status says of it between its memory and its end."""
    text = "\nName:\tkv\nState:\tR (running)\nUid:\t0\t0\t0\t0\nThreads:\t1\n"
    monkeypatch.setattr(permission, "_status_text", lambda *_: text)
    monkeypatch.setattr(permission, "has_ended", lambda _: True)

    for check in (permission.check_before_looking, permission.check_before_stopping):
        with pytest.raises(markerjit.NoSuchProcess, match="process 7 has ended"):
            check(7)


def test_a_process_on_its_way_has_not_made_itself_untraceable(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(permission, "has_ended", lambda _: True)

    assert permission.why_not(os.getpid()) == f"process {os.getpid()} has ended"


def test_a_process_without_its_first_thread_has_not_ended(tmp_path: Path) -> None:
    """That thread stays there as a zombie, and what /proc says of the process is what it says of
    it."""
    source = (
        "#include <pthread.h>\n#include <unistd.h>\n"
        "static void *wait_(void *unused) { pause(); return unused; }\n"
        "int main(void) { pthread_t t; pthread_create(&t, 0, wait_, 0); pthread_exit(0); }\n"
    )
    program = tmp_path / "headless"
    command = ["gcc", "-pthread", "-o", program, "-xc", "-"]
    subprocess.run(command, input=source, text=True, check=True)
    with Limited([program]) as process:
        wait_until(lambda: state_of(process.pid) == "Z", "its first thread to end")

        done = cli("on", process.pid, "*")
        assert not has_ended(process.pid)
        process.kill()
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        assert has_ended(process.pid)

    ended = f"the first thread of process {process.pid} has ended"
    one_line(done, f"{ended}, so its memory can no longer be reached")


def test_a_kernel_thread_has_not_ended() -> None:
    if Path("/proc/2/comm").read_text() != "kthreadd\n":
        pytest.skip("process 2 is no kernel thread here (a container?)")

    assert not has_ended(2)


def test_a_number_without_a_process_is_not_said_to_have_ended(start: Callable) -> None:
    process = start()
    kill(process, reap=True)

    done = cli("list", process.pid)

    assert done.stderr == f"markerjit: no process {process.pid}; has it ended?\n"
