"""The pager of `read` on a terminal, and that there is none elsewhere."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from tests.support.commands import CLI, ENVIRONMENT
from tests.support.made_traces import EVENTS, write_trace
from tests.support.terminals import in_terminal

pytestmark = pytest.mark.also_user


@pytest.fixture
def path(tmp_path: Path) -> str:
    """A trace with some events."""
    return write_trace(tmp_path / "a.jsonl", EVENTS[:5], {})


def test_events_and_the_last_line_go_through_the_pager(path: str) -> None:
    lines = in_terminal("read", path, PAGER="cat -n").splitlines()

    assert [line.split("\t")[0].strip() for line in lines] == [str(n) for n in range(1, 7)]
    assert "5 events, 0 lost" in lines[-1]
    assert in_terminal("read", path, PAGER="cat", MARKERJIT_PAGER="cat -n").startswith("     1\t")


def test_standard_error_stays_where_it_is_another_file_or_terminal(
    path: str, tmp_path: Path
) -> None:
    with open(tmp_path / "errors", "w+") as errors:
        shown = in_terminal("read", path, PAGER="cat -n", errors=errors.fileno())
        assert shown.count("\n") == 5
        assert (tmp_path / "errors").read_text() == "5 events, 0 lost\n"

    controller, terminal = os.openpty()
    try:
        assert in_terminal("read", path, PAGER="cat -n", errors=terminal).count("\n") == 5
        assert os.read(controller, 1000) == b"5 events, 0 lost\r\n"
    finally:
        os.close(controller)
        os.close(terminal)


def test_there_is_none_where_none_is_wanted(path: str) -> None:
    plain = in_terminal("read", path, PAGER="cat")

    assert plain.count("\n") == 6 and "\t" not in plain
    for words, environment in (
        (("--no-pager",), {"PAGER": "cat -n"}), ((), {"PAGER": ""}),
        ((), {"PAGER": "no-such-program -n"}), ((), {"PAGER": "cat -n", "TERM": "dumb"}),
    ):  # fmt: skip
        shown = in_terminal("read", path, *words, "--color", "never", **environment)
        assert shown == in_terminal("read", path, "--color", "never", PAGER="cat")
    piped = subprocess.run(
        [*CLI, "read", path], env={**ENVIRONMENT, "PAGER": "cat -n"}, capture_output=True,
        text=True, check=True,
    )  # fmt: skip
    assert piped.stdout.count("\n") == 5 and "\t" not in piped.stdout


def test_a_pager_that_is_left_early_ends_the_command_without_a_word(path: str) -> None:
    shown = in_terminal("read", path, PAGER="head -n 1")

    assert shown.count("\n") == 1 and "Traceback" not in shown
