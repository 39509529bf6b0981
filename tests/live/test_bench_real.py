"""Lua with our markers, built from Debian's source: what is traced is what the program counts.

SQLite takes minutes to compile; bench/real/ itself compares its counts in every run.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from real import active, building, patching, sources
from real.programs import LUA, PROGRAMS, Program, Workload
from real.running import run, started

import markerjit
from markerjit import Mode
from markerjit.apps.bench.dormant.forms import FORMS
from markerjit.apps.bench.sampling.form import BASELINE
from markerjit.errors import MarkerError, Refused
from tests.support.programs import ROOT, make
from tests.support.timing import Limited

pytestmark = pytest.mark.live

BY_NAME = {form.name: form for form in FORMS}
SIZES = {"calls": "16", "tables": "6", "strings": "500", "trees": "7"}
"""So little that the rings hold all events."""
WORKS = {
    name: (workload.arguments[0], SIZES[name])
    for workload in LUA.workloads
    for name in [workload.name.split()[-1]]
}


def fetch(program: Program) -> Path:
    """The archive of its source."""
    try:
        return sources.archive(program.package, building.DIRECTORY / "packages")
    except Refused as error:
        pytest.skip(f"needs the source of the Debian package {program.package}: {error}")


@pytest.fixture(scope="module")
def lua(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Path]]:
    """Programs by form: no marker, jump, nop, pointer, and the one that counts for itself."""
    make("native")
    fetch(LUA)
    tools = building.Toolchain(flags=("-O0",))
    forms = [BY_NAME[name] for name in (BASELINE, "jump", "nop", "pointer")]
    objects = building.compile_all(LUA, building.tree_of(LUA), [*forms, building.TRUTH], tools)
    where = tmp_path_factory.mktemp("lua")
    yield {
        name: building.link(LUA, files, number % 3, 3, where / name.replace(" ", "-"), tools)
        for number, (name, files) in enumerate(objects.items())
    }


@pytest.mark.parametrize(
    "program",
    [
        pytest.param(program, marks=[pytest.mark.long] * (name != "lua"), id=name)  # Lua is shorter
        for name, program in PROGRAMS.items()
    ],
)
def test_every_marker_has_its_place_in_debians_source(tmp_path: Path, program: Program) -> None:
    sources.unpack(fetch(program), tmp_path)

    patching.apply(program.marks, tmp_path)

    for mark in program.marks:
        assert (tmp_path / mark.file).read_text().count(mark.line) == 1
    assert (tmp_path / program.others[0]).is_file()


def test_all_of_our_markers_are_in_it_and_none_without(lua: dict[str, Path]) -> None:
    for form in ("jump", "pointer", "truth"):
        markers, problems = markerjit.list_file(lua[form])
        assert {marker.name for marker in markers} == set(LUA.markers)
        assert {str(marker.kind) for marker in markers} == {
            "pointer" if form == "pointer" else "jump"
        }
        assert sum(len(marker.sites) for marker in markers) >= len(LUA.marks) and not problems
    with pytest.raises(markerjit.errors.NoMarkers):
        markerjit.list_file(lua[BASELINE])


@pytest.mark.parametrize("work", WORKS)
def test_markers_do_not_change_what_the_program_does(lua: dict[str, Path], work: str) -> None:
    for form, path in lua.items():
        took = run(path, WORKS[work])
        assert took.cpu > 0 and took.wall > 0
        assert bool(took.passed) == (form == "truth")


@pytest.mark.parametrize("mode", [Mode.JUMP, Mode.INT3])
@pytest.mark.parametrize("work", WORKS)
def test_events_and_losses_are_what_the_program_counts(
    lua: dict[str, Path], work: str, mode: Mode
) -> None:
    with started(lua["truth"], WORKS[work], gated=True) as child:
        with markerjit.attach(child.pid) as session, session.trace("lua_*", mode=mode) as events:
            child.go()
            passed = child.report().passed
            seen = Counter(event.name for event in events.drain())
            lost = events.statistics().lost
        child.go()
        child.wait()

    assert set(passed) == set(LUA.markers) and passed["lua_call"] > 10
    assert sum(seen.values()) + lost == sum(passed.values())
    assert lost or seen == Counter({name: times for name, times in passed.items() if times})


def test_arguments_are_those_of_the_call(lua: dict[str, Path]) -> None:
    with started(lua["pointer"], WORKS["calls"], gated=True) as child:
        with markerjit.attach(child.pid) as session, session.trace("lua_call") as events:
            child.go()
            child.report()
            calls = events.drain()
        child.go()
        child.wait()

    sources_of = {call.fields["source"] for call in calls}
    assert sources_of == {"@" + WORKS["calls"][0]}
    assert Counter(call.fields["args"] for call in calls if call.fields["line"] == 2).keys() == {1}


@pytest.mark.parametrize("switch", active.SWITCHES, ids=lambda switch: switch.form.name)
def test_every_way_of_switching_on_hits_as_often_as_the_marker_is_passed(
    lua: dict[str, Path], switch: active.Switch
) -> None:
    build = lua[switch.build if switch.probe else BASELINE]
    work = Workload("little", WORKS["trees"], WORKS["trees"])
    passed = run(lua["truth"], work.arguments).passed["lua_gc_free"]
    cpu = min(os.sched_getaffinity(0))

    took = active.timed_run(build, work, "lua_gc_free", switch, cpu, passed)

    assert passed > 100 and took > 0
    if switch.mode:
        with pytest.raises(MarkerError, match=f"{passed} times as .* passed {passed + 1} times"):
            active.timed_run(build, work, "lua_gc_free", switch, cpu, passed + 1)


def test_a_program_that_ends_badly_is_said_so(lua: dict[str, Path]) -> None:
    with pytest.raises(MarkerError, match=r"ended with 1: .*cannot open"):
        run(lua["jump"], (str(ROOT / "no.lua"),))


def test_nothing_is_left_running_when_the_bench_is_killed(
    lua: dict[str, Path], tmp_path: Path
) -> None:
    code = (
        "import sys; from real import running; from pathlib import Path\n"
        "running._MEMORY = Path(sys.argv[2])\n"
        "with running.started(Path(sys.argv[1]), ('-',), gated=True) as child:\n"
        "    print(child.pid, flush=True); child.process.wait()\n"
    )
    bench = Limited(
        [sys.executable, "-c", code, lua["jump"], tmp_path], stdout=subprocess.PIPE, text=True,
        env={**os.environ, "PYTHONPATH": f"{ROOT}:{ROOT / 'bench'}"},
    )  # fmt: skip
    assert bench.stdout
    with bench, bench.stdout:
        child = int(bench.stdout.readline())
        assert _runs(child)
        bench.kill()
        bench.wait()

    deadline = time.monotonic() + 60
    while _runs(child) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not _runs(child)


def _runs(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False
