"""HITS against what a program has counted itself: since the marker was switched on, whatever its
mode and its probe were since."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

import markerjit
from markerjit import Mode
from tests.support.commands import cli, facts

PROBE = "#include <markerjit/probe.h>\nvoid passed(struct mj_slot *slot, ...) {}\n"


@pytest.fixture
def probe(tmp_path: Path) -> str:
    source = tmp_path / "passed.c"
    source.write_text(PROBE)
    return f"{source}:passed"


def hits(session: markerjit.Session) -> int:
    (marker,) = session.statistics()
    return marker.hits


def test_hits_are_those_since_the_marker_was_switched_on(target: Callable) -> None:
    program = target("truth_process")

    with markerjit.attach(program.pid) as session:
        seen = []
        for turn in range(1, 4):
            session.enable("*")
            seen.append(hits(session))
            program.command(f"pass {turn}")
            session.disable("*")
            program.command("pass 5")
            seen.append(hits(session))
        (marker,) = session.statistics()

    assert seen == [0, 1, 0, 2, 0, 3]
    assert marker.total == program.ask("counts")["evaluated"] == 6


def test_hits_go_on_when_the_mode_or_the_probe_of_a_marker_is_changed(
    target: Callable, probe: str
) -> None:
    program = target("truth_process")
    ways = [
        {},
        {"mode": Mode.INT3},
        {"probe": probe},
        {"probe": "record"},
        {"probe": probe, "mode": Mode.JUMP},
        {"probe": "count"},
    ]

    with markerjit.attach(program.pid) as session:
        session.enable("*")
        program.command("pass 4")
        session.disable("*")
        seen, since = [], set()
        for way in ways:
            session.enable("*", **way)
            seen.append(hits(session))
            program.command("pass 10")
            since |= {statistic.since for statistic in session.statistics()}
        seen.append(hits(session))
        session.disable("*")
        program.command("pass 3")
        seen.append(hits(session))

    assert seen == [0, 10, 20, 30, 40, 50, 60, 60]
    assert len(since) == 1, "it was on all the time"
    assert program.ask("counts")["evaluated"] == 64


def test_calls_of_a_probe_in_c_stay_counted_when_it_has_left(target: Callable, probe: str) -> None:
    program = target("truth_process")

    with markerjit.attach(program.pid) as session:
        for turn in range(1, 4):
            session.enable("*", probe=probe)
            program.command(f"pass {turn}")
            assert hits(session) == turn
            session.disable("*")
            assert hits(session) == turn
        (marker,) = session.statistics()

    assert marker.total == program.ask("counts")["evaluated"] == 6


def test_a_marker_that_was_traced_meanwhile_has_counted_all_the_time(target: Callable) -> None:
    program = target("truth_process")

    with markerjit.attach(program.pid) as session:
        session.enable("*")
        program.command("pass 10")
        for clock in ("tsc", "none"):
            with session.trace("*", time=clock) as stream:
                program.command("pass 10")
            assert len(stream.drain()) == 10
        program.command("pass 10")
        (marker,) = session.statistics()

    assert marker.probe == "count"
    assert marker.hits == program.ask("counts")["evaluated"] == 40


def test_losses_are_those_since_the_marker_was_switched_on(target: Callable) -> None:
    program = target("truth_process")

    with markerjit.attach(program.pid, ring_size=4096) as session:
        for turns in (3000, 2000):
            with session.trace("*") as stream:
                program.command(f"pass {turns}")
            came = len(stream.drain())
            (marker,) = session.statistics()
            assert (marker.hits, marker.lost) == (turns, turns - came)
            assert marker.lost > 0


def test_what_a_reader_left_is_no_part_of_the_next_hits(target: Callable) -> None:
    """Records that nobody has taken out are counted late; not twice, and not as new ones."""
    program = target("truth_process")

    with markerjit.attach(program.pid) as session:
        session.enable("*", probe="record")
        program.command("pass 7")
        with session.trace("*", resume=True) as stream:
            program.command("pass 10")
        stream.drain()
        (marker,) = session.statistics()

    assert marker.total == program.ask("counts")["evaluated"] == 17


def test_a_marker_that_counts_again_is_its_controllers_again(target: Callable) -> None:
    """BY and SINCE are those of the `on` that came before the trace."""
    program = target("truth_process")
    cli("on", program.pid, "*")
    (on,) = facts("status", program.pid)["markers"]

    with markerjit.attach(program.pid) as session, session.trace("*", time="none"):
        pass

    (again,) = facts("status", program.pid)["markers"]
    assert (again["by"], again["since"], again["probe"]) == (on["by"], on["since"], "count")
