"""The parts of bench/real/: places in somebody else's source, its fetching, figures in percent."""

from __future__ import annotations

import os
import random
import re
import tarfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from real import comparing, markdown, measuring, page, patching, programs, running, sources
from real.patching import Mark
from rich.console import Console

from markerjit.apps.bench.dormant.forms import FORMS
from markerjit.apps.bench.sampling import results
from markerjit.apps.bench.sampling.form import AGAIN, BASELINE
from markerjit.apps.bench.sampling.shapes import VERSION, report
from markerjit.errors import MarkerError, Refused
from tests.support.programs import ROOT

SOURCE = """\
static int twice(int x);
static int other(int x) {
  log(x);
  return x;
}
static int twice(int x)
{
  log(x);
  if (x) {
    log(x + 1);
  }
  return x * 2;
}
"""
MARK = Mark("a.c", "static int twice(", "log(x);", 'REAL_MARK(seen, "x %d", x);')
BY_NAME = {form.name: form for form in FORMS}
RESULT = ROOT / "bench" / "results" / "real.json.gz"


def test_a_marker_stands_behind_its_line_in_its_function_alone() -> None:
    lines = patching.with_marks(SOURCE, [MARK]).splitlines()

    at = lines.index(MARK.line)
    assert lines[:at] + lines[at + 1 :] == SOURCE.splitlines()
    assert lines[at - 3 : at] == ["static int twice(int x)", "{", "  log(x);"]


def test_markers_do_not_move_each_other() -> None:
    second = MARK._replace(after="log(x + 1);", line="SECOND")
    third = MARK._replace(function="static int other(", line="THIRD")

    for marks in ([MARK, second, third], [third, second, MARK]):
        lines = patching.with_marks(SOURCE, marks).splitlines()
        assert [lines[lines.index(mark.line) - 1].strip() for mark in marks] == [
            mark.after for mark in marks
        ]


@pytest.mark.parametrize(
    ("mark", "words"),
    [
        (MARK._replace(after="gone();"), "'gone();' not where"),
        (MARK._replace(function="int gone("), "'int gone(' not where"),
        (MARK._replace(function="static int", after="log(x);"), "'static int' 2 times"),
    ],
)
def test_a_place_that_is_not_there_once_is_refused_and_nothing_is_written(
    tmp_path: Path, mark: Mark, words: str
) -> None:
    source = tmp_path / "a.c"
    source.write_text(SOURCE)

    with pytest.raises(Refused, match=re.escape(words)):
        patching.apply([MARK, mark], tmp_path)

    assert source.read_text() == SOURCE


def test_a_line_that_is_there_twice_is_refused() -> None:
    twice = SOURCE.replace("log(x + 1);", "log(x);")

    with pytest.raises(Refused, match="2 times"):
        patching.with_marks(twice, [MARK])


def test_a_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(Refused, match="cannot put markers into"):
        patching.apply([MARK], tmp_path)


def test_every_program_names_its_markers() -> None:
    for program in programs.PROGRAMS.values():
        assert all(name.startswith(program.name) for name in program.markers)
        active = [marker for work in program.workloads for marker in work.active]
        assert set(active) <= set(program.markers)


# ---- sources -------------------------------------------------------------------------------------


def test_lists_of_both_formats_become_lists_of_sources() -> None:
    assert sources.with_sources("Types: deb\nURIs: x\n") == "Types: deb-src\nURIs: x\n"
    assert sources.with_sources("Types: deb deb-src\n") == "Types: deb-src\n"
    assert (
        sources.with_sources("deb [a=b] x y z\ndeb-src x\n") == "deb-src [a=b] x y z\ndeb-src x\n"
    )


def test_without_apt_get_one_sentence_says_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))

    with pytest.raises(Refused, match=r"no apt-get here; .*apt-get source --download-only lua5.4"):
        sources.archive("lua5.4", tmp_path / "packages")


def test_what_apt_get_says_is_in_the_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake = tmp_path / "apt-get"
    fake.write_text("#!/bin/sh\necho 'W: hm' >&2\necho 'E: no network today' >&2\nexit 100\n")
    fake.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin:/usr/bin")

    with pytest.raises(Refused, match="cannot be had: no network today; where") as error:
        sources.archive("lua5.4", tmp_path / "packages", etc=tmp_path)

    assert "\n" not in str(error.value)


def test_a_network_that_never_answers_is_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake = tmp_path / "apt-get"
    fake.write_text("#!/bin/sh\nexec sleep 1000\n")
    fake.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin:/usr/bin")
    monkeypatch.setattr(sources, "_PATIENCE_S", 0.1)

    with pytest.raises(Refused, match=r"apt-get update does not end within 0\.1 s; where"):
        sources.archive("lua5.4", tmp_path / "packages", etc=tmp_path)


def test_an_archive_that_is_there_is_taken_and_unpacked_without_its_directory(
    tmp_path: Path,
) -> None:
    (tmp_path / "top" / "src").mkdir(parents=True)
    (tmp_path / "top" / "src" / "a.c").write_text(SOURCE)
    (tmp_path / "packages").mkdir()
    path = tmp_path / "packages" / "some_1.0.orig.tar.xz"
    with tarfile.open(path, "w:xz") as tar:
        tar.add(tmp_path / "top", "some-1.0")

    assert sources.archive("some", tmp_path / "packages") == path
    sources.unpack(path, tmp_path / "tree")

    assert (tmp_path / "tree" / "src" / "a.c").read_text() == SOURCE


# ---- programs ------------------------------------------------------------------------------------


@pytest.mark.parametrize(("mode", "error"), [(0o755, MarkerError), (0o644, OSError)])
def test_a_program_that_does_not_begin_leaves_nothing_open(
    tmp_path: Path, mode: int, error: type[Exception]
) -> None:
    path = tmp_path / "program"
    path.write_text("#!/bin/sh\nexit 3\n")
    path.chmod(mode)
    before = os.listdir("/proc/self/fd")

    with pytest.raises(error), running.started(path, ()):
        pass

    assert os.listdir("/proc/self/fd") == before


def test_a_program_that_goes_on_without_being_ready_is_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, pid = tmp_path / "program", tmp_path / "pid"
    path.write_text(
        f"#!/bin/sh\necho $$ > {pid}\necho no > /dev/fd/$REAL_REPORT\nexec sleep 1000\n"
    )
    path.chmod(0o755)
    monkeypatch.setattr(running, "_PATIENCE_S", 0.1)

    with pytest.raises(MarkerError, match="does not end"), running.started(path, ()):
        pass

    assert not Path("/proc", pid.read_text().strip()).exists()


# ---- figures -------------------------------------------------------------------------------------


def rounds(number: int = 12, **more: float) -> list[dict[str, list[float]]]:
    """Of two layouts, one slower than the other, in a machine that gets slower and slower."""
    parts = []
    for index in range(number):
        base = [0.2 * (1 + index / 10), 0.3 * (1 + index / 10)]
        uneven = 1 + 0.0005 * (-1) ** index
        parts.append({
            BASELINE: base, AGAIN: [each * uneven for each in base],
            **{name: [each * ratio * uneven for each in base] for name, ratio in more.items()},
        })  # fmt: skip
    return parts


def made(**more: float) -> dict[str, Any]:
    forms = [BY_NAME[name] for name in (BASELINE, AGAIN, *more)]
    return measuring.part("some work", forms, comparing.timed(forms, rounds(**more), 6),
                          {"passed": {"place": 1000}})  # fmt: skip


def test_a_cost_is_what_a_form_takes_more_in_the_same_round_in_percent() -> None:
    part = made(jump=1.02, nop=0.95)

    costs = {form["name"]: form["cost"]["value"] for form in part["forms"]}
    assert costs[BASELINE] == 0
    assert costs["jump"] == pytest.approx(2, abs=0.1)
    assert costs["nop"] == pytest.approx(-5, abs=0.1)
    assert np.shape(part["forms"][0]["seconds"]) == (2, 12)


def test_verdicts_are_in_percent() -> None:
    verdicts = {form["name"]: form["verdict"] for form in made(jump=1.02, nop=1.0001)["forms"]}

    assert re.fullmatch(r"2\.\d\d % more than no marker: \+.* … \+.* %", verdicts["jump"])
    assert verdicts["nop"].startswith("not distinguishable from no marker: ")
    assert not any(" ns" in verdict for verdict in verdicts.values())


def test_comparing_warms_up_runs_all_and_ends_when_it_is_narrow() -> None:
    forms = [BY_NAME[name] for name in (BASELINE, AGAIN, "jump")]
    ran: list[tuple[str, int]] = []

    def runner(name: str, layout: int) -> Any:
        def run() -> float:
            ran.append((name, layout))
            return 0.5 if name == "jump" else 0.4

        return run

    runs = {(form.name, layout): runner(form.name, layout) for form in forms for layout in (0, 1)}
    result = comparing.compare(forms, 2, runs, comparing.Limits(1e9), repeat=5)

    kept = result.seconds["jump"].shape[1]
    assert len(ran) == (1 + kept * 5) * len(runs)
    turns = [tuple(ran[at : at + len(runs)]) for at in range(0, len(ran), len(runs))]
    assert all(set(turn) == set(runs) for turn in turns)
    assert len(set(turns)) > 4  # in other orders
    assert result.comparison.cost("jump").value == pytest.approx(25)


class Clock:
    """Time that passes only where a test lets it pass."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 1000.0
        monkeypatch.setattr(time, "monotonic", lambda: self.now)

    def passing(self, seconds: float) -> float:
        """What a run takes, by the clock and of a CPU."""
        self.now += seconds
        return seconds


@pytest.mark.parametrize(
    ("seconds", "repeat", "rounds_kept"),
    [(1000, 6, 41), (90, 5, 4), (25, 1, 4), (1, 1, 4)],
    ids=["room for all", "room for less", "room for the least", "no room"],
)
def test_a_round_repeats_what_the_time_has_room_for(
    monkeypatch: pytest.MonkeyPatch, seconds: float, repeat: int, rounds_kept: int
) -> None:
    clock = Clock(monkeypatch)
    forms = [BY_NAME[name] for name in (BASELINE, AGAIN)]
    chance = random.Random(1)
    runs = {(form.name, 0): lambda: clock.passing(chance.uniform(2, 2.004)) for form in forms}

    result = comparing.compare(forms, 1, runs, comparing.Limits(seconds, half_width=0))

    assert (result.repeat, result.seconds[AGAIN].shape[1]) == (repeat, rounds_kept)
    least = 5 * 2 * 2.004
    assert clock.now - 1000 <= max(seconds, least)


def test_each_piece_has_its_share_of_what_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(monkeypatch)
    granted: list[float] = []
    shown: list[tuple[str, float]] = []

    def measure(seconds: float, progress: Callable[[float], None]) -> results.Measured:
        granted.append(seconds)
        progress(0.5)
        clock.passing(40 if len(granted) == 1 else seconds)
        return results.Measured([{"number": len(granted)}], [], [])

    pieces = [measuring.Piece(name, share, measure)
              for name, share in (("a", 0.2), ("b", 0.2), ("c", 0.6))]  # fmt: skip
    measured, interrupted = measuring.run_pieces(pieces, 100, lambda *what: shown.append(what))

    assert granted == pytest.approx([20, 15, 45])
    assert ([part["number"] for part in measured.parts], interrupted) == ([1, 2, 3], None)
    assert shown[:3] == [("1 of 3, a", 0), ("1 of 3, a", 0.5), ("2 of 3, b", 0)]


@pytest.mark.parametrize("at", [0, 1])
def test_an_interrupted_run_has_the_comparisons_that_were_complete(at: int) -> None:
    def measure(number: int, *_: Any) -> results.Measured:
        if number == at:
            raise KeyboardInterrupt
        return results.Measured([{"number": number}], [], [])

    pieces = [measuring.Piece("x", 0.5, partial(measure, number)) for number in (0, 1)]
    if at == 0:
        with pytest.raises(KeyboardInterrupt):
            measuring.run_pieces(pieces, 1, lambda *_: None)
    else:
        measured, interrupted = measuring.run_pieces(pieces, 1, lambda *_: None)
        assert [part["number"] for part in measured.parts] == [0]
        assert isinstance(interrupted, KeyboardInterrupt)


def run_of(*parts: dict[str, Any]) -> dict[str, Any]:
    return {
        "version": VERSION, "parts": list(parts),
        "missing": [{"form": "USDT", "why": "<not> here"}],
        "machine": {"processor": "some", "compilers": {"gcc": ["gcc 12", "-O2"]}},
    }  # fmt: skip


def test_a_run_is_one_that_markerjit_bench_reads(tmp_path: Path) -> None:
    results.write(run_of(made(jump=1.02)), tmp_path / "run.json")

    summary = report(results.read(tmp_path / "run.json"))

    (part,) = summary.parts
    assert (part.kind, part.unit) == ("program", "%")
    assert part.form("jump") and part.differs(part.form("jump"))  # type: ignore[arg-type]


def test_the_page_shows_each_form_and_escapes() -> None:
    text = page.page(run_of(made(jump=1.02, nop=1.0001), made(jump=12.0)))

    assert text.count("<svg") == 2
    assert "&lt;not&gt; here" in text and "<not>" not in text
    assert "10 ×" in text  # the second one is logarithmic
    assert text.count("2.00 % more than no marker:") == 1


def test_the_table_shows_each_form() -> None:
    from real import table

    console = Console(width=110, record=True, quiet=True)
    part = made(jump=1.02)
    part["forms"][0]["instructions"], part["forms"][2]["instructions"] = 1000, 1010
    console.quiet = False
    with console.capture() as shown:
        table.show(run_of(part), console)

    assert re.search(r"jump .*\+2\.00.*yes.*\+1\.00", shown.get())


def test_nonsense_is_refused_in_a_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from real.__main__ import main

    (tmp_path / "there").write_text("mine")
    for words, sentence in (
        (["nothing"], "nothing is no program of this bench; take lua or sqlite"),
        (["--json", str(tmp_path / "there")], "exists already"),
        (["--html", str(tmp_path / "no" / "x.html")], "no such directory"),
        (["--json", str(tmp_path / "x"), "--html", str(tmp_path / "x")], "would be written twice"),
    ):
        assert main(words) == 1
        (line,) = capsys.readouterr().err.splitlines()
        assert line.startswith("bench/real: ") and sentence in line


# ---- the published run ---------------------------------------------------------------------------


def test_the_published_figures_are_those_of_the_file() -> None:
    text = (ROOT / "docs" / "results" / "real.md").read_text()
    run = results.read(RESULT)
    tables = markdown.tables(run)

    assert {part.kind for part in report(run).parts} == {"program"}
    assert tables in text
    prose = text.replace(tables, "")
    figures = set(re.findall(r"[+-]?\d+\.\d+(?= ?%)", prose))
    assert figures and all(f"{figure} " in tables or f"{figure})" in tables for figure in figures)
