"""The parts of `markerjit bench active`: programs that count right, rounds, a whole run."""

from __future__ import annotations

import ctypes
import json
import mmap
import os
import struct
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, nullcontext
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest

from markerjit.apps.bench.active import bpf, debuggers, hooks, listeners, lttng, uprobes
from markerjit.apps.bench.active import measure as active
from markerjit.apps.bench.active.crew import Crew
from markerjit.apps.bench.active.listened import COUNT, EMPTY, FORMS, NOBODY, PTRACE, RECORD, UPROBE
from markerjit.apps.bench.active.listeners import (
    LISTENERS,
    RING_SIZE,
    Listener,
    Loops,
    most_executions,
)
from markerjit.apps.bench.active.measure import Account
from markerjit.apps.bench.active.rounds import REPEAT, Loop, executions, rounds
from markerjit.apps.bench.active.uprobes import Spot, spot_at
from markerjit.apps.bench.sampling.build import build, why_missing
from markerjit.apps.bench.sampling.compare import SLICE_NS
from markerjit.apps.bench.sampling.core import Taken
from markerjit.apps.bench.sampling.form import BASELINE
from markerjit.apps.bench.sampling.place import Place
from markerjit.apps.bench.sampling.plan import Plan
from markerjit.errors import MarkerError, NotPermitted, Unsupported
from tests.support.programs import ROOT, make

SOURCES = ROOT / "native" / "bench"
STRICT = ["-Wall", "-Wextra", "-Werror"]
BY_NAME = {way.form.name: way for way in FORMS}


@pytest.fixture(scope="module")
def programs() -> Path:
    make("native")
    return ROOT / "markerjit" / "_native" / "bench" / "active"


def object_of(name: str, directory: Path, *flags: str) -> Path:
    way = BY_NAME[name]
    include = [ROOT / "native" / "include", SOURCES / "active"]
    if why := why_missing(way.form, "gcc", include):
        pytest.skip(why)
    return build(
        SOURCES / "active" / "listen.c", way.form, 0, 16,
        [f"-DBENCH_MARKER={way.name_of_marker(0)}", *flags],
        directory=directory, chosen="gcc", include=include,
    ).path  # fmt: skip


@pytest.fixture
def nops(programs: Path, tmp_path: Path) -> Iterator[Crew]:
    """A crew whose loops are: a one-byte no-op, a five-byte no-op, no marker."""
    (tmp_path / "objects").mkdir()
    names = ("uprobe, 1-byte no-op", "uprobe, 5-byte no-op", BASELINE)
    objects = [object_of(name, tmp_path / "objects") for name in names]
    with closing(Crew(programs / "crew", objects, sorted(os.sched_getaffinity(0))[:2])) as crew:
        yield crew


# ---- what is compared ----------------------------------------------------------------------------


def by_code() -> Iterator[Any]:
    """The names of all forms. Of those that differ in who listens only, the first one is enough."""
    seen = set()
    for name, way in BY_NAME.items():
        code = way.form.flags, way.form.libraries
        yield pytest.param(name, marks=[pytest.mark.long] * (code in seen))
        seen.add(code)


@pytest.mark.parametrize("name", [*by_code()])
def test_every_form_compiles_without_a_warning(tmp_path: Path, name: str) -> None:
    object_of(name, tmp_path, *STRICT)


def test_every_form_has_a_listener_and_markers_of_its_own() -> None:
    markers = [way.marker for way in FORMS if way.marker]

    assert len(BY_NAME) == len(FORMS)
    assert len(set(markers)) == len(markers)
    assert {way.by for way in FORMS} == {by for _, who in LISTENERS for by in who}


def test_those_who_count_and_record_are_measured_by_every_way() -> None:
    ours = {way.form.name.split(",")[0] for way in FORMS if way.by in (COUNT, RECORD)}

    assert ours == {"jump", "nop", "pointer", "int3"}
    assert {UPROBE, PTRACE} <= {way.by for way in FORMS}


# ---- programs ------------------------------------------------------------------------------------


def test_a_crew_knows_how_many_rounds_each_loop_has_made(nops: Crew) -> None:
    took = nops.run(1, 100, 3, 1)
    together = nops.run(2, 1000, 2, nops.size)

    assert (len(took), len(together)) == (3, 2)
    assert all(run.ns > 0 and 50 < run.share <= 1000 for run in (*took, *together))
    assert nops.truth() == [0, 11 + 3 * 100, nops.size * (101 + 2 * 1000)]


def test_a_crew_without_a_loop_says_which(programs: Path, tmp_path: Path) -> None:
    with pytest.raises(MarkerError, match="no-such"):
        Crew(programs / "crew", [tmp_path / "no-such.so"], [min(os.sched_getaffinity(0))])


def test_a_crew_that_is_asked_for_nonsense_says_that_it_ended(nops: Crew) -> None:
    with pytest.raises(MarkerError, match="ended with code 2"):
        nops.run(9, 1, 1, 1)


def test_the_tracer_counts_every_thread(programs: Path, nops: Crew) -> None:
    with closing(debuggers.Tracer(programs / "tracer", nops.pid, [nops.place(0)])) as tracer:
        nops.run(0, 50, 2, nops.size)
        nops.run(2, 50, 2, 1)

        assert tracer.hits() == [nops.truth()[0]]


def test_the_tracer_refuses_what_is_no_one_byte_no_op(programs: Path, nops: Crew) -> None:
    with pytest.raises(NotPermitted, match="does not hold a one-byte no-op"):
        debuggers.Tracer(programs / "tracer", nops.pid, [nops.place(1)])


def test_the_tracer_is_bound_to_a_cpu_beside_one_thread_alone(
    programs: Path, nops: Crew, tmp_path: Path
) -> None:
    if nops.size == 1:
        pytest.skip("only one CPU is ours")
    cpu = max(os.sched_getaffinity(0))
    place = Place(SOURCES, ROOT / "native/include", programs.parent, tmp_path, "gcc", cpu)
    loops = Loops(nops, [BY_NAME["ptrace"]], {"ptrace": [0]})
    with listeners.ptrace(loops, place) as listener:
        (tracer,) = (child for child in psutil.Process().children() if child.name() == "tracer")
        ((_, loop),) = active._running(active._Station(loops, loops.forms, listener))

        loop.took(0, 4, 1)
        assert os.sched_getaffinity(tracer.pid) == {cpu}
        loop.took(0, 4, nops.size)
        assert os.sched_getaffinity(tracer.pid) == os.sched_getaffinity(0)


def test_uprobes_count_every_thread_and_go_away(nops: Crew) -> None:
    places = [spot_at(nops.pid, nops.place(number), record=number == 1) for number in (0, 1)]
    try:
        with uprobes.counting(places, nops.threads) as descriptors:
            nops.run(0, 50, 2, nops.size)
            nops.run(1, 70, 1, 1)
            counts = [uprobes.count(descriptor) for descriptor in descriptors]
    except (NotPermitted, Unsupported) as error:
        pytest.skip(str(error))

    each = len(nops.threads)
    assert [sum(counts[:each]), sum(counts[each:])] == nops.truth()[:2]
    with pytest.raises(OSError):
        uprobes.count(descriptors[0])
    with open(f"/proc/{nops.pid}/mem", "rb") as memory:
        memory.seek(nops.place(0))
        assert memory.read(1) == b"\x90"


def test_a_uprobe_that_records_has_thread_time_and_both_ints(nops: Crew) -> None:
    spot = spot_at(nops.pid, nops.place(0), record=True)
    opened: list[int] = []
    try:
        for thread in sorted(nops.threads):
            opened.append(uprobes.open_uprobe(spot, thread))
    except (NotPermitted, Unsupported) as error:
        pytest.skip(str(error))
    rings = [uprobes.ring_of(descriptor) for descriptor in opened]

    nops.run(0, 9, 1, 1)

    records = [record for ring in rings for record in samples_in(ring)]
    data = [ctypes.c_int32((n % 8 + 1) * 0x9E3779B97F4A7C15 & 0xFFFFFFFF).value for n in range(10)]
    pairs = list(pairwise(data))
    assert [(a, b) for _, _, a, b in records] == [pairs[0], *pairs[:9]]
    assert {tid for tid, *_ in records} < set(nops.threads)
    times_ns = [moment for _, moment, *_ in records]
    assert times_ns == sorted(set(times_ns))
    for descriptor, ring in zip(opened, rings, strict=True):
        ring.close()
        os.close(descriptor)


def samples_in(ring: mmap.mmap) -> Iterator[tuple[int, int, int, int]]:
    """Thread, time, edi and esi of each sample: perf_event_open(2)."""
    (head,) = struct.unpack_from("Q", ring, 1024)
    at = 0
    while at < head:
        kind, _, size = struct.unpack_from("IHH", ring, mmap.PAGESIZE + at)
        if kind == 9:
            _, tid, moment, _, si, di = struct.unpack_from("IIQQQQ", ring, mmap.PAGESIZE + at + 8)
            yield tid, moment, ctypes.c_int32(di).value, ctypes.c_int32(si).value
        at += size


def test_a_kernel_without_uprobes_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(uprobes, "_TYPE", tmp_path / "none")

    with pytest.raises(Unsupported, match="CONFIG_UPROBE_EVENTS"):
        uprobes.open_uprobe(Spot(Path("/bin/sh"), 0), os.getpid())


def test_a_missing_bpftrace_is_named_with_its_package(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))

    with pytest.raises(Unsupported, match="apt-get install bpftrace"):
        bpf.Tracer(os.getpid(), {}, lambda: False)


def test_what_bpftrace_says_of_its_script_is_told_and_its_maps_are_added_up(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A stand-in for bpftrace, which prints what bpftrace 0.17 was seen to print."""
    program = tmp_path / "bpftrace"
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    program.write_text("#!/bin/sh\necho 'no probes to attach' >&2\nexit 1\n")
    program.chmod(0o755)
    with pytest.raises(MarkerError, match="bpftrace: no probes to attach"):
        bpf.Tracer(os.getpid(), {}, lambda: False)

    maps = {
        "count": {"type": "map", "data": {"@count": 7}},
        "keys": {"type": "map", "data": {"@keys": {"-1": 2, "12345": 3}}},
        "hist": {
            "type": "hist",
            "data": {"@hist": [{"max": -1, "count": 4}, {"min": 1, "count": 5}]},
        },
    }
    attached = json.dumps({"type": "attached_probes", "data": {"probes": 1}})
    (tmp_path / "maps").write_text("\n".join(["", *map(json.dumps, maps.values()), ""]))
    program.write_text(
        f"#!/bin/sh\ntrap 'cat {tmp_path}/maps; exit 0' INT\necho '{attached}'\n"
        f"touch {tmp_path}/begun\nwhile :; do sleep 0.01; done\n"
    )
    with bpf.tracing(os.getpid(), {}, (tmp_path / "begun").exists) as tracer:
        assert tracer.counts() == {"count": 7, "keys": 5, "hist": 9}


def test_a_missing_gdb_is_named_with_its_package(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))

    with pytest.raises(Unsupported, match="apt-get install gdb"):
        debuggers.Gdb(os.getpid(), [], tmp_path)


def test_hits_are_read_out_of_what_gdb_says() -> None:
    text = (
        "Num     Type           Disp Enb Address            What\n"
        "1       breakpoint     keep y   0x00007f0000001040 <run+16>\n"
        "\tbreakpoint already hit 1 time\n        silent\n        continue\n"
        "2       breakpoint     keep y   0x00007f0000002040 <run+16>\n        silent\n"
        "3       breakpoint     keep y   0x00007f0000003040 <run+16>\n"
        "\tbreakpoint already hit 2310 times\n"
    )

    assert debuggers.hits_in(text, 3) == [1, 0, 2310]
    assert debuggers.hits_in("no program", 2) == [0, 0]


def test_what_a_program_prints_is_its_usage_error_without_arguments(programs: Path) -> None:
    for name in ("crew", "tracer"):
        assert subprocess.run([programs / name], check=False).returncode == 2


# ---- rings without room --------------------------------------------------------------------------


@pytest.mark.parametrize("has_room", [False, True])
def test_a_full_ring_has_no_figure_once_an_event_finds_room(
    programs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, has_room: bool
) -> None:
    way = BY_NAME["jump, full ring"]
    place = Place(SOURCES, ROOT / "native/include", programs.parent, tmp_path, "gcc", 0)
    paths = [object_of(way.form.name, tmp_path)]
    if has_room:
        monkeypatch.setattr(listeners, "_fill_rings", lambda *_: None)
    with listeners.own_crew(paths, [min(os.sched_getaffinity(0))], place) as (crew, own):
        loops = Loops(crew, [way], {way.form.name: [0]})
        with listeners.full(loops, own) as listener:
            listener.before(1)
            crew.run(0, 100, 1, 1)

            if has_room:
                with pytest.raises(MarkerError, match="111 events found room"):
                    listener.hits()
            else:
                assert listener.hits() == loops.truth()


# ---- functions by the hooks of compilers and other tools ----------------------------------------


@contextmanager
def listening(
    name: str, programs: Path, directory: Path, listener: listeners.Opening
) -> Iterator[tuple[Loops, Listener]]:
    """A form in one layout, with its listener at work."""
    place = Place(SOURCES, ROOT / "native/include", programs.parent, directory, "gcc", 0)
    starting = listeners.CREWS.get(listener, listeners.own_crew)
    cpus = sorted(os.sched_getaffinity(0))[:2]
    try:
        with starting([object_of(name, directory)], cpus, place) as (crew, own):
            loops = Loops(crew, [BY_NAME[name]], {name: [0]})
            with listener(loops, own) as at_work:
                yield loops, at_work
    except (NotPermitted, Unsupported) as error:
        pytest.skip(str(error))


@pytest.mark.parametrize(
    "name", [name for name in BY_NAME if name.startswith("function by ") and BY_NAME[name].by]
)
def test_a_hook_counts_every_call_and_nothing_else(
    name: str, programs: Path, tmp_path: Path
) -> None:
    (opening,) = (opening for opening, names in LISTENERS if BY_NAME[name].by in names)
    with listening(name, programs, tmp_path, opening) as (loops, listener):
        (before,) = loops.truth().values()
        loops.crew.run(0, 200, 2, loops.crew.size)
        listener.after()
        loops.crew.run(0, 30, 1, 1)
        (after,) = loops.truth().values()

        assert listener.hits() == {name: after}
        assert after - before == loops.crew.size * 421 + 34


def test_entries_and_exits_that_differ_are_no_figure() -> None:
    name = "function by -finstrument-functions, entry and exit recorded"
    loops = Loops(FakeCrew([]), [BY_NAME[name]], {name: [0]})
    marker = BY_NAME[name].name_of_event(0)

    def session(exits: int) -> Any:
        statistics = [
            SimpleNamespace(name=marker, total=9, lost=0),
            SimpleNamespace(name=f"{marker}_exit", total=exits, lost=0),
        ]
        return SimpleNamespace(statistics=lambda: statistics)

    assert listeners._counts(session(9), loops) == {name: 9}
    with pytest.raises(MarkerError, match="9 entries were counted, and 8 exits"):
        listeners._counts(session(8), loops)


def test_uprobes_and_uretprobes_that_differ_are_no_figure(
    nops: Crew, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = "function by uprobe and uretprobe, entry and exit recorded"
    loops = Loops(nops, [BY_NAME[name]], {name: [0]})
    counts = iter([4] * len(nops.threads) + [3] * len(nops.threads))
    monkeypatch.setattr(uprobes, "count", lambda descriptor: next(counts))
    monkeypatch.setattr(uprobes, "counting", lambda spots, threads: nullcontext(
        [0] * len(spots) * len(threads)))  # fmt: skip

    with (
        listeners.kernel(loops, Place(SOURCES, SOURCES, SOURCES, SOURCES, "gcc", 0)) as listener,
        pytest.raises(MarkerError, match=r"\d+ entries were counted, and \d+ exits"),
    ):
        listener.hits()


def test_a_missing_uftrace_is_named_with_its_package(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))

    with pytest.raises(Unsupported, match="apt-get install uftrace"):
        hooks.uftrace(tmp_path)


def test_a_missing_frida_is_named_with_its_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "frida", None)

    with pytest.raises(Unsupported, match="pip install frida"), hooks.frida(os.getpid(), []):
        pass


def test_a_clang_without_the_runtime_of_xray_is_named_with_its_package(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "clang").write_text("#!/bin/sh\necho 'ld: cannot find xray' >&2\nexit 1\n")
    (tmp_path / "clang").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    place = Place(SOURCES, SOURCES, SOURCES, tmp_path, "gcc", 0)

    with pytest.raises(Unsupported, match=r"apt-get install libclang-rt-dev.*cannot find xray"):
        hooks.link_crew([tmp_path / "one.so"], place)


def test_calls_are_read_out_of_what_uftrace_says() -> None:
    text = "        Calls  Function\n  ==========  ====\n  33564  bench_place\n  7  bench_placed\n"

    assert hooks.calls_in(text) == 33564
    assert hooks.calls_in("") == 0


def test_a_crew_without_a_linked_loop_says_so(programs: Path) -> None:
    with pytest.raises(MarkerError, match="there is no such object in it"):
        Crew(programs / "crew", ["linked"], [min(os.sched_getaffinity(0))])


# ---- LTTng ---------------------------------------------------------------------------------------


def fake_tools(folder: Path, monkeypatch: pytest.MonkeyPatch, events: int, discarded: str) -> None:
    """A babeltrace2 that counts and warns so, and an lttng that does nothing."""
    tools = {
        "lttng": "exit 0",
        "babeltrace2": f"echo '{events} Event messages'; echo '{discarded}' >&2",
    }
    for name, line in tools.items():
        (folder / name).write_text(f"#!/bin/sh\n{line}\n")
        (folder / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")


def test_events_that_lttng_discards_are_no_figure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tracer = lttng.Tracer(lttng.Account(tmp_path, {}, {}))

    fake_tools(tmp_path, monkeypatch, 1234, "")
    assert tracer.recorded("lttng") == 1234
    fake_tools(tmp_path, monkeypatch, 1234, "WARNING: Tracer discarded 17 events between ...")
    with pytest.raises(MarkerError, match="discarded 17 events"):
        tracer.recorded("lttng")


def test_a_missing_lttng_is_named_with_its_packages(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))

    with (
        pytest.raises(Unsupported, match="apt-get install babeltrace2 lttng-tools"),
        lttng.folder(),
    ):
        pass


def test_forms_that_cannot_be_compiled_are_named_and_the_others_measured(tmp_path: Path) -> None:
    way = BY_NAME["LTTng-UST, record"]
    odd = way._replace(form=way.form._replace(needs="no/such.h", package="some-package"))
    place = Place(SOURCES, ROOT / "native/include", tmp_path, tmp_path, "gcc", 0)

    possible, lacking = active._possible([odd, BY_NAME["jump, count"]], place)

    assert possible == [BY_NAME["jump, count"]]
    assert [(entry.form.name, entry.why) for entry in lacking] == [
        ("LTTng-UST, record", "<no/such.h> is not here; apt-get install some-package")
    ]


# ---- rounds --------------------------------------------------------------------------------------


class FakeCrew(Crew):
    """Takes so many ns for an execution."""

    def __init__(self, costs: list[float]) -> None:
        self.costs = costs
        self.asked: list[tuple[int, int, int]] = []

    def run(self, index: int, times: int, repeat: int, threads: int) -> list[Taken]:
        if index >= len(self.costs):
            raise MarkerError(f"there is no loop {index}")
        self.asked.append((index, times, threads))
        return [Taken(int(100 + self.costs[index] * times) + more, 100) for more in range(repeat)]


def loop(crew: FakeCrew, *numbers: int, record: int = 0) -> Loop:
    return Loop(crew, numbers, record)


@pytest.mark.parametrize("cost", [0.3, 17.0, 2_000.0])
def test_a_loop_runs_for_about_a_slice(cost: float) -> None:
    times = executions(loop(FakeCrew([cost]), 0), 1)

    assert times * cost == pytest.approx(SLICE_NS, rel=0.1)


def test_what_costs_a_lot_is_executed_a_few_times() -> None:
    assert executions(loop(FakeCrew([1_000_000.0]), 0), 1) == 4


def test_what_records_never_fills_its_ring() -> None:
    crew = FakeCrew([0.5])

    assert executions(loop(crew, 0, record=24), 1) == most_executions(REPEAT, 24)
    most = max(times for _, times, _ in crew.asked)
    assert (REPEAT * most + most // 10 + 1) * 24 < RING_SIZE


def test_a_round_has_every_form_in_every_layout_with_every_number_of_threads() -> None:
    crew = FakeCrew([1.0, 1.2, 7.0, 7.2])
    loops = {BASELINE: loop(crew, 0, 1), "x": loop(crew, 2, 3)}
    done: list[float] = []

    by_threads = rounds(loops, [1, 2], 0.0, done.append)

    assert set(by_threads) == {1, 2}
    for result in by_threads.values():
        assert {name: samples.shape for name, samples in result.comparison.samples.items()} == {
            BASELINE: (2, 12), "x": (2, 12),
        }  # fmt: skip
        assert result.comparison.cost("x").value == pytest.approx(6.0, abs=0.05)
        assert result.executions[BASELINE] > result.executions["x"]
    assert {(index, threads) for index, _, threads in crew.asked} == {
        (index, threads) for index in range(4) for threads in (1, 2)
    }
    assert done[-1] == 1.0


def test_who_listens_is_told_before_each_run_how_many_threads_it_has() -> None:
    crew = FakeCrew([1.0, 7.0])
    reports: list[int] = []
    loops = {BASELINE: loop(crew, 0), "x": loop(crew, 1)._replace(before=reports.append)}

    rounds(loops, [1, 2], 0.0, lambda done: None)

    assert reports == [threads for index, _, threads in crew.asked if index == 1]


def test_a_form_that_fails_is_left_out_and_the_others_go_on() -> None:
    crew = FakeCrew([1.0, 7.0])
    loops = {BASELINE: loop(crew, 0), "x": loop(crew, 1), "gone": loop(crew, 2)}

    result = rounds(loops, [1], 0.0, lambda done: None)[1]

    assert result.comparison.samples.keys() == {BASELINE, "x"}
    assert result.failed == {"gone": "there is no loop 2"}
    with pytest.raises(MarkerError, match="no loop 2"):
        rounds({BASELINE: loop(crew, 2)}, [1], 0.0, lambda done: None)


def test_gdb_counts_far_more_than_a_pipe_of_its_messages_holds(
    nops: Crew, tmp_path: Path, needs_tool: Callable[..., None]
) -> None:
    needs_tool("gdb", "gdb")
    debugger = debuggers.Gdb(nops.pid, [nops.place(0)], tmp_path)
    with closing(debugger):
        nops.run(0, 2000, 1, nops.size)
        (truth, *_) = nops.truth()
        nops.end()

        assert debugger.hits() == [truth]


def test_a_wrong_count_is_no_figure() -> None:
    assert Account(5000, 5000).wrong == ""
    assert "4,999 of 5,000" in Account(5000, 4999).wrong
    assert "gdb did not end" in Account(5000, None, "gdb did not end").wrong


# ---- a whole run ---------------------------------------------------------------------------------


@contextmanager
def refuses(loops: Loops, place: Place) -> Iterator[Listener]:
    raise NotPermitted("nobody may listen here")
    yield


@contextmanager
def sees_too_little(loops: Loops, place: Place) -> Iterator[Listener]:
    names = [way.form.name for way in loops.forms]

    def hits() -> dict[str, int]:
        truth = loops.truth()
        return {name: truth[name] - number for number, name in enumerate(names)}

    yield Listener(hits)


def test_what_may_not_be_or_is_miscounted_is_named_and_the_rest_is_measured(
    programs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours = (NOBODY, EMPTY, COUNT, RECORD)
    monkeypatch.setattr(active, "LISTENERS", ((refuses, ours), (sees_too_little, (UPROBE,))))
    cpu = min(os.sched_getaffinity(0))
    place = Place(SOURCES, ROOT / "native/include", programs.parent, tmp_path, "gcc", cpu)

    measured = active.measure(Plan(0.0, layouts=1), place, lambda what, done: None)

    missing = {entry.form.name: entry.why for entry in measured.missing}
    assert missing["jump, count"] == "nobody may listen here"
    right, wrong = (way.form.name for way in FORMS if way.by == UPROBE)
    assert right not in missing
    assert "no figure" in missing[wrong]
    for part in measured.parts:
        names = {form["name"] for form in part["forms"]}
        assert names >= {BASELINE, "call", "jump, dormant", right}
        assert not names & missing.keys()
    assert not any(tmp_path.iterdir())
