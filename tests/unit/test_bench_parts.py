"""The parts of `markerjit bench`: what is built is what is meant; files have to be whole."""

from __future__ import annotations

import io
import json
import os
import subprocess
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.console import Console

from markerjit.apps.bench import brief, table
from markerjit.apps.bench.dormant import check, controls, large
from markerjit.apps.bench.dormant.forms import FORMS
from markerjit.apps.bench.sampling import results
from markerjit.apps.bench.sampling.build import Object, build, skips, why_missing
from markerjit.apps.bench.sampling.code import look_at
from markerjit.apps.bench.sampling.compare import Comparison, Limits, compare
from markerjit.apps.bench.sampling.form import AGAIN, BASELINE, CALL, Form
from markerjit.apps.bench.sampling.place import Place
from markerjit.apps.bench.sampling.runner import Runner
from markerjit.errors import MarkerError, Refused
from tests.support.programs import ROOT, make

SOURCES = ROOT / "native" / "bench"
INCLUDE = [ROOT / "native" / "include", SOURCES / "dormant"]
STRICT = ["-Wall", "-Wextra", "-Werror"]
CPU = min(os.sched_getaffinity(0))
BY_NAME = {form.name: form for form in FORMS}

every_form = pytest.mark.parametrize("form", FORMS, ids=lambda form: form.name)


@pytest.fixture(scope="module")
def programs() -> Path:
    make("native")
    return ROOT / "markerjit" / "_native" / "bench"


@pytest.fixture(scope="module")
def runner(programs: Path) -> Path:
    return programs / "dormant" / "runner"


def hot(
    form: Form,
    directory: Path,
    *flags: str,
    args: int = 2,
    computed: int = 0,
    layout: int = 0,
    skip: int = 16,
) -> Object:
    if why := why_missing(form, "gcc", INCLUDE):
        pytest.skip(why)
    return build(
        SOURCES / "dormant" / "hot.c", form, layout, skip,
        [f"-DBENCH_ARGS={args}", f"-DBENCH_COMPUTED={computed}", *flags],
        directory=directory, chosen="gcc", include=INCLUDE,
    )  # fmt: skip


@pytest.mark.product
@every_form
@pytest.mark.parametrize("args", [1, 2, 4, 8])
@pytest.mark.parametrize("computed", [0, 1])
def test_every_form_compiles_without_a_warning(
    tmp_path: Path, form: Form, args: int, computed: int
) -> None:
    strict = [] if form.needs else STRICT  # who wrote that header is not asked
    hot(form, tmp_path, *strict, args=args, computed=computed)


def test_a_form_whose_tool_is_missing_is_named_with_its_package() -> None:
    form = Form("x", (), "", compiler="no-such-cc", package="nothing")

    assert why_missing(form, "gcc", INCLUDE) == "no-such-cc is not here; apt-get install nothing"
    form = Form("x", (), "", needs="no/such.h", package="nothing")
    assert why_missing(form, "gcc", INCLUDE) == "<no/such.h> is not here; apt-get install nothing"


def test_layouts_are_places_of_their_own() -> None:
    assert len(set(skips(8))) == 8
    assert all(0 < skip < 4096 and skip % 16 == 0 for skip in skips(8))


def test_instructions_and_bytes_are_those_that_run(
    runner: Path, tmp_path: Path, needs_tool: Callable[..., None]
) -> None:
    needs_tool("valgrind", "valgrind")
    code = {
        name: look_at(hot(BY_NAME[name], tmp_path).path, runner)
        for name in (BASELINE, AGAIN, "jump", "nop", "pointer", CALL, "5-byte no-op")
    }
    base = code[BASELINE]

    assert (code[AGAIN].instructions, code[AGAIN].hot_bytes) == (base.instructions, base.hot_bytes)
    assert base.instructions
    assert base.instructions < code["nop"].instructions < code["pointer"].instructions
    assert code["pointer"].instructions < code[CALL].instructions
    assert (base.data_bytes, code["jump"].data_bytes, code["pointer"].data_bytes) == (0, 0, 8)
    hot_lines = [line.text for line in code["jump"].hot if line.code[:1] == b"\xeb"]
    assert len(hot_lines) == 1, "the jump of a dormant site is taken, what it skips is not"


@pytest.mark.parametrize("name", ["pointer", "LTTng-UST"])
def test_many_sites_are_all_visited_each_with_a_word_of_its_own(
    name: str,
    programs: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    needs_tool: Callable[..., None],
) -> None:
    needs_tool("valgrind", "valgrind")
    monkeypatch.setattr(large, "FUNCTIONS", 13)
    place = Place(SOURCES, INCLUDE[0], programs, tmp_path, "gcc", CPU)
    form = BY_NAME[name]
    if why := why_missing(form, "gcc", INCLUDE):
        pytest.skip(why)
    part = large.compile_part(form, place, tmp_path)

    copies = large.copy(part, 3)
    first, other = (large.link(copies, layout, place) for layout in range(2))

    visited = look_at(first.path, place.runner).hot
    assert visited is not None
    words = {line.reads for line in visited if line.reads}
    assert len(words) == 39
    assert first.path.read_bytes() != other.path.read_bytes()


def test_the_known_costs_are_compared_with_what_ten_more_cost() -> None:
    def comparison(per_addition: float, of_one: float) -> Comparison:
        base = np.full((2, 30), 3.0)
        more = {f"{n} more": base + n * of_one for n in controls.MORE}
        samples = {controls.BASELINE: base, controls.AGAIN: base, **more}
        samples["10 more"] = base + 10 * per_addition
        return Comparison(samples, dict.fromkeys(samples, controls.BASELINE), 1)

    assert all(addition["found"] for addition in controls.check(comparison(0.33, 0.33)))
    assert not any(addition["found"] for addition in controls.check(comparison(0.33, 0.4)))


def test_a_comparison_runs_every_form_in_every_layout(runner: Path, tmp_path: Path) -> None:
    objects = [
        hot(BY_NAME[name], tmp_path, layout=layout, skip=skip)
        for name in (BASELINE, AGAIN, CALL)
        for layout, skip in enumerate(skips(2))
    ]
    done = []
    with closing(Runner(runner, [program.path for program in objects], cpu=CPU)) as running:
        comparison = compare(objects, running, Limits(0.0), progress=done.append)

    assert {name: sample.shape for name, sample in comparison.samples.items()} == dict.fromkeys(
        (BASELINE, AGAIN, CALL), (2, 12)
    )
    for name, times in comparison.samples.items():
        others = comparison.others.get(name, np.full_like(times, np.nan))
        assert ((times > 0) ^ (others > 0)).all(), "each run has its time, alone or shared"
    assert done[-1] == 1.0


def test_a_runner_that_cannot_load_an_object_says_which(runner: Path, tmp_path: Path) -> None:
    with pytest.raises(MarkerError, match="no-such"):
        Runner(runner, [tmp_path / "no-such.so"], cpu=CPU)


# ---- results -------------------------------------------------------------------------------------


def made_run(cost: float = 0.3) -> dict[str, Any]:
    base = np.full((2, 30), 1.0)
    costs = {BASELINE: 0, AGAIN: 0, "jump": cost, CALL: 0.9}
    samples = {name: base + more for name, more in costs.items()}
    comparison = Comparison(samples, dict.fromkeys(samples, BASELINE), 100)
    part = results.part("hot", "a loop", {"args": 2, "computed": False}, comparison, FORMS, {})
    machine = {
        "processor": "p", "family": "6", "cpus": 2, "virtual machine": "no", "governor": "g",
        "kernel": "k", "compilers": {"gcc": ["gcc 12", "-O2"]},
    }  # fmt: skip
    return results.whole(machine, results.Measured([part], [], []))


def shown(show: Callable[[Console], None]) -> str:
    text = io.StringIO()
    show(Console(file=text, width=120))
    return text.getvalue()


def test_a_run_is_read_as_it_was_written(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    for kept in (path, path.with_suffix(".json.gz")):
        results.write(made_run(), kept)

        assert results.read(kept) == made_run()
    assert path.with_suffix(".json.gz").stat().st_size < path.stat().st_size


@pytest.mark.parametrize("data", [b"{}", b"\x1f\x8b", b"\x1f\x8b\x08\0\0\0\0\0\0\3abc"])
def test_what_is_not_compressed_is_refused(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "a.json.gz"
    path.write_bytes(data)

    with pytest.raises(Refused, match=r"a\.json\.gz"):
        results.read(path)


@pytest.mark.parametrize(
    "text",
    ["", "[]", "{}", '{"version": 2}', '{"version": 2, "parts": [{"forms": [{}]}]}', "[" * 9999],
)
def test_what_is_no_result_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "a.json"
    path.write_text(text)

    with pytest.raises(Refused, match=r"a\.json is not a result"):
        results.read(path)


def test_a_result_of_another_version_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_text(json.dumps(made_run() | {"version": 99}))

    with pytest.raises(Refused, match="another version"):
        results.read(path)


def test_the_table_says_what_differs(tmp_path: Path) -> None:
    text = shown(lambda console: table.show(made_run(), console))

    (jump,) = (line for line in text.splitlines() if "jump" in line)
    (again,) = (line for line in text.splitlines() if AGAIN in line)
    assert "+0.30" in jump
    assert "yes" in jump
    assert "no " in again.rpartition("again")[2]


@pytest.mark.parametrize(
    ("after", "word"), [(0.3, "not distinguishable"), (0.5, "more expensive"), (0.1, "cheaper")]
)
def test_two_runs_are_compared_by_their_intervals(after: float, word: str) -> None:
    text = shown(lambda console: table.show_comparison(made_run(), made_run(after), console))

    (jump,) = (line for line in text.splitlines() if "jump" in line)
    assert word in jump


def test_two_noisy_runs_are_not_compared() -> None:
    noisy = made_run(0.5)
    noisy["parts"][0]["noisy"] = "no verdict"
    text = shown(lambda console: table.show_comparison(made_run(), noisy, console))

    (jump,) = (line for line in text.splitlines() if "jump" in line)
    assert "no verdict" in jump


def test_less_than_the_noise_floor_is_no_change() -> None:
    after = made_run(0.5)
    after["parts"][0]["floor"] = 0.25
    text = shown(lambda console: table.show_comparison(made_run(), after, console))

    (jump,) = (line for line in text.splitlines() if "jump" in line)
    assert "not distinguishable" in jump


def checked(same: int, *, missed: int = 0, noisy: str = "") -> dict[str, Any]:
    verdicts = ["not distinguishable from x"] * same + ["0.1 ns more than x"] * (20 - same)
    forms = [{"name": f"the same, {n}", "verdict": verdict} for n, verdict in enumerate(verdicts)]
    known = [{"more": n, "found": n != missed} for n in (1, 2, 5)]
    part = {"kind": "control", "title": "a loop", "noisy": noisy, "forms": forms, "known": known}
    return {"parts": [part]}


@pytest.mark.parametrize(
    ("run", "sentences"),
    [
        (checked(20), []),
        (checked(19), []),
        (checked(18), ["2 of 20 times the same code seemed to differ from itself"]),
        (checked(20, missed=2), ["the cost of 2 more additions was not found"]),
        (checked(20, noisy="no verdict"), ["a loop: no verdict"]),
    ],
)
def test_a_bench_that_is_wrong_is_not_to_be_believed(
    run: dict[str, Any], sentences: list[str]
) -> None:
    assert list(check.failures(run)) == sentences


def test_the_same_elsewhere_is_at_other_places() -> None:
    places = [tuple(skips(8, elsewhere)) for elsewhere in range(11)]

    assert len(set(places)) == 11
    assert all(place % 16 == 0 and 0 < place < 4096 for each in places for place in each)


def test_the_sources_are_part_of_the_package(programs: Path, runner: Path) -> None:
    paths = {str(path.relative_to(programs)) for path in programs.glob("*/*")}
    sources = {str(path.relative_to(SOURCES)) for path in SOURCES.glob("*/*")}

    loops = {f"brief/{each.path.name}" for each in brief.objects()}

    built = {"dormant/runner", "active/crew", "active/tracer", "reading/fill"} | loops
    assert paths == sources | built
    assert subprocess.run([runner], check=False).returncode == 2
