"""Programs that are seen while they start: their requests begin when all is there."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import markerjit
from markerjit.fleet import start
from markerjit.proc.loader import Loading, loading
from markerjit.proc.permission import read_status
from markerjit.targets.arrivals import Arrivals
from tests.support.timing import HANG_S, Limited, Wait, wait_until

Newcomers = markerjit.Newcomers[Any]
LOOKS = 40
"""Far more than it takes to believe that a loader is done which says nothing."""


@pytest.fixture
def program(build: Path, tmp_path: Path) -> Path:
    """truth_dlopen as a file that no other process executes."""
    return Path(shutil.copy(build / "truth_dlopen", tmp_path / "starts"))


@pytest.fixture
def newcomers(program: Path) -> Iterator[Callable[[str], Newcomers]]:
    """Those that execute it, traced by a pattern."""
    opened: list[Newcomers] = []

    def of(pattern: str) -> Newcomers:
        request = lambda session: session.trace(pattern)  # noqa: E731
        opened.append(markerjit.Newcomers(markerjit.Targets(exe=str(program)), request))
        return opened[-1]

    yield of
    for each in opened:
        each.close()


@contextmanager
def running(path: Path, **environment: str) -> Iterator[Limited]:
    with Limited(
        [path],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env={**os.environ, **environment},
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def stop(process: Limited) -> None:
    process.send_signal(signal.SIGSTOP)
    wait_until(lambda: read_status(process.pid).state == "T", "the stop")


def look(newcomers: Newcomers) -> None:
    """Look at them again and again."""
    for _ in range(LOOKS):
        newcomers.poll()
        newcomers.wait(0.005)


def test_markers_of_a_library_are_found_however_long_the_loader_takes(
    program: Path, build: Path, tmp_path: Path, newcomers: Callable[[str], Newcomers]
) -> None:
    held = tmp_path / "held.so"
    os.mkfifo(held)
    traced = newcomers("truth_plugin")

    with running(program, LD_PRELOAD=f"{held} {build}/truth_plugin.so") as process:
        writer = -1

        def is_opened() -> bool:
            nonlocal writer
            try:
                writer = os.open(held, os.O_WRONLY | os.O_NONBLOCK)
            except OSError:
                return False
            return True

        wait_until(is_opened, "the loader at the library that it does not get")
        assert loading(process.pid) is Loading.AT_WORK
        look(traced)
        assert (traced.members, traced.plain) == ([], 0)

        os.close(writer)
        wait_until(lambda: traced.poll() or traced.members, "the newcomer")
        assert [member.pid for member in traced.members] == [process.pid]
        assert loading(process.pid) is Loading.DONE


def test_markers_of_what_a_program_loads_at_its_start_are_found(
    program: Path,
    build: Path,
    newcomers: Callable[[str], Newcomers],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(start, "_IS_YOUNG_S", HANG_S)
    traced = newcomers("truth_plugin")

    with running(program) as process:
        assert process.stdin is not None
        wait_until(lambda: traced.poll() or traced.plain, "the first attempt")
        look(traced)
        assert (traced.members, traced.plain) == ([], 1)

        process.stdin.write(f"load {build}/truth_plugin.so\n".encode())
        process.stdin.flush()
        wait_until(lambda: traced.poll() or traced.members, "the newcomer")
        assert traced.plain == 0


def test_program_of_which_news_come_late_is_counted_once(
    program: Path, newcomers: Callable[[str], Newcomers], monkeypatch: pytest.MonkeyPatch
) -> None:
    traced = newcomers("truth_plugin")

    with running(program) as process:
        wait_until(lambda: traced.poll() or traced.plain, "the first attempt")
        monkeypatch.setattr(Arrivals, "poll", lambda self: [process.pid])
        look(traced)

        assert traced.plain == 1


def test_what_fails_for_a_moment_is_tried_again(
    program: Path, newcomers: Callable[[str], Newcomers], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(start, "_IS_YOUNG_S", HANG_S)
    traced = newcomers("truth_host")

    with running(program) as process:
        assert process.stdout is not None
        Wait("its first line").for_input(process.stdout)
        stop(process)
        look(traced)
        assert (traced.members, traced.failed) == ([], [])

        process.send_signal(signal.SIGCONT)
        wait_until(lambda: traced.poll() or traced.members, "the newcomer")
        assert traced.failed == []


@pytest.mark.parametrize(
    ("asked", "error", "sentence"),
    [
        ({"where": "nmuber"}, markerjit.BadQuestion, "no name nmuber"),
        ({"fields": "nmuber"}, markerjit.UnknownField, "has a field nmuber; there are n"),
    ],
)
def test_name_that_is_wrong_for_the_first_newcomer_is_raised(
    program: Path, asked: dict[str, Any], error: type[markerjit.MarkerError], sentence: str
) -> None:
    request = lambda session: session.trace("truth_host", **asked)  # noqa: E731
    with markerjit.Newcomers(markerjit.Targets(exe=str(program)), request) as traced:
        with running(program), pytest.raises(error, match=sentence):
            wait_until(lambda: traced.poll() or traced.failed, "the newcomer")
        assert [type(each.error) for each in traced.failed] == [error]


def test_what_goes_on_failing_is_said(
    program: Path, newcomers: Callable[[str], Newcomers], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(start, "_IS_YOUNG_S", 0.0)
    traced = newcomers("truth_host")

    with running(program) as process:
        assert process.stdout is not None
        Wait("its first line").for_input(process.stdout)
        stop(process)
        wait_until(lambda: traced.poll() or traced.failed, "the failure")
        (failed,) = traced.failed
        assert failed.pid == process.pid
        assert "is stopped (SIGSTOP)" in failed.sentence
