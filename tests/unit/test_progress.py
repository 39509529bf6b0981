"""How far the reading of a trace is: on a terminal, and where it takes long."""

from __future__ import annotations

import os
import re
import time
from pathlib import Path

import pytest

import markerjit
from markerjit import Trace
from markerjit.cli import progress
from tests.support.made_traces import EVENTS, write_trace
from tests.support.timing import wait_until


@pytest.fixture
def lines(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What is shown, as if standard error was a terminal and a second was nothing."""
    shown: list[str] = []
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    monkeypatch.setattr(progress.output, "print_progress", shown.append)
    monkeypatch.setattr(progress, "_AFTER_S", 0.001)
    monkeypatch.setattr(progress, "_EVERY_S", 0.001)
    return shown


def test_a_bar_says_how_much_of_a_file_was_read(lines: list[str], tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(b"x" * 1000)

    with progress.shown([Trace(str(path))]), open(path, "rb", buffering=0) as file:
        file.read(500)
        wait_until(lambda: any("50%" in line for line in lines), "the half of the bar")

    half = next(line for line in lines if "50%" in line)
    assert re.fullmatch(r"reading \[#{15}\.{15}\]  50%, 0 s", half)
    assert lines[-1] == ""


def test_files_of_a_folder_count_too(lines: list[str], tmp_path: Path) -> None:
    (tmp_path / "a.ctf").mkdir()
    (tmp_path / "a.ctf" / "ring_0").write_bytes(b"x" * 10)

    with (
        progress.shown([Trace(str(tmp_path))]),
        open(tmp_path / "a.ctf" / "ring_0", "rb", 0) as file,
    ):
        file.read()
        wait_until(lambda: any("100%" in line for line in lines), "the whole bar")


@pytest.mark.parametrize("name", ["a.ctf", "a.parquet"])
def test_a_reader_without_a_place_says_how_far_it_is(
    lines: list[str], tmp_path: Path, name: str
) -> None:
    trace = markerjit.open_trace(write_trace(tmp_path / name, EVENTS, {}))
    assert trace.part == 0

    with progress.shown([trace]):
        assert sum(1 for _ in trace.events()) == len(EVENTS)
        part = trace.part
        assert part and part <= 1
        wait_until(lambda: any(f"] {part:4.0%}," in line for line in lines), "the bar")


def test_what_nobody_knows_is_the_time_alone(lines: list[str], tmp_path: Path) -> None:
    with progress.shown([Trace(str(tmp_path / "none"))]):
        wait_until(lambda: lines, "a line")

    assert lines[0] == "reading for 0 s"


def test_what_is_done_is_said_with_the_time(lines: list[str]) -> None:
    with progress.timed("switching on func:*"):
        wait_until(lambda: lines, "a line")

    assert lines[0] == "switching on func:*: 0 s"
    assert lines[-1] == ""


def test_nothing_is_shown_of_what_is_fast_or_elsewhere_than_on_a_terminal(
    lines: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(progress, "_AFTER_S", 3600)
    with progress.shown([Trace(str(tmp_path))]):
        pass
    monkeypatch.setattr("sys.stderr.isatty", lambda: False)
    with progress.shown([Trace(os.devnull)]):
        time.sleep(0)

    assert lines == []
