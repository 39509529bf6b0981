"""`make whole` compares results. One of a program that did nothing would always be equal."""

from __future__ import annotations

from contextlib import contextmanager
from pathlib import Path

import pytest

from markerjit.errors import MarkerError
from tests.whole.__main__ import run
from tests.whole.programs import PYTHON, Bash, Python, Running


class Idle(Bash):
    """A program whose work prints nothing, whatever is asked of it."""

    @contextmanager
    def running(self, directory: Path):
        yield Running(0, ())

    def work(self, program: Running) -> str:
        return ""


def test_a_program_that_did_no_work_shows_nothing() -> None:
    with pytest.raises(MarkerError, match="untouched, it did no work"):
        run(Idle(), 1)


@pytest.mark.parametrize(
    ("result", "passed"),
    [
        ("good=[] bad=['test_dict', 'test_re'] skipped=[]", 0),
        ("good=['test_re'] bad=['test_dict'] skipped=[]", 1),
        ("good=['test_dict', 'test_re'] bad=[] skipped=[]", 2),
    ],
)
def test_most_tests_of_python_have_to_pass(result: str, passed: int) -> None:
    lack = Python(("test_dict", "test_re")).lacks(result)

    assert lack == ("" if passed == 2 else f"{passed} of its 2 modules of tests pass: {result}")


@pytest.mark.skipif(not PYTHON.exists(), reason="needs Debian's python3.11")
def test_python_without_the_tests_that_are_asked_for_is_not_here() -> None:
    """Debian's package of the interpreter has their runner."""
    assert Python(("support",)).path() is not None
    assert Python(("support", "test_that_nobody_has_written")).path() is None
