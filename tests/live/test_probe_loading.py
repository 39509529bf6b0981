"""Probes written in C: which are refused, and how the others come into a program and out of use."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import markerjit
from tests.support.c_probes import ANY, SLOW, TURNS, values, write_probe
from tests.support.commands import cli, running
from tests.support.markers import modes_of, wait_on, wait_switched
from tests.support.programs import Target
from tests.support.timing import wait_until

# ---- what is refused ---------------------------------------------------------------------------

FITS = "#include <markerjit/probe.h>\n"
LONG = FITS + "void f(struct mj_slot *s, long i, unsigned long n) {}"
LIBC = FITS + 'void f(struct mj_slot *s, ...) { extern int puts(const char *); puts("x"); }'


@pytest.mark.parametrize(
    ("command", "source", "function", "reason"),
    [
        ("on", LONG, "f", "truth_loop"),
        ("trace", LONG, "f", "truth_loop"),
        ("flight start", FITS + "void f(struct mj_slot *s, int i) {}", "f", "truth_loop"),
        ("on", FITS + "void f(struct mj_slot *s, int i, unsigned long n) {}", "g", "function g"),
        ("on", LIBC, "f", "puts.*libc"),
        ("trace", FITS + "void f(struct mj_slot *s, ...) { not C", "f", "probe.c"),
        ("flight start", None, "f", "probe.c"),
    ],
    ids=["type", "type traced", "count", "name", "undefined", "syntax", "missing"],
)
def test_probe_that_does_not_fit_is_refused_before_anything_is_put_into_the_process(
    target: Callable,
    probe: Callable,
    tmp_path: Path,
    command: str,
    source: str | None,
    function: str,
    reason: str,
) -> None:
    pid = target("truth_threads", "1", "--rate", "100").pid
    if source is not None:
        probe(source, function)

    named = f"{tmp_path / 'probe.c'}:{function}"
    done = cli(*command.split(), pid, "truth_loop", "--probe", named)

    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    assert done.stderr.splitlines()[-1].startswith("markerjit: ") or source is not None
    assert re.search(reason, done.stderr), done.stderr
    with markerjit.View(pid) as view:
        assert not view.has_runtime
        assert {marker.mode for marker in view.statistics()} == {None}


# ---- coming and going --------------------------------------------------------------------------


def test_off_waits_until_no_thread_is_in_the_probe(target: Callable, probe: Callable) -> None:
    program = target("truth_threads", "4", "--rate", "100")

    with markerjit.attach(program.pid) as session:
        for _ in range(5):
            session.enable("truth_loop", probe=probe(SLOW, "slow"))
            begun = session.probe_values()[0].counters["begun"]
            wait_until(
                lambda n=begun: session.probe_values()[0].counters["begun"] > n, "a thread in it"
            )
            session.disable("truth_loop")
            first = session.probe_values()[0].counters
            assert first["begun"] == first["ended"]
            time.sleep(0.02)
            assert session.probe_values()[0].counters == first


def test_probe_is_loaded_once_however_often_it_is_switched_on(
    target: Callable, probe: Callable, tmp_path: Path
) -> None:
    program = target("truth_modes-jump")

    used = set()
    for turn in range(1, 4):  # each time another controller
        with markerjit.attach(program.pid) as session:
            for _ in range(3):
                session.enable("truth_mode", probe=probe(TURNS, "count"))
                program.command("run 10")
                session.disable("truth_mode")
            with session.trace("truth_mode", probe=probe(TURNS, "tell")) as stream:
                program.command("run 5")
            control = session._target.seen.arena.control.now()
            used.add((control.code_used, control.data_used, control.markers_used))
            (counted,) = session.probe_values()
            assert counted.counters["turns"] == 35 * turn
        assert stream.statistics().lost == 0
    assert len(used) == 1
    (tmp_path / "other").mkdir()
    again = write_probe(tmp_path / "other", f"/* A comment. */\n{TURNS}", "count")
    cli("on", program.pid, "truth_mode", "--probe", again)
    assert values(program.pid)["turns"] == 105
    with markerjit.View(program.pid) as view:
        control = view._target.seen.arena.control.now()
        assert {(control.code_used, control.data_used, control.markers_used)} == used


def test_probe_that_was_refused_is_not_said_to_be_connected(
    target: Callable, probe: Callable
) -> None:
    program = target("truth_modes-jump")

    with markerjit.attach(program.pid) as session:
        session.enable("truth_mode", probe=probe(TURNS, "count", "one.c"))
        with pytest.raises(markerjit.Refused):
            session.enable(
                "truth_mode", probe=probe(ANY, "any", "other.c"), mode=markerjit.Mode.POINTER
            )
        program.command("run 10")

        assert {
            statistic.name: statistic.probe for statistic in session.statistics("truth_mode")
        } == {"truth_mode": "one.c:count"}


def test_two_controllers_have_probes_of_their_own(target: Callable, probe: Callable) -> None:
    program = target("truth_modes-jump")
    turns, other = probe(TURNS, "count", "one.c"), probe(ANY, "any", "other.c")

    with (
        markerjit.attach(program.pid) as first,
        markerjit.attach(program.pid) as second,
        ThreadPoolExecutor(1) as helper,
    ):
        first.enable("truth_mode", probe=turns)
        second.enable("truth_spin", probe=other)
        program.command("run 10")
        program.command("resume")
        spins = program.ask("pause")["truth_spin"]
        for session in (first, second):
            names = {marker.name: marker.probe for marker in session.statistics()}
            assert names == {"truth_mode": "one.c:count", "truth_spin": "other.c:any"}
            counted = {value.source: dict(value.counters) for value in session.probe_values()}
            assert counted == {"one.c": {"turns": 10, "sum": 45}, "other.c": {"passed": spins}}
        helper.submit(second.enable, "truth_mode", probe=other).result()
        program.command("run 7")
        first.disable("*")
        assert {marker.mode for marker in second.statistics()} == {None}
        assert {value.source: value.counters.get("passed") for value in first.probe_values()} == {
            "one.c": None,
            "other.c": spins + 7,
        }


def test_markers_of_a_killed_tracer_with_a_probe_are_switched_off_by_the_next_command(
    target: Callable, probe: Callable
) -> None:
    program: Target = target("truth_threads", "2", "--rate", "1000")

    cli("on", program.pid, "truth_birth", "--probe", probe(ANY, "any", "any.c"))
    with running(
        "trace", program.pid, "truth_loop", "--probe", probe(TURNS, "tell")
    ) as tracer:  # fmt: skip
        wait_on(program.pid, "truth_loop", tracer)
        wait_switched(program.pid)
        tracer.kill()
        tracer.wait()
    with markerjit.attach(program.pid) as session:
        session.enable("truth_birth", probe="count")

    assert modes_of(program.pid) == {"truth_loop": None, "truth_birth": "jump"}
