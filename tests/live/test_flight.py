"""The flight recorder on real programs: pictures while it runs and after its end, what was kept and
overwritten against what was passed, and the process that waits for a crash."""

from __future__ import annotations

import os
import random
import struct
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import markerjit
from markerjit import Mode
from markerjit.remote.native import clock_pair
from markerjit.ring.types import Time
from tests.support.commands import cli, one_line
from tests.support.pictures import check_whole, in_picture, rows
from tests.support.programs import Target
from tests.support.timing import wait_until

pytestmark = pytest.mark.also_user

Picture = Any
OWN_RINGS = pytest.mark.parametrize("rseq", ["1", "0"], ids=["own rings", "shared rings"])


@pytest.fixture
def start(target: Callable, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Target]:
    """Start a program with or without restartable sequences."""

    def start(rseq: str, *args: str) -> Target:
        monkeypatch.setenv("GLIBC_TUNABLES", f"glibc.pthread.rseq={rseq}")
        return target(*args)

    return start


def kept(picture: Picture) -> dict[str, tuple[int, int, int]]:
    """By marker: events, overwritten, lost; where there is any."""
    return {name: tuple(numbers) for name, numbers in picture.kept.items() if any(numbers)}


# ---- pictures ----------------------------------------------------------------------------------


@pytest.mark.user
def test_every_picture_of_a_running_program_is_whole_and_in_order(target: Callable) -> None:
    program = target("truth_threads", "3", "--rate", "30000")

    newest: dict[int, int] = {}
    rings: frozenset[int] = frozenset()
    with markerjit.attach(program.pid, ring_size=1 << 16) as session:
        session.record("truth_loop")
        flight = session.flight()
        for _ in range(25):
            until, _ = clock_pair()
            picture = flight.picture()
            rings = check_whole(picture, flight.types, until, rings)
            for columns in picture.batch.columns:
                for _, i, n in rows(columns):
                    newest[i] = max(n, newest.get(i, 0))
        session.disable("*")

    counts = program.ask("pause")
    assert 0 < sum(newest.values()) <= counts["truth_loop"] + counts["threads"]


@OWN_RINGS
@pytest.mark.parametrize("ring_size", [1 << 12, 1 << 14, 1 << 20])
def test_kept_overwritten_and_lost_are_what_was_passed(
    start: Callable[..., Target], rseq: str, ring_size: int
) -> None:
    program = start(rseq, "truth_crowd", "4", "--move", "--alarm", "3", "--fork")

    with markerjit.attach(program.pid, ring_size=ring_size) as session:
        session.record("crowd_*")
        for _ in range(3):
            counts = program.ask("run 800")
            picture = session.flight().picture()
            counts.pop("crowd_child")
            assert {name: sum(numbers) for name, numbers in kept(picture).items()} == counts
            assert in_picture(picture) == Counter(
                {name: numbers[0] for name, numbers in kept(picture).items()}
            )
        if ring_size == 1 << 20:
            assert not any(overwritten for _, overwritten, _ in kept(picture).values())
        session.disable("*")


@OWN_RINGS
def test_handler_that_records_more_than_a_ring_holds_does_not_wait_for_what_it_interrupts(
    start: Callable[..., Target], rseq: str
) -> None:
    program = start(rseq, "truth_crowd", "2", "--alarm", "400")

    with markerjit.attach(program.pid, ring_size=1 << 12) as session:
        session.record("crowd_*")
        counts = program.ask("run 30000")
        seen = {name: sum(numbers) for name, numbers in kept(session.flight().picture()).items()}
        session.disable("*")

    assert counts["crowd_alarm"] > 400
    assert seen == {name: count for name, count in counts.items() if count}


@pytest.mark.parametrize("clock", list(Time))
def test_picture_has_the_clock_that_was_asked_for(target: Callable, clock: Time) -> None:
    program = target("truth_modes-jump")
    # Rings of two CPUs are put in order by the time alone, and the coarse one stays for 4 ms.
    os.sched_setaffinity(program.pid, {max(os.sched_getaffinity(0))})

    with markerjit.attach(program.pid) as session:
        with session.trace("truth_mode", time="none" if clock is Time.TSC else "tsc"):
            program.command("run 3")
        session.record("truth_mode", time=clock, thread_id=False)
        program.command("run 7")
        picture = session.flight().picture()

    assert kept(picture) == {"truth_mode": (7, 0, 0)}
    (columns,) = picture.batch.columns
    assert (columns.type.time, picture.clock.time) == (clock, clock)
    assert columns.fields["i"].tolist() == list(range(7))
    assert columns.tid.tolist() == [0] * 7


def test_each_flight_begins_anew(target: Callable) -> None:
    program = target("truth_modes-jump")

    with markerjit.attach(program.pid) as session:
        with session.trace("truth_mode") as stream:
            program.command("run 100")
        assert len(stream.drain()) == 100
        for turns in (7, 3, 5):
            session.record("truth_mode")
            program.command(f"run {turns}")
            picture = session.flight().picture()
            assert kept(picture) == {"truth_mode": (turns, 0, 0)}
            session.disable("*")
            program.command("run 10")
            assert kept(session.flight().picture()) == kept(picture), "it stays until the next"
        with session.trace("truth_mode") as stream:
            program.command("run 4")
        assert [event.fields["i"] for event in stream.drain()] == [0, 1, 2, 3]
        assert stream.dropped_bytes == 0
        with pytest.raises(markerjit.Refused, match="no flight recorder"):
            session.flight()


def test_flight_is_over_when_its_markers_are_put_to_another_use(target: Callable) -> None:
    program = target("truth_modes-jump")

    with markerjit.attach(program.pid) as session:
        session.record("truth_mode")
        program.command("run 5")
        assert session.arena().flight
        session.enable("truth_mode", probe="count", force=True)
        assert not session.arena().flight
        assert kept(session.flight().picture()) == {"truth_mode": (5, 0, 0)}
        with session.trace("truth_mode") as stream:
            program.command("run 3")
        assert len(stream.drain()) == 3
        program.command("run 2")
        (marker, _) = session.statistics()
    assert (marker.probe, marker.total) == ("count", 10)


def test_marker_that_is_only_counted_is_no_part_of_a_flight(target: Callable) -> None:
    program = target("truth_modes-jump")

    with markerjit.attach(program.pid) as session:
        session.enable("truth_spin")
        session.record("truth_mode")
        program.command("run 7")
        program.command("resume")
        spins = program.ask("pause")["truth_spin"]
        assert kept(session.flight().picture()) == {"truth_mode": (7, 0, 0)}
        session.disable("truth_mode")
        assert not session.arena().flight, "the other one is on, and is no flight recorder"
        with session.trace("truth_mode"):
            pass
        hits = {marker.name: marker.total for marker in session.statistics()}
    assert hits == {"truth_mode": 7, "truth_spin": spins}


@pytest.mark.parametrize("options", [{"time": "none"}, {"thread_id": False}])
def test_what_joins_a_flight_is_recorded_as_that_is(
    target: Callable, options: dict[str, Any]
) -> None:
    program = target("truth_modes-jump")

    with markerjit.attach(program.pid) as session:
        session.record("truth_mode")
        program.command("run 7")
        with pytest.raises(markerjit.Refused, match="time tsc, with the thread id"):
            session.record("truth_spin", **options)
        assert kept(session.flight().picture()) == {"truth_mode": (7, 0, 0)}
        session.disable("*")
        session.record("truth_mode", **options)
        program.command("run 3")
        assert kept(session.flight().picture()) == {"truth_mode": (3, 0, 0)}


def test_markers_join_a_flight_that_is_on(target: Callable) -> None:
    program = target("truth_modes-jump")

    with markerjit.attach(program.pid) as session:
        session.record("truth_mode")
        program.command("run 7")
        session.record("truth_*")
        program.command("run 5")
        program.command("resume")
        spins = program.ask("pause")["truth_spin"]
        picture = session.flight().picture()

    sums = {name: sum(numbers) for name, numbers in kept(picture).items()}
    assert sums == {"truth_mode": 12, "truth_spin": spins}


@pytest.mark.user
def test_child_of_a_fork_records_nothing(target: Callable) -> None:
    program = target("truth_fork")

    with markerjit.attach(program.pid) as session:
        session.record("truth_*")
        for _ in range(5):
            program.command("fork 100")
        picture = session.flight().picture()
        session.disable("*")

    assert kept(picture) == {"truth_parent": (5, 0, 0)}


@OWN_RINGS
def test_nonsense_in_the_rings_is_come_through(start: Callable[..., Target], rseq: str) -> None:
    program = start(rseq, "truth_threads", "2", "--rate", "20000")
    chosen = random.Random(7)

    with markerjit.attach(program.pid, ring_size=1 << 14) as session:
        session.record("truth_*")
        arena, flight = session._target.seen.arena, session.flight()
        for turn in range(60):
            ring = chosen.randrange(arena.geometry.rings)
            if turn % 3:
                at = arena.geometry.ring_offset(ring) + chosen.randrange(1 << 14) // 8 * 8
            else:
                at = arena.geometry.head_offset(ring)
            arena.store.write(at, struct.pack("<Q", chosen.getrandbits(40) & -8))
            assert set(in_picture(flight.picture())) <= {"truth_loop"}
        session.disable("*")
    assert program.ask("counts")["truth_loop"] > 0


# ---- one at a time -----------------------------------------------------------------------------


@pytest.mark.parametrize("more", [[], ["--resume"], ["--ring-size", "4"]])
def test_trace_is_refused_while_a_flight_recorder_is_on(target: Callable, more: list[str]) -> None:
    program = target("truth_modes-jump")
    cli("flight", "start", program.pid, "truth_mode")
    program.command("run 9")

    refused = cli("trace", program.pid, "truth_spin", "--duration", "1", *more)

    one_line(refused, "flight recorder is on.*markerjit flight dump.*markerjit flight stop")
    shown = cli("on", program.pid, "truth_spin")
    assert (shown.returncode, shown.stderr) == (0, "")
    program.command("run 9")
    with markerjit.attach(program.pid) as session:
        assert kept(session.flight().picture()) == {"truth_mode": (18, 0, 0)}


def test_flight_that_was_switched_off_by_somebody_who_died_is_over(target: Callable) -> None:
    """Between the last write and its being written down."""
    program = target("truth_modes-jump")

    with markerjit.attach(program.pid) as session:
        session.record("truth_mode")
        arena = session._target.seen.arena
        flown = [entry for entry in arena.markers.entries() if entry.since]
        session.disable("*")
        for entry in flown:
            arena.markers.note_switched(entry.id, Mode.JUMP)
        with session.trace("truth_mode") as stream:
            program.command("run 4")

    assert len(stream.drain()) == 4


def test_what_is_on_in_another_way_is_no_part_of_a_flight(target: Callable) -> None:
    program = target("truth_modes-jump")

    with markerjit.attach(program.pid) as session:
        session.enable("truth_mode", probe="record")
        with pytest.raises(markerjit.Refused, match="truth_mode is on and is recorded with time"):
            session.record("truth_spin", time="coarse")
        with (
            markerjit.attach(program.pid, ring_size=4 << 20) as other,
            pytest.raises(markerjit.Refused, match="in use; leave out --ring-size"),
        ):
            other.record("truth_spin")


def test_flight_recorder_is_refused_while_somebody_traces(target: Callable) -> None:
    program = target("truth_modes-jump")

    with markerjit.attach(program.pid) as session, session.trace("truth_mode") as stream:
        refused = cli("flight", "start", program.pid, "truth_spin")
        program.command("run 9")
    events = stream.drain()

    one_line(refused, "is tracing process")
    assert len(events) == 9


def test_what_a_flight_recorder_left_is_not_resumed(target: Callable) -> None:
    program = target("truth_modes-jump")

    with markerjit.attach(program.pid) as session:
        session.record("truth_mode")
        program.command("run 9")
        session.disable("*")
        with session.trace("truth_mode", resume=True) as stream:
            program.command("run 4")
        events = stream.drain()

    assert [event.fields["i"] for event in events] == [0, 1, 2, 3]
    assert stream.statistics() == (4, 0, 0, 0, ())


@pytest.mark.user
def test_rings_of_a_dead_program_are_read_to_the_last_event(
    target: Callable, tmp_path: Path
) -> None:
    counts = tmp_path / "counts"
    program = target("truth_crowd", "3", "--move", "--counts", counts, may_die=True)

    with markerjit.attach(program.pid, ring_size=1 << 16) as session:
        session.record("crowd_turn")
        flight = session.flight()
        program.process.stdin.write(b"run 100000000\n")
        program.process.stdin.flush()
        wait_until(lambda: sum(struct.unpack("<3Q", counts.read_bytes()[:24])) > 20_000, "turns")
        program.process.kill()
        program.wait()
        picture = flight.picture()

    counted = struct.unpack("<3Q", counts.read_bytes()[:24])
    (columns,) = picture.batch.columns
    latest: dict[int, int] = {}
    for _, who, n in rows(columns):
        assert n > latest.get(who, 0)
        latest[who] = n
    assert all(n in (counted[who], counted[who] + 1) for who, n in latest.items())
    assert len(latest) == 3
    assert 0 <= sum(kept(picture)["crowd_turn"]) - sum(counted) <= 3
