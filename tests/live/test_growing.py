"""Traces whose rings grow while they fall behind."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable

import pytest

import markerjit
from markerjit.arena.arena import Arena
from tests.support.commands import cli, running
from tests.support.markers import losses, wait_on
from tests.support.programs import Target
from tests.support.timing import wait_until

SMALL = 1 << 14
PER_SMALL = SMALL // 32


def arena_of(session: markerjit.Session) -> Arena:
    arena = session._target.seen.arena
    assert arena
    return arena


def used_behind(arena: Arena, size: int) -> int:
    """Bytes of memory that rings have behind their first `size` bytes."""
    geometry = arena.geometry
    return sum(
        end - start
        for ring in range(geometry.rings)
        for start, end in arena.store.used(
            geometry.ring_offset(ring) + size, geometry.ring_stride - size
        )
    )


def pin(program: Target) -> None:
    """Keep all threads on one CPU, so that one ring gets all events."""
    for thread in os.listdir(f"/proc/{program.pid}/task"):
        os.sched_setaffinity(int(thread), {max(os.sched_getaffinity(0))})


def trace_rising(program: Target, growth: int) -> tuple[int, int, int]:
    """Run a crowd so that between two polls there are more and more events, at most a few rings
    full: events, losses, turns."""
    with markerjit.attach(program.pid, ring_size=SMALL) as session:
        before = program.ask("counts")["crowd_turn"]
        with session.trace("crowd_turn", ring_growth=growth) as stream:
            events = 0
            for rings in (1, 2, 4, 8):
                for _ in range(4):
                    turns = program.ask(f"run {rings * PER_SMALL * 2 // 3}")["crowd_turn"]
                    events += len(stream.poll())
        events += len(stream.drain())
        assert stream.statistics()[2:] == (0, 0, ())
        return events, stream.statistics().lost, turns - before


@pytest.mark.parametrize("rseq", ["1", "0"], ids=["own rings", "shared rings"])
def test_nothing_is_lost_where_rings_may_grow(
    target: Callable, monkeypatch: pytest.MonkeyPatch, rseq: str
) -> None:
    monkeypatch.setenv("GLIBC_TUNABLES", f"glibc.pthread.rseq={rseq}")
    program = target("truth_crowd", "1")
    pin(program)

    events, lost, turns = trace_rising(program, 1 << 20)
    fewer, more_lost, others = trace_rising(program, 0)

    assert (events, lost) == (turns, 0)
    assert fewer + more_lost == others
    assert more_lost > 0


def test_memory_is_given_back_at_the_end(target: Callable) -> None:
    program = target("truth_threads", "2", "--spin")

    with markerjit.attach(program.pid, ring_size=SMALL) as session:
        with session.trace("truth_loop", ring_growth=1 << 20) as stream:
            events = 0
            arena = arena_of(session)

            def has_grown() -> bool:
                nonlocal events
                events += len(stream.poll())
                return stream.grown > 1 << 19

            wait_until(has_grown, "rings that grow")
            assert sum(arena.rings.sizes()) == arena.geometry.rings * SMALL + stream.grown
            assert used_behind(arena, SMALL) > 0
            program.ask("pause")  # so that none is between its marker and its ring
        events += len(stream.drain())
        (status,) = session.statistics("truth_loop")
        assert set(arena.rings.sizes()) == {SMALL}
        assert used_behind(arena, SMALL) == 0
        assert stream.ring_size == SMALL
        assert status.total == events + status.lost == events + stream.statistics().lost
        assert stream.statistics()[2:] == (0, 0, ())


def test_a_trace_after_one_that_was_killed_has_rings_as_before(target: Callable) -> None:
    program = target("truth_threads", "2", "--spin")

    with markerjit.attach(program.pid, ring_size=1 << 20) as session:
        with running("trace", program.pid, "truth_loop") as tracer:
            wait_on(program.pid, "truth_loop", tracer)
            assert tracer.stdout
            session.statistics()
            arena = arena_of(session)
            while max(arena.rings.sizes()) == 1 << 20:
                tracer.stdout.buffer.raw.read(1 << 16)  # type: ignore[union-attr]
            tracer.kill()
            tracer.wait()
        assert max(arena.rings.sizes()) > 1 << 20

        with session.trace("truth_loop", resume=True, ring_growth=0) as stream:
            assert max(arena.rings.sizes()) > 1 << 20
            resumed = len(stream.poll())
        with session.trace("truth_loop", ring_growth=0) as stream:
            assert set(arena.rings.sizes()) == {1 << 20}
            wait_until(stream.poll, "events")

        assert resumed > 0
        assert used_behind(arena, 1 << 20) == 0
        assert stream.statistics()[2:] == (0, 0, ())


def test_lossless_rings_do_not_grow(target: Callable) -> None:
    program = target("truth_threads", "2", "--spin")

    with markerjit.attach(program.pid, ring_size=SMALL) as session:
        with session.trace("truth_loop", lossless=True) as stream:
            for _ in range(10):
                stream.poll()
        assert losses(session)["truth_loop"] == 0

    assert stream.grown == 0


@pytest.mark.parametrize("as_json", [False, True])
def test_summary_says_how_much_rings_grew(target: Callable, as_json: bool) -> None:
    program = target("truth_process")
    options = ["--json"] if as_json else []

    with running("trace", program.pid, "*", "--ring-size", 1, *options) as tracer:
        wait_on(program.pid, "truth_process", tracer)
        tracer.send_signal(signal.SIGSTOP)  # so that the rings get full
        program.command("pass 250000")
        tracer.send_signal(signal.SIGCONT)
        tracer.stdout.read(1)  # type: ignore[union-attr]
        tracer.send_signal(signal.SIGINT)
        out, errors = tracer.communicate()

    if as_json:
        assert json.loads(out.splitlines()[-1])["summary"]["grown"] >= 1 << 20
    else:
        assert "KiB in all while this trace fell behind" in errors


def test_rings_that_may_not_grow_do_not(target: Callable) -> None:
    program = target("truth_threads", "2", "--spin")

    done = cli("trace", program.pid, "truth_loop", "--events", 50_000, "--ring-growth", 0, "--json")

    assert "grown" not in json.loads(done.stdout.splitlines()[-1])["summary"]
