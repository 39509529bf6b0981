"""Probes in C that nothing uses any more make room for others; and those that something may still
run never do."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

import markerjit
from markerjit.arena.units import Unit
from markerjit.errors import Refused
from markerjit.probes.loaded import loaded
from markerjit.session import probes_in_c
from markerjit.session import trace as trace_module
from tests.support.timing import wait_until

VERSION = """
#include <markerjit/probe.h>

MJ_COUNTER(version_%d);
static volatile char ballast[%d];

void f(struct mj_slot *slot, ...) {
    mj_add(&version_%d, 1 + !!ballast[0]);
}
"""
STAYS = """
#include <markerjit/probe.h>

MJ_COUNTER(begun);
static volatile long open_ = 0x6f70656e;

void f(struct mj_slot *slot, ...) {
    mj_count(&begun);
    while (open_ == 0x6f70656e)
        __asm__ __volatile__("pause");
}
"""
MIB = 1 << 20


def version(number: int, ballast: int = 7 * MIB) -> str:
    """A probe whose variables take so much that there is room for four at most."""
    return VERSION % (number, ballast, number)


def sources(session: markerjit.Session) -> list[str]:
    return [probe.source for probe in loaded(session._target.seen.arena)]


def units(session: markerjit.Session) -> list[int]:
    """Which were ever loaded, and are there still."""
    return [int(unit.entry.order) for unit in session._target.seen.arena.units.all()]


def code_of(session: markerjit.Session, unit: Unit) -> bytes:
    return session._target.seen.arena.store.read(unit.code.start, unit.code.end - unit.code.start)


def test_a_probe_can_be_edited_and_connected_again_for_ever(
    target: Callable, probe: Callable
) -> None:
    program = target("truth_modes-jump")

    with markerjit.attach(program.pid) as session:
        for number in range(12):
            session.enable("truth_mode", probe=probe(version(number), "f"))
            program.command("run 10")
            session.disable("truth_mode")
            (values,) = session.probe_values()
            assert values.counters == {f"version_{number}": 10}
            assert units(session) == [number + 1]


def test_a_version_that_is_connected_stays_until_it_is_not(
    target: Callable, probe: Callable
) -> None:
    program = target("truth_modes-jump")

    with markerjit.attach(program.pid) as session:
        for number in range(6):  # without off in between
            session.enable("truth_mode", probe=probe(version(number, 12 * MIB), "f"))
            program.command("run 10")
            assert units(session) == [number, number + 1][number == 0 :]
        counted = {
            name: n for values in session.probe_values() for name, n in values.counters.items()
        }
        assert counted == {"version_4": 10, "version_5": 10}


def test_other_files_keep_their_values_until_the_room_is_needed_and_the_oldest_goes_first(
    target: Callable, probe: Callable
) -> None:
    program = target("truth_modes-jump")

    with markerjit.attach(program.pid) as session:
        for number in range(1, 5):
            version_probe = probe(version(number), "f", f"file{number}.c")
            session.enable("truth_mode", probe=version_probe)
            program.command("run 10")
        assert sources(session) == ["file1.c", "file2.c", "file3.c", "file4.c"]
        session.disable("*")
        session.enable("truth_mode", probe=probe(version(5), "f", "file5.c"))
        session.disable("*")

        assert sources(session) == ["file2.c", "file3.c", "file4.c", "file5.c"]
        assert {value.source for value in session.probe_values()} == set(sources(session))


def test_nothing_is_given_back_while_a_child_may_run_it(target: Callable, probe: Callable) -> None:
    program = target("truth_fork")
    program.timeout_s = 60

    with markerjit.attach(program.pid) as session, ThreadPoolExecutor(1) as helper:
        session.enable("truth_*", probe=probe(version(0), "f"))
        (unit,) = session._target.seen.arena.units.all()
        code = code_of(session, unit)
        answer = helper.submit(program.command, "fork 1000 8000")
        wait_until(lambda: session.statistics("truth_parent")[0].hits == 1, "the fork")
        session.disable("*")
        for number in range(1, 4):
            session.enable("truth_*", probe=probe(version(number), "f"))
            session.disable("*")
        assert units(session) == [1, 2, 3, 4]
        with pytest.raises(Refused, match=r"room for \d+; .* \d+ is a child that may still run it"):
            session.enable("truth_*", probe=probe(version(4), "f"))
        assert code_of(session, unit) == code
        assert not answer.done()

        assert answer.result().endswith("status=0")

        session.enable("truth_*", probe=probe(version(5), "f"))
        assert units(session) == [5]


def test_a_probe_with_a_thread_in_it_stays(
    target: Callable, probe: Callable, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = target("truth_modes-jump")
    monkeypatch.setattr(probes_in_c, "_GRACE_S", 0.05)

    with markerjit.attach(program.pid) as session:
        session.enable("truth_spin", probe=probe(STAYS, "f"))
        (unit,) = session._target.seen.arena.units.all()
        code = code_of(session, unit)
        program.command("resume")
        wait_until(lambda: session.probe_values()[0].counters["begun"] == 1, "a thread in it")
        with pytest.raises(Refused, match="still in its probe"):
            session.disable("truth_spin")
        for number in range(4):
            session.enable("truth_mode", probe=probe(version(number), "f"))
            session.disable("truth_mode")
        assert units(session) == [1, 5]
        assert code_of(session, unit) == code

        data = session._target.seen.arena.store.read(unit.data.start, 1 << 16)
        door = data.index(0x6F70656E.to_bytes(8, "little"))
        session._target.seen.arena.store.write(unit.data.start + door, bytes(8))
        wait_until(lambda: program.ask("pause")["truth_spin"] >= 1, "it has left")
        session.enable("truth_mode", probe=probe(version(5), "f"))
        assert units(session) == [6]


def test_a_trace_loads_its_probe_again_where_another_controller_gave_it_back(
    target: Callable, probe: Callable, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between the claim of the rings and the switch nobody holds the lock."""
    program = target("truth_modes-jump")
    first, second = probe(version(1), "f"), None

    with markerjit.attach(program.pid) as session, markerjit.attach(program.pid) as other:
        types = trace_module._types

        def meddle(*args: object, **named: object) -> object:
            nonlocal second
            second = probe(version(2), "f")
            other.enable("truth_spin", probe=second)
            other.disable("truth_spin")
            assert units(other) == [2]
            return types(*args, **named)

        monkeypatch.setattr(trace_module, "_types", meddle)
        with session.trace("truth_mode", probe=first):
            program.command("run 10")

        assert session.probe_values()[-1].counters == {"version_1": 10}


def test_a_trace_ends_its_own_version_of_a_probe_that_was_edited_meanwhile(
    target: Callable, probe: Callable
) -> None:
    """The session took the address of the newer version for the trace's, and left the markers of
    the older one on."""
    program = target("truth_values")
    older, newer = (
        markerjit.compile_probe(*probe(version(number, 8), "f").rsplit(":", 1)) for number in (1, 2)
    )
    assert (older.source.name, older.function.name) == (newer.source.name, newer.function.name)

    with markerjit.attach(program.pid) as session:
        first, second, *_ = sorted({site.marker for site in session.sites() if site.slot})
        with session.trace(first, probe=older) as stream:
            session.enable(second, probe=newer)
        assert stream.statistics().taken == ()

        modes = {status.name: status.mode for status in session.statistics()}
        assert modes[first] is None
        assert modes[second] is not None
