"""Instructions that valgrind counts, or does not: then a run goes on, and says why they are not
there."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from real import counting, measuring, programs

from markerjit.apps.bench.dormant import measure as dormant
from markerjit.apps.bench.dormant.forms import FORMS
from markerjit.apps.bench.dormant.measure import hot_objects
from markerjit.apps.bench.sampling import code
from markerjit.apps.bench.sampling.code import NotCounted, look_at, look_at_all, rounds_to_count
from markerjit.apps.bench.sampling.place import Place
from markerjit.apps.bench.sampling.plan import Plan
from tests.support.programs import ROOT, make

SOURCES = ROOT / "native" / "bench"
WORK = programs.Workload("work", (), ())


@pytest.fixture
def place(tmp_path: Path) -> Place:
    make("native")
    programs = ROOT / "markerjit" / "_native" / "bench"
    return Place(SOURCES, ROOT / "native" / "include", programs, tmp_path, "gcc", 0)


@pytest.fixture(params=["exit 1", "exit 0", "kill -ILL $$", "is not here"])
def broken(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A valgrind that does not count, and what is said of it."""
    if request.param == "is not here":
        monkeypatch.setattr(code.shutil, "which", lambda name: None)
        return "valgrind is not here; apt-get install valgrind"
    script = tmp_path / "valgrind"
    script.write_text(f"#!/bin/sh\necho 'no ld.so' >&2\n{request.param}\n")
    script.chmod(0o755)
    monkeypatch.setattr(code, "valgrind", lambda: str(script))
    monkeypatch.setattr(counting, "valgrind", lambda: str(script))
    return "valgrind"


def test_a_form_is_measured_without_its_instructions(broken: str, place: Place) -> None:
    plan = Plan(0.0, layouts=1)
    progress: Callable[[str, float], None] = lambda what, done: None  # noqa: E731

    measured = dormant._hot(2, False, plan, FORMS[:2], place, progress)

    (part,) = measured.parts
    assert [form["instructions"] for form in part["forms"]] == [None, None]
    assert all(form["assembly"] for form in part["forms"])
    (missing,) = measured.missing
    assert missing.form.name == "instructions"
    assert broken in missing.why


def test_a_program_is_measured_without_its_instructions(broken: str, tmp_path: Path) -> None:
    built = measuring.Built(programs.PROGRAMS["lua"], [], {"x": [tmp_path / "x"]}, tmp_path, [])
    forms = [{"name": "x"}]

    (missing,) = measuring.count(forms, built, WORK)

    assert forms == [{"name": "x"}]
    assert missing.form.name == "instructions"
    assert broken in missing.why


def test_what_is_slow_is_counted_in_fewer_rounds_or_not_at_all() -> None:
    assert rounds_to_count(0.3) == rounds_to_count(5_000) == 2000
    assert rounds_to_count(100_000) == 100
    assert rounds_to_count(10e6) == 0


def test_few_rounds_give_the_same_count_as_many(
    place: Place, tmp_path: Path, needs_tool: Callable[..., None]
) -> None:
    needs_tool("valgrind", "valgrind")
    (program,) = hot_objects(FORMS[:1], 2, False, 1, place, tmp_path)

    few, many = (look_at(program.path, place.runner, rounds) for rounds in (20, 2000))

    assert few.hot == many.hot
    assert few.instructions == pytest.approx(many.instructions, rel=0.05)
    with pytest.raises(NotCounted, match="too long"):
        code._counts([program.path], place.runner, 0)


def test_objects_counted_in_one_process_have_the_counts_of_each_alone(
    place: Place, tmp_path: Path, needs_tool: Callable[..., None]
) -> None:
    needs_tool("valgrind", "valgrind")
    objects = hot_objects([FORMS[0], FORMS[2], FORMS[6]], 2, False, 1, place, tmp_path)
    paths = [each.path for each in objects]

    together = look_at_all(paths, place.runner)

    assert together == [look_at(path, place.runner) for path in paths]
    assert len({each.instructions for each in together}) == 3


def test_one_that_cannot_be_counted_costs_the_others_no_count(
    place: Place, tmp_path: Path, needs_tool: Callable[..., None]
) -> None:
    """It has the loop, but takes another processor than valgrind's."""
    needs_tool("valgrind", "valgrind")
    (good,) = hot_objects(FORMS[:1], 2, False, 1, place, tmp_path)
    source = tmp_path / "bad.c"
    source.write_text('void run(void) { __asm__ volatile("ud2"); }\n')
    bad = tmp_path / "bad.so"
    subprocess.run(["gcc", "-shared", "-fPIC", "-o", bad, source], check=True)

    counted, uncounted = look_at_all([good.path, bad], place.runner)

    assert counted == look_at(good.path, place.runner) and counted.instructions
    assert uncounted.instructions is None and "valgrind" in uncounted.uncounted
