"""The parts of `markerjit bench toggle`: what is built, what is told, what is said of it."""

from __future__ import annotations

import copy
import io
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from markerjit.apps.bench import html, table
from markerjit.apps.bench.sampling import results, shapes
from markerjit.apps.bench.sampling.figures import TIME, time_text
from markerjit.apps.bench.sampling.place import Place
from markerjit.apps.bench.sampling.statistics import Estimate, verdict
from markerjit.apps.bench.toggle import command, crowd, enough, measure, plots, program, rounds
from markerjit.apps.bench.toggle.parts import KIND, parts, whats
from markerjit.apps.bench.toggle.rounds import CALL, COMMAND, HELD, SLOWEST, STOPPED, Raw, Setting
from markerjit.apps.bench.toggle.series import all_series
from markerjit.apps.bench.toggle.state import bytes_that_differ
from markerjit.apps.bench.toggle.ways import ASLEEP, BUSY, QUIET, QUIET_AGAIN, WAYS, form_name
from markerjit.errors import Refused
from tests.support.programs import ROOT, make

SMALL = Setting(1, 1, BUSY)


# ---- the program ---------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Place:
    make("native")
    native = ROOT / "markerjit" / "_native"
    directory = tmp_path_factory.mktemp("toggle")
    return Place(native / "bench", native / "include", native / "bench", directory, "gcc", 0)


@pytest.fixture(scope="module")
def built(place: Place) -> program.Program:
    """Two whole parts, and a rest."""
    return program.build(2 * program.PART + 3, "jump", place, place.directory)


@pytest.fixture(params=[1, 3])
def running(built: program.Program, request: pytest.FixtureRequest) -> Iterator[crowd.Crowd]:
    with crowd.start(built.program, request.param, BUSY) as made:
        yield made


def wait_until(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline, f"waited a minute for {what}"
        time.sleep(0.001)


def tasks(pid: int) -> list[Path]:
    """All but the first, which answers."""
    return [task for task in Path(f"/proc/{pid}/task").iterdir() if task.name != str(pid)]


def wait_until_all_sleep(pid: int) -> None:
    """Two looks in a row: in one, a task may sleep for a lock that the next one still has."""

    def asleep() -> bool:
        states = [(task / "stat").read_text().rpartition(")")[2].split()[0] for task in tasks(pid)]
        return set(states) == {"S"}

    wait_until(lambda: asleep() and asleep(), "all threads to sleep")


def test_the_program_has_no_warning() -> None:
    subprocess.run(
        ["gcc", "-Wall", "-Wextra", "-Werror", "-O2", "-fPIC", "-c", "-o", "/dev/null",
         f"-I{ROOT / 'native/include'}", "-DTOGGLE_PART=200",
         ROOT / "native/bench/toggle/toggle.c"],
        check=True,
    )  # fmt: skip


def test_a_program_has_as_many_sites_as_asked_for(running: crowd.Crowd) -> None:
    assert running.walk() == crowd.Walk(2 * program.PART + 3, wrong=0, hits=0)


def test_the_same_build_has_the_same_build_id(place: Place, tmp_path: Path) -> None:
    ids = set()
    for name in ("a", "b"):
        directory = tmp_path / name
        directory.mkdir()
        made = program.build(2, "jump", place._replace(directory=directory), directory)
        notes = subprocess.run(["readelf", "-n", made.program], capture_output=True, text=True,
                               check=True).stdout  # fmt: skip
        ids.add(notes.partition("Build ID: ")[2].split("\n")[0])

    assert len(ids) == 1
    assert ids != {""}


def test_threads_tell_what_they_did_while_they_ran_and_nothing_at_rest(
    running: crowd.Crowd,
) -> None:
    running.go()
    wait_until(lambda: running.noticed().steps >= 1000, "steps")
    running.rest()
    noticed = running.noticed()
    running.clear()

    assert noticed.steps == noticed.counts.total()
    assert noticed.wrong == 0
    assert 0 < crowd.percentile(noticed.counts, 0.5) <= noticed.slowest
    assert crowd.bucket_ns(max(noticed.counts)) <= noticed.slowest
    assert running.noticed() == crowd.Noticed(0, 0, 0, 0, Counter())


def test_the_library_switches_every_site(running: crowd.Crowd) -> None:
    assert running.ask("on").startswith("error=0 ")
    on = running.walk()
    assert running.ask("off").startswith("error=0 ")

    assert on.hits == on.sites == 2 * program.PART + 3
    assert running.walk().hits == 0


def test_one_runs_where_the_others_sleep(built: program.Program) -> None:
    def on_cpu(pid: int) -> list[int]:
        return [int((task / "schedstat").read_text().split()[0]) for task in tasks(pid)]

    with crowd.start(built.program, 3, ASLEEP) as made:
        wait_until_all_sleep(made.pid)
        before = on_cpu(made.pid)
        made.go()
        wait_until(lambda: made.noticed().steps >= 1000, "steps")
        made.rest()
        wait_until_all_sleep(made.pid)
        after = on_cpu(made.pid)

    assert len(after) == 3
    assert sum(old != new for old, new in zip(before, after, strict=True)) == 1


def test_who_is_about_to_leave_when_the_gate_closes_stays_at_it(
    place: Place, tmp_path: Path
) -> None:
    (tmp_path / "late.h").write_text(  # leaves only when the gate is closed again
        "#include <stdatomic.h>\n#undef atomic_fetch_sub\n#define atomic_fetch_sub(of, by) "
        "({ while (!atomic_load(&closed)) {} __atomic_fetch_sub(of, by, __ATOMIC_SEQ_CST); })\n"
    )
    compiler = tmp_path / "late-gcc"
    compiler.write_text(f'#!/bin/sh\nexec gcc -include {tmp_path / "late.h"} "$@"\n')
    compiler.chmod(0o755)
    slow = place._replace(compiler=str(compiler), directory=tmp_path)
    late = program.build(3, "jump", slow, tmp_path).program

    with crowd.start(late, 1, BUSY) as made:
        made.go()
        made.rest()
        wait_until_all_sleep(made.pid)

        assert made.noticed().steps == 0


def test_what_cannot_begin_says_why(built: program.Program) -> None:
    with pytest.raises(crowd.CannotStart, match="code 2"):
        crowd.start(built.program, 5000, BUSY)


# ---- figures -------------------------------------------------------------------------------------


@given(st.integers(0, 2**40))
def test_a_bucket_begins_at_most_an_eighth_below_its_values(ns: int) -> None:
    if ns < 8:
        bucket = ns
    else:  # as toggle.c puts it
        power = ns.bit_length() - 1
        bucket = ((power - 2) << 3) + (ns >> (power - 3)) - 8
    begin = crowd.bucket_ns(bucket)

    assert begin <= ns < crowd.bucket_ns(bucket + 1)
    assert ns - begin <= ns / 8


def test_percentiles_are_of_steps() -> None:
    counts = Counter({8: 90, 80: 9, 160: 1})

    assert crowd.percentile(counts, 0.5) == crowd.bucket_ns(8)
    assert crowd.percentile(counts, 0.95) == crowd.bucket_ns(80)
    assert crowd.percentile(counts, 1) == crowd.bucket_ns(160)
    assert crowd.percentile(Counter(), 0.5) == 0


def test_each_axis_is_varied_where_the_other_is_least() -> None:
    settings = list(measure.settings_of([1, 1000], [1, 8]))

    assert settings == [
        Setting(1, 1, BUSY), Setting(1000, 1, BUSY), Setting(1, 8, BUSY), Setting(1, 8, ASLEEP),
    ]  # fmt: skip
    assert len(set(measure.settings_of([5], [8, 64]))) == 4, "8 busy, 8 asleep, 64 busy, 64 asleep"


def test_there_is_enough_after_the_time_and_some_rounds() -> None:
    assert not enough.is_over(enough.FEWEST, 9, 10)
    assert not enough.is_over(enough.FEWEST - 1, 11, 10)
    assert enough.is_over(enough.FEWEST, 11, 10)
    assert enough.is_over(enough.LEAST, 10 * enough.PATIENCE + 1, 10)


def test_bytes_that_differ_are_counted() -> None:
    assert bytes_that_differ(b"abcd", b"abcd") == 0
    assert bytes_that_differ(b"abcd", b"xbcx") == 2


def test_samples_have_as_many_rounds_in_each_process() -> None:
    first = {(CALL, "a"): [1.0, 2.0, 3.0], (CALL, "b"): [1.0, 2.0, 3.0], (HELD, "a"): [1.0]}
    second = {(CALL, "a"): [4.0, 5.0], (CALL, "b"): [4.0, 5.0]}

    samples = rounds.as_samples([first, second])

    assert samples.keys() == {CALL}
    assert samples[CALL]["a"].tolist() == [[1, 2], [4, 5]]


@pytest.mark.parametrize(
    ("ns", "text"),
    [(0, "0 ns"), (12, "12 ns"), (999.7, "1.00 µs"), (1234, "1.23 µs"), (45_600, "45.6 µs"),
     (789_000, "789 µs"), (1.5e6, "1.50 ms"), (2e9, "2.00 s"), (-3.2e6, "−3.20 ms")],
)  # fmt: skip
def test_times_are_told_in_the_unit_that_suits_them(ns: float, text: str) -> None:
    assert time_text(ns) == text


def test_a_difference_below_the_floor_is_none() -> None:
    more = Estimate(5e3, 4e3, 6e3)

    assert verdict(more, 1e3, "x", TIME) == "5.00 µs more than x: 4.00 µs … 6.00 µs"
    assert verdict(more, 5e3, "x", TIME).startswith("not distinguishable from x")
    assert verdict(more._replace(low=-1.0), 0, "x", TIME).startswith("not distinguishable from x")


def test_a_few_switches_are_no_verdict(run: dict[str, Any]) -> None:
    few = raw(slowest=3.0)
    few.samples[SLOWEST] = {name: sample[:1, :5] for name, sample in few.samples[SLOWEST].items()}
    (part,) = (part for part in parts(SMALL, few) if part["setting"]["measure"] == SLOWEST)
    (shape,) = shapes.report(run | {"parts": [part]}).parts

    assert (form := shape.form(form_name(WAYS[0].name, "on")))
    assert form.verdict.startswith("no verdict, 5 are too few")
    assert not shape.differs(form)


def test_switches_that_differ_from_themselves_are_no_verdict() -> None:
    wild = raw(1.0)
    first = form_name(WAYS[0].name, "on")
    wild.samples[STOPPED][first] = wild.samples[STOPPED][first] / 3
    verdicts = {part["setting"]["measure"]: part["noisy"] for part in parts(SMALL, wild)}

    assert "differed from itself by up to 66" in verdicts[STOPPED]
    assert verdicts[CALL] == ""


@pytest.mark.parametrize(("low", "high"), [(90, 1.2e3), (1e3, 9e9), (5, 7)])
def test_ticks_are_round_and_in_the_range(low: float, high: float) -> None:
    ticks = plots.log_ticks(low, high)

    assert ticks == sorted(ticks)
    assert all(low <= tick <= high for tick in ticks)


# ---- a run that is made up -----------------------------------------------------------------------


def raw(scale: float = 1.0, slowest: float = 3.0) -> Raw:
    """Every switch takes some hundred µs; the program notices `slowest` times as much with one."""
    chance = np.random.default_rng(1)

    def of(us: float) -> np.ndarray:
        return np.asarray(us * scale * 1e3 * chance.normal(1, 0.01, (2, 20)))

    forms = [name for name in whats() if name.endswith((": on", ": off"))]
    stopping = [name for name in forms if "stop" in name]
    return Raw(
        {
            CALL: {name: of(300) for name in forms},
            STOPPED: {name: of(100) for name in stopping},
            HELD: {name: of(30) for name in stopping},
            COMMAND: {
                command.PASS: of(2e4), command.PASS_AGAIN: of(2e4),
                command.command_name("on"): of(5e4), command.command_name("off"): of(5e4),
            },
            SLOWEST: {QUIET: of(50), QUIET_AGAIN: of(50)}
            | {name: of(50 * slowest) for name in forms},
        },
        {form_name(WAYS[0].name, "on"): Counter({40: 99, 80: 1})},
        {form_name(WAYS[0].name, "on"): [5_000_000, 6_000_000]},
        {},
        2_000_000,
        Counter(),
    )  # fmt: skip


@pytest.fixture
def run() -> dict[str, Any]:
    """With all settings of two numbers of sites and of threads."""
    made = [
        part
        for setting in measure.settings_of([1, 1000], [1, 8])
        for part in parts(setting, raw(setting.sites**0.5))
    ]
    machine = {"processor": "p", "compilers": {"gcc": ["gcc 12", "-O2"]}}
    return results.whole(machine, results.Measured(made, [], []))


def test_a_run_is_a_report_with_a_part_for_each_measure(run: dict[str, Any]) -> None:
    report = shapes.report(run)

    assert {part.measure for part in report.parts} == {CALL, COMMAND, STOPPED, HELD, SLOWEST}
    assert {part.kind for part in report.parts} == {KIND}
    assert len({part.title for part in report.parts}) == len(report.parts) == 4 * 5


def test_a_slower_step_is_told_from_none(run: dict[str, Any]) -> None:
    (part,) = (
        part for part in parts(SMALL, raw(slowest=1.0)) if part["setting"]["measure"] == SLOWEST
    )
    same = shapes.report(run | {"parts": [part]}).parts[0]
    (part,) = (
        part for part in parts(SMALL, raw(slowest=3.0)) if part["setting"]["measure"] == SLOWEST
    )
    more = shapes.report(run | {"parts": [part]}).parts[0]
    first = form_name(WAYS[0].name, "on")

    assert (form := same.form(first))
    assert not same.differs(form)
    assert (form := more.form(first))
    assert more.differs(form)


def test_lines_go_along_sites_and_along_threads(run: dict[str, Any]) -> None:
    series = [curve for curve in all_series(shapes.report(run).parts) if curve.measure == CALL]

    assert [(curve.axis, [at for at, _ in curve.points]) for curve in series] == [
        ("sites", [1, 1000]), ("threads", [1, 8]), ("threads", [1, 8]),
    ]  # fmt: skip
    assert [curve.load for curve in series] == [BUSY, BUSY, ASLEEP]


def test_the_terminal_shows_every_way_and_setting(run: dict[str, Any]) -> None:
    text = io.StringIO()
    table.show(run, Console(file=text, width=150))

    for way in WAYS:
        assert f"{way.name}: on" in text.getvalue()
    for word in ("1,000 sites", "8 threads", "others sleep", "markerjit off", "no switch"):
        assert word in text.getvalue()


def test_the_page_draws_every_measure_and_answers(run: dict[str, Any]) -> None:
    page = html.page(run)

    assert "How long does it take to switch the sites" in page
    assert page.count("<svg") == 5 * 3
    assert "1,000 sites, 1 thread that runs" in page
    assert "the slowest step becomes" in page
    assert "nan" not in page
    assert "How much slower does a program get" not in page


def test_a_part_without_threads_is_refused(run: dict[str, Any]) -> None:
    wrong = copy.deepcopy(run)
    del wrong["parts"][0]["setting"]["threads"]

    with pytest.raises(Refused, match="threads"):
        html.page(wrong)
