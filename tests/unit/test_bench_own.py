"""Somebody's own source in the bench: what its function may do, and what is said of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import numpy as np
import pytest

from markerjit import NoMarkers, list_file
from markerjit.apps.bench.dormant import own
from markerjit.apps.bench.sampling.build import Object
from markerjit.apps.bench.sampling.code import look_at
from markerjit.apps.bench.sampling.compare import SLICE_NS, Comparison, Limits, compare
from markerjit.apps.bench.sampling.core import Taken
from markerjit.apps.bench.sampling.form import BASELINE, CALL
from markerjit.apps.bench.sampling.place import Place
from markerjit.apps.bench.sampling.plan import Plan
from markerjit.apps.bench.sampling.runner import Runner
from markerjit.errors import MarkerError, Refused
from tests.support.programs import ROOT, make

SOURCES = ROOT / "native" / "bench"


@pytest.fixture
def place(tmp_path: Path) -> Place:
    make("native")
    programs = ROOT / "markerjit" / "_native" / "bench"
    (tmp_path / "objects").mkdir()
    return Place(SOURCES, ROOT / "native" / "include", programs, tmp_path / "objects", "gcc", 0)


def built(code: str, place: Place, tmp_path: Path, *names: str) -> list[Path]:
    """The function `work` of a source, in these forms."""
    source = tmp_path / "my.c"
    source.write_text(code)
    forms = [form for form in own.FORMS if form.name in names]
    return [program.path for program in own.objects(source, "work", forms, place, 1)]


@contextmanager
def runs(code: str, place: Place, tmp_path: Path) -> Iterator[Runner]:
    """Its number 0 is the function `work` of a source, without a marker."""
    paths = built(code, place, tmp_path, BASELINE)
    with closing(Runner(place.runner, paths, cpu=0)) as runner:
        yield runner


@pytest.mark.parametrize(
    "does",
    [
        'puts("ran 7 7 7")',
        'printf("ran 7 7 7\\n"); fflush(stdout)',
        "getchar()",
        'fputs("a line on standard error\\n", stderr)',
    ],
)
def test_what_a_function_prints_or_reads_is_not_the_benchs(
    does: str, place: Place, tmp_path: Path
) -> None:
    with runs(f"#include <stdio.h>\nvoid work(void) {{ {does}; }}\n", place, tmp_path) as runner:
        took = [runner.run(0, 10_000, 2) for _ in range(3)]

    assert [len(times) for times in took] == [2, 2, 2]
    assert all(run.ns > 1000 and 50 < run.share <= 1000 for times in took for run in times)


def test_a_function_that_crashes_is_named_with_its_signal(place: Place, tmp_path: Path) -> None:
    code = "#include <stdlib.h>\nvoid work(void) { abort(); }\n"

    with runs(code, place, tmp_path) as runner, pytest.raises(MarkerError, match="SIGABRT"):
        runner.run(0, 1)


@pytest.mark.parametrize("compiler", ["gcc", "clang"])
@pytest.mark.parametrize(
    "does", ["", 'MARK(mine, "n %d", 1);'], ids=["nothing", "a marker and nothing else"]
)
def test_what_compiles_to_nothing_still_takes_its_rounds(
    compiler: str, does: str, place: Place, tmp_path: Path, needs_tool: Callable[..., None]
) -> None:
    needs_tool(compiler, compiler)
    code = f"#include <markerjit/marker.h>\nstatic void work(void) {{ {does} }}\n"

    with runs(code, place._replace(compiler=compiler), tmp_path) as runner:
        few, many = (min(runner.run(0, times, 3)).ns for times in (100_000, 10_000_000))

    assert many > 10 * few


@pytest.mark.parametrize("compiler", ["gcc", "clang"])
def test_the_control_is_the_unmarked_function_and_a_call(
    compiler: str, place: Place, tmp_path: Path, needs_tool: Callable[..., None]
) -> None:
    needs_tool(compiler, compiler)
    needs_tool("valgrind", "valgrind")
    code = '#include <markerjit/marker.h>\nvoid work(void) { MARK(mine, "n %d", 1); }\n'

    paths = built(code, place._replace(compiler=compiler), tmp_path, BASELINE, CALL)
    bare, control = (look_at(path, place.runner) for path in paths)

    assert bare.instructions and control.instructions
    assert control.instructions - bare.instructions == pytest.approx(2, abs=0.1), "call and ret"
    with pytest.raises(NoMarkers):
        list_file(paths[1])


@pytest.mark.parametrize(("call", "says"), [(2.0, "0.50 ns more"), (0.0, "a call does not show")])
def test_nothing_is_said_where_the_control_does_not_stand_out(
    call: float, says: str, place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = tmp_path / "my.c"
    source.write_text("void work(void) {}\n")
    base = np.full((2, 30), 3.0)
    more = {"jump": 0.5, CALL: call}
    samples = {form.name: base + more.get(form.name, 0) for form in own.FORMS}
    comparison = Comparison(samples, dict.fromkeys(samples, BASELINE), 1)
    monkeypatch.setattr(own, "compare_objects", lambda *_: comparison)
    monkeypatch.setattr(own, "code_of", lambda *_: {})

    (part,) = own.measure(
        Plan(0.0, layouts=1, source=source, function="work"), place, lambda what, done: None
    ).parts

    (jump,) = (form for form in part["forms"] if form["name"] == "jump")
    assert says in jump["verdict"]


class FakeRunner(Runner):
    """Takes so many ns for a round, and counts them."""

    def __init__(self, cost: float) -> None:
        self.cost = cost
        self.rounds: list[int] = []

    def run(self, index: int, times: int, repeat: int = 1) -> list[Taken]:
        self.rounds += [times // 10 + 1, *[times] * repeat]
        return [Taken(50 + int(self.cost * times), 100)] * repeat


OBJECTS = [Object(form, 0, Path()) for form in own.FORMS[:2]]


def test_a_loop_that_takes_no_time_is_refused_in_a_sentence() -> None:
    with pytest.raises(Refused, match=r"takes no time: is it optimised away\?"):
        compare(OBJECTS, FakeRunner(0.0), Limits(0.0))


@pytest.mark.parametrize("cost", [0.2, 30.0, 5_000.0])
def test_a_loop_runs_for_about_a_slice(cost: float) -> None:
    comparison = compare(OBJECTS, FakeRunner(cost), Limits(0.0))

    assert comparison.executions * cost == pytest.approx(SLICE_NS, rel=0.1)


def test_what_is_slow_runs_no_more_often_than_its_samples_need() -> None:
    runner = FakeRunner(10e6)

    comparison = compare(OBJECTS, runner, Limits(0.0))

    each = 4  # one to warm up, and three of which the least counts
    assert comparison.executions == 1
    assert sum(runner.rounds) == each + 12 * len(OBJECTS) * each
