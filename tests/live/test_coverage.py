"""`markerjit coverage`: how much of an object's code can be opened, and why not more."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

import markerjit
from markerjit.spans import Way
from tests.support.commands import cli, facts, one_line
from tests.support.programs import ROOT, make

pytestmark = pytest.mark.live

HOLES = str(ROOT / "build" / "targets" / "truth_holes")


@pytest.fixture(scope="module", autouse=True)
def built() -> None:
    make("build/targets/truth_holes")


def test_each_entry_has_the_way_by_which_a_switch_opens_it() -> None:
    entries, exits = markerjit.coverage_of_file(HOLES).shares

    # first, second and third; last; alone, and others that the compiler has brought along
    assert entries.ways[str(Way.HOLE)] == 3
    assert entries.ways[str(Way.MADE)] == 1
    assert entries.reasons["a branch"] == 1
    assert sum(entries.ways.values()) + entries.closed == entries.places
    assert sum(entries.reasons.values()) == entries.ways[str(Way.INT3)] + entries.closed
    assert exits.what == "exits"
    assert exits.by_jump > 0


def test_a_process_and_its_file_are_alike(target: Callable) -> None:
    program = target("truth_holes")
    document = facts("coverage", HOLES, "--instructions", "50")

    of_process = facts("coverage", program.pid, "--instructions", "50")
    of_object = facts("coverage", program.pid, "--in", "truth_hol*", "--instructions", "50")

    shares = document["objects"][0]["shares"]
    assert [share["what"] for share in shares] == ["entries", "exits", "instructions"]
    assert shares[2]["places"] == 50
    for each in (of_process, of_object):
        assert [entry["shares"] for entry in each["objects"]] == [shares]


def test_all_instructions_are_more_than_some_and_nearly_all_take_a_jump() -> None:
    *_, every = markerjit.coverage_of_file(HOLES, instructions=None).shares
    reports: list[tuple[str, float]] = []

    *_, some = markerjit.coverage_of_file(
        HOLES, instructions=100, progress=lambda what, done: reports.append((what, done))
    ).shares

    assert every.places > some.places == 100
    assert {what for what, _ in reports} >= {"truth_holes, entries", "truth_holes, instructions"}
    assert all(0 <= done <= 1 for _, done in reports)


def test_functions_are_looked_at_once_for_a_build(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    looked: list[list[str]] = []

    def coverage() -> tuple[markerjit.Share, ...]:
        reports: list[str] = []
        looked.append(reports)
        return markerjit.coverage_of_file(
            HOLES, progress=lambda what, _: reports.append(what)
        ).shares

    first, again = coverage(), coverage()

    assert first == again
    assert ["truth_holes, exits" in reports for reports in looked] == [True, False]


def test_the_table_fits_a_terminal() -> None:
    shown = cli("coverage", HOLES, "--instructions", "50")

    lines = shown.stdout.splitlines()
    assert shown.returncode == 0
    assert lines[1].split() == ["OPENED", "BY", "ENTRIES", "EXITS", "INSTRUCTIONS"]
    assert all(len(line) <= 80 for line in lines[1:])
    assert "entries, no jump because:" in lines


def test_what_has_no_coverage_is_refused_in_one_line(target: Callable, tmp_path: Path) -> None:
    program = target("truth_holes")
    (tmp_path / "text").write_text("no program\n")

    one_line(cli("coverage", tmp_path / "text"), "text")
    one_line(cli("coverage", program.pid, "--in", "nothing*"), "no object matches 'nothing\\*'")
    assert cli("coverage", HOLES, "--instructions", "-1").returncode == 2
    assert cli("coverage", HOLES, "--instructions", "many").returncode == 2
