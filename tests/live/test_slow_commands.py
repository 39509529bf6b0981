"""Commands that take more than a second say on a terminal what they do, and take it away again.

Each is kept at its slow step until the terminal has shown the line: nothing here waits for a clock.
"""

from __future__ import annotations

import os
import pty
import re
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.commands import ENVIRONMENT
from tests.support.terminals import screen_of
from tests.support.timing import Limited, Wait

pytestmark = pytest.mark.also_user

KEPT = """
import sys
import markerjit
from markerjit.cli import main, progress

def keep(owner, step, path):
    function = getattr(owner, step)

    def kept(*arguments, **options):
        setattr(owner, step, function)  # only once
        with open(path) as file:  # when the test has opened it
            file.read()
        return function(*arguments, **options)

    setattr(owner, step, kept)

path, owner, step, *words = sys.argv[1:]
keep(getattr(markerjit, owner) if owner else markerjit, step, path)
progress._AFTER_S = progress._EVERY_S = 0.01
main.main(words)
"""
"""A command, one step of which waits for the test."""


def shown_while_kept(owner: str, step: str, path: Path, *words: object) -> tuple[str, str]:
    """What a command shows in a terminal while this step of it waits, and afterwards."""
    os.mkfifo(path)
    controller, terminal = pty.openpty()
    command = [sys.executable, "-c", KEPT, path, owner, step, *words]
    environment = {**ENVIRONMENT, "TERM": "xterm", "COLUMNS": "80", "PAGER": "cat"}
    with Limited(
        list(map(str, command)),
        env=environment,
        stdin=terminal,
        stdout=terminal,
        stderr=terminal,
    ) as process:
        os.close(terminal)
        try:
            wait = Wait("the line of a slow command")
            during = ""
            while " s\x1b[K" not in during:
                wait.for_input(controller)
                during += os.read(controller, 1 << 16).decode()
            path.open("w").close()
            afterwards = "".join(iter(lambda: read(controller), ""))
            assert process.wait() == 0, during + afterwards
        finally:
            process.kill()
            os.close(controller)
    return during, during + afterwards


def read(controller: int) -> str:
    """A piece of what is shown; nothing where the terminal has been closed."""
    try:
        return os.read(controller, 1 << 16).decode()
    except OSError:
        return ""


@pytest.mark.parametrize(
    ("owner", "step", "words", "line", "result"),
    [
        ("", "overview", ("ps",), "looking at the processes", "PID  USER"),
        (
            "View", "functions", ("list", "PID", "func:main"), "looking for func:main",
            "func:main",
        ),
        ("View", "statistics", ("list", "PID"), "looking for *", "truth_loop"),
        ("View", "usdt", ("list", "PID", "--usdt"), "looking for USDT probes", "no USDT probes"),
        (
            "Fleet", "each", ("top", "PID", "truth_loop", "-d", "50ms"), "switching on truth_loop",
            "hits/s of 1 marker",
        ),
        (
            "Fleet", "trace", ("top", "PID", "truth_loop", "--by", "i", "-d", "50ms"),
            "switching on truth_loop", "hits/s of 1 key",
        ),
        (
            "Session", "enable", ("on", "PID", "truth_loop"), "switching on truth_loop",
            "on (jump, count)",
        ),
    ],
    ids=["ps", "list functions", "list", "list USDT", "top", "top by a field", "on"],
)  # fmt: skip
def test_a_slow_step_is_named_with_the_time_until_it_is_over(
    owner: str,
    step: str,
    words: tuple[str, ...],
    line: str,
    result: str,
    target: Callable,
    tmp_path: Path,
) -> None:
    program = target("truth_threads", "1", "--rate", "100")
    given = [program.pid if word == "PID" else word for word in words]

    during, whole = shown_while_kept(owner, step, tmp_path / "kept", *given)

    assert re.match(rf"\r{re.escape(line)}: \d+ s\x1b\[K", during)
    screen = screen_of(whole.replace("\r\n", "\n"))
    assert not any(line in each for each in screen)
    assert any(result in each for each in screen), screen
