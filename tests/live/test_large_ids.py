"""Markers with ids of more than 16 bits, on real programs: traced, written, kept and counted."""

from __future__ import annotations

import signal
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import markerjit
from markerjit.remote.native import clock_pair
from markerjit.ring.types import Time
from tests.support.commands import running
from tests.support.pictures import check_whole, in_picture
from tests.support.programs import Target
from tests.support.timing import wait_until
from tests.support.truth_values import TURNS, lines_of, shown

pytestmark = pytest.mark.also_user

FREE = 70_000
"""The arena has given away all smaller ids."""


@pytest.fixture(params=["1", "0"], ids=["own rings", "shared rings"])
def start(
    request: pytest.FixtureRequest, target: Callable, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[..., tuple[Target, Any]]]:
    """A program, and a session whose next marker gets the id FREE."""
    monkeypatch.setenv("GLIBC_TUNABLES", f"glibc.pthread.rseq={request.param}")
    sessions = []

    def start(name: str, marker: str, *args: str) -> tuple[Target, Any]:
        program = target(name, *args)
        session = markerjit.attach(program.pid)
        sessions.append(session)
        with session.trace(marker, time=Time.COARSE):
            pass  # an entry for each way of recording: the next trace needs others
        session._target.seen.arena.control.write("markers_used", FREE)
        return program, session

    yield start
    for session in sessions:
        session.close()


def test_large_ids_are_traced_and_counted(start: Callable) -> None:
    program, session = start("truth_values", "*")
    lines = lines_of(program)

    with session.trace("*") as stream:
        program.ask(f"fire 0 {TURNS}")
    events = stream.drain()

    assert min(stream.types) == FREE
    assert shown(events, stream) == lines
    assert stream.statistics() == (len(lines), 0, 0, 0, ())
    assert sum(marker.total for marker in session.statistics()) == len(lines)


def test_texts_with_large_ids_are_traced(start: Callable) -> None:
    program, session = start("truth_texts", "texts_*")
    places = program.command("places").split()[1:]

    with session.trace("texts_*") as stream:
        assert program.ask("pass 10") == {"bad": 0}
    events = stream.drain()

    assert min(stream.types) == FREE
    assert stream.statistics() == (4 * len(places), 0, 0, 0, ())
    counts = Counter(places[int(str(event.fields["at"]))] for event in events)
    assert counts == Counter(places * 4)


def test_a_trace_of_large_ids_is_written(start: Callable, tmp_path: Path) -> None:
    program, session = start("truth_values", "*")
    lines = lines_of(program)
    path = tmp_path / "t.ctf"

    with running("trace", program.pid, "*", "-o", path) as tracer:
        wait_until(lambda: all(marker.mode for marker in session.statistics()), "markers")
        program.ask(f"fire 0 {TURNS}")
        tracer.send_signal(signal.SIGINT)
        _, errors = tracer.communicate()

    assert errors.startswith(f"{len(lines):,} events")
    trace = markerjit.open_trace(str(path))
    assert min(type_.id for type_ in trace.info.types) == FREE
    assert len(list(trace.events())) == len(lines)


def test_a_flight_recorder_keeps_large_ids(start: Callable) -> None:
    program, session = start("truth_threads", "truth_birth", "3", "--rate", "30000")
    session.record("truth_loop")
    flight = session.flight()

    wait_until(lambda: program.ask("counts")["truth_loop"] > 1000, "events")
    until, _ = clock_pair()
    picture = flight.picture()

    assert set(flight.types) == {FREE}
    check_whole(picture, flight.types, until)
    assert in_picture(picture)["truth_loop"] > 0
    session.disable("*")
