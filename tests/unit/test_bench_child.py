"""Programs of the bench that answer lines: what is said of those that do not, or not well."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager

import pytest

from markerjit.apps.bench.sampling.child import Child
from markerjit.errors import MarkerError

HOLDS_ERRORS = "os.fork() or (os.close(1), time.sleep(3), os._exit(0)); os.abort()"


@contextmanager
def started(code: str, *, silent_s: float = 30) -> Iterator[Child]:
    script = f"import os, sys, time\nprint('ready', flush=True)\nsys.stdin.readline()\n{code}"
    with closing(Child("loop", [sys.executable, "-c", script], silent_s=silent_s)) as child:
        yield child


def test_an_answer_comes_without_its_first_word() -> None:
    with started("print('ran 1 2'); print('truth 3')") as child:
        assert child.ask("run 0", "ran") == "1 2"
        assert child.ask("truth") == "3"


@pytest.mark.parametrize(
    ("code", "words"),
    [
        ("print('hello 1 2')", "the bench's loop said 'hello 1 2', not ran"),
        ("print()", "the bench's loop said '', not ran"),
        ("sys.exit(3)", "the bench's loop ended with code 3"),
        ("sys.exit('no')", "the bench's loop ended with code 1: no"),
        ("os.abort()", "the bench's loop was ended by SIGABRT"),
        ("os.kill(os.getpid(), 40)", "the bench's loop was ended by signal 40"),
        (HOLDS_ERRORS, "the bench's loop was ended by SIGABRT"),
    ],
)
def test_what_went_wrong_is_named(code: str, words: str) -> None:
    with started(code) as child, pytest.raises(MarkerError) as refused:
        child.ask("run 0", "ran")

    assert str(refused.value) == words


def test_who_is_silent_is_not_waited_for() -> None:
    with (
        started("time.sleep(60)", silent_s=1) as child,
        pytest.raises(MarkerError, match="was silent for 1 s"),
    ):
        child.ask("run 0")


def test_much_on_standard_error_keeps_nobody_waiting() -> None:
    with started("sys.stderr.write(100000 * 'x' + 'end'); print('run 1'); sys.exit(2)") as child:
        assert child.ask("run 0") == "1"
        with pytest.raises(MarkerError, match=r"code 2: x{4093}end$"):
            child.ask("run 0")


def test_one_that_does_not_end_well_says_so() -> None:
    with started("sys.exit(0)") as child:
        child.end()
    with started("sys.exit(4)") as child, pytest.raises(MarkerError, match="code 4"):
        child.end()
