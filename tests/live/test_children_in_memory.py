"""Children that run in their parent's memory, with its thread control block: of vfork and clone.

The kernel knows no restartable sequences of them, so they and threads must not write to one ring
or counter by plain stores. An execution would be missing from the events and from the losses.
"""

from __future__ import annotations

import subprocess
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

import markerjit
from markerjit.arena.find import find_arenas
from markerjit.arena.own_rings import has_own_rings
from markerjit.doctor import examine_process
from markerjit.memory import ProcessMemory, read_maps
from markerjit.proc.permission import why_not
from tests.support.programs import ROOT, Target

TIMES = 100_000
every_child = pytest.mark.parametrize("child", ["vfork", "clone"])


def writes_own_rings(pid: int) -> bool:
    """Whether threads of a process with the runtime write to the ring of their CPU."""
    with ProcessMemory(pid, why_not=why_not) as memory:
        arena = find_arenas(pid, memory, read_maps(pid, why_not=why_not)).own
        assert arena
        answer = has_own_rings(memory, arena)
        arena.close()
    return answer


@every_child
@pytest.mark.parametrize("probe", ["count", "record"])
def test_executions_of_a_child_and_of_a_thread_beside_it_are_all_counted(
    target: Callable, child: str, probe: str
) -> None:
    program = target("truth_twins")

    with markerjit.attach(program.pid) as session:
        session.enable("truth_twins", probe=probe)
        counts = program.ask(f"{child} {TIMES}")
        session.disable("truth_twins")
        (status,) = session.statistics()

    assert counts == {"thread": TIMES, "child": TIMES, "bad": 0}
    assert status.hits == 2 * TIMES


@every_child
def test_events_of_a_child_and_of_a_thread_beside_it_are_whole_or_counted_as_lost(
    target: Callable, child: str
) -> None:
    program = target("truth_twins")

    with markerjit.attach(program.pid) as session:
        with session.trace("truth_twins") as stream:
            program.ask(f"{child} {TIMES}")
        events = stream.drain()
        (status,) = session.statistics()

    assert len(events) + status.lost == status.hits == 2 * TIMES
    assert (stream.statistics().bad_records, stream.statistics().damaged_rings) == (0, 0)
    assert all(1 <= event.fields["n"] <= TIMES for event in events)
    passed = Counter((event.fields["who"], event.fields["n"]) for event in events)
    assert passed.total() == len(passed)
    assert {who for who, _ in passed} == {0, 1}


def test_only_a_program_that_can_have_such_a_child_goes_without_own_rings(target: Callable) -> None:
    programs = {name: target(name) for name in ("truth_twins", "truth_vfork", "truth_threads")}

    for program in programs.values():
        with markerjit.attach(program.pid) as session:
            session.enable("*")

    own = {name: writes_own_rings(program.pid) for name, program in programs.items()}
    assert own == {"truth_twins": False, "truth_vfork": False, "truth_threads": True}
    warned = {
        name: [finding.what for finding in examine_process(program.pid) if finding.what == "rings"]
        for name, program in programs.items()
    }
    assert warned == {"truth_twins": ["rings"], "truth_vfork": ["rings"], "truth_threads": []}


@pytest.mark.parametrize("kind", [["-static"], ["-static-pie", "-fPIE"]], ids=" ".join)
def test_a_static_program_is_known_by_the_vfork_in_it(
    target: Callable, build: Path, tmp_path: Path, kind: list[str]
) -> None:
    path = tmp_path / "truth_vfork"
    flags = ["-O2", "-pthread", f"-I{ROOT}/native/include", "-s", "-o", str(path)]
    subprocess.run(["gcc", *kind, *flags, f"{ROOT}/native/targets/truth_vfork.c"], check=True)
    other = target("truth_static", "1")

    program = Target(path)
    try:
        program.wait_ready()
        for pid in (program.pid, other.pid):
            with markerjit.attach(pid) as session:
                session.enable("*")

        assert not writes_own_rings(program.pid)
        assert writes_own_rings(other.pid)
    finally:
        assert program.end() is None


def test_own_rings_are_closed_for_an_object_that_comes_later(
    target: Callable, build: Path, tmp_path: Path
) -> None:
    path = tmp_path / "plugin.so"
    (tmp_path / "more.c").write_text(
        "#include <unistd.h>\nint more(void) { return vfork() == 0 ? _exit(0), 0 : 1; }\n"
    )
    sources = [f"{ROOT}/native/targets/truth_plugin.c", str(tmp_path / "more.c")]
    flags = ["-shared", "-fPIC", f"-I{ROOT}/native/include", "-o", str(path)]
    subprocess.run(["gcc", *flags, *sources], check=True)
    program = target("truth_objects")

    with markerjit.attach(program.pid) as session, markerjit.attach(program.pid) as other:
        with session.trace("truth_host") as stream:
            program.command(f"load {build}/truth_plugin.so")
            other.enable("truth_plugin")
            before = writes_own_rings(program.pid)
            program.command("call 10")
            program.command("unload")
            program.command(f"load {path}")
            other.enable("truth_plugin")
            after = writes_own_rings(program.pid)
            program.command("call 10")
        events = stream.drain()
        hits = {marker.name: marker.total for marker in session.statistics()}

    assert (before, after) == (True, False)
    assert Counter(event.name for event in events) == {"truth_host": 20}
    assert hits == {"truth_host": 20, "truth_plugin": 20}
