"""Traces for which the process waits where it would lose events."""

from __future__ import annotations

import json
import os
import signal
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

import markerjit
from markerjit import Refused
from markerjit.abi import READER_NS
from markerjit.arena.waiting import Waiting
from markerjit.events.stream import feeds_of
from markerjit.ring.types import Time
from tests.support.c_probes import TURNS
from tests.support.commands import cli, running
from tests.support.markers import losses, modes_of, wait_on
from tests.support.programs import Target
from tests.support.timing import wait_until

SMALL = 1 << 14
"""Bytes of a ring that a crowd fills many times."""
NAP_S = 0.001


def waiting_of(session: markerjit.Session) -> Waiting:
    arena = session._target.seen.arena
    assert arena
    return Waiting(arena)


def trace_crowd(
    program: Target, turns: int, **options: object
) -> tuple[Counter[str], Counter[str], dict[str, int], int]:
    """Run a crowd to its end with a reader that reads only when a thread waits for it: the events
    and the losses by marker, what the program has counted, and the number of events that waited."""
    events: Counter[str] = Counter()
    with (
        markerjit.attach(program.pid, ring_size=SMALL) as session,
        ThreadPoolExecutor(1) as helper,
    ):
        with session.trace("crowd_*", lossless=True, **options) as stream:  # type: ignore[arg-type]
            running = helper.submit(program.ask, f"run {turns}")
            waiting = waiting_of(session)
            while not running.done():
                feeds_of([stream])[0].let_wait()
                if waiting.threads:
                    events += Counter(event.name for event in stream.poll())
                time.sleep(NAP_S)
        events += Counter(event.name for event in stream.drain())
        lost = losses(session)
    assert stream.statistics()[2:] == (0, 0, ())
    return events, lost, running.result(), stream.waits().events


@pytest.mark.product
@pytest.mark.parametrize("clock", [Time.TSC, Time.MONOTONIC])
@pytest.mark.parametrize(
    ("crowd", "turns"), [(["16"], 2000), (["4", "--move"], 4000), (["3", "--fork"], 8000)]
)
def test_events_are_the_hits_where_the_reader_is_slower(
    target: Callable, crowd: list[str], turns: int, clock: Time
) -> None:
    program = target("truth_crowd", *crowd)

    events, lost, counts, waits = trace_crowd(program, turns, time=clock)

    assert events["crowd_turn"] == counts["crowd_turn"]
    assert lost.total() == 0
    assert waits > 0


@pytest.mark.parametrize("rseq", ["1", "0"], ids=["own rings", "shared rings"])
def test_events_and_losses_are_the_hits_where_handlers_wait_too(
    target: Callable, monkeypatch: pytest.MonkeyPatch, rseq: str
) -> None:
    monkeypatch.setenv("GLIBC_TUNABLES", f"glibc.pthread.rseq={rseq}")
    program = target("truth_crowd", "3", "--alarm", "3")

    events, lost, counts, waits = trace_crowd(program, 20_000)

    # A handler may wait for a record that the thread it interrupts has not finished. It gives up.
    del counts["crowd_child"]
    assert counts["crowd_alarm"] > 0
    assert events + lost == Counter(counts)
    assert waits > 0


def test_markers_go_off_while_threads_wait_and_what_they_recorded_is_delivered(
    target: Callable,
) -> None:
    program = target("truth_threads", "2", "--paused")

    with markerjit.attach(program.pid, ring_size=SMALL) as session:
        with session.trace("truth_loop", lossless=True) as stream:
            program.ask("resume")
            wait_until(lambda: stream.waits().events >= 2, "threads that wait")
        events = stream.drain()
        assert modes_of(program.pid)["truth_loop"] is None
        assert waiting_of(session).threads == 0
        lost = stream.statistics().lost

    numbers: dict[int, list[int]] = {}
    for event in events:
        numbers.setdefault(event.fields["i"], []).append(event.fields["n"])  # type: ignore
    # Of each thread all turns from the first to the last one; where something was lost, because
    # the switch took longer than anything waits, so many fewer.
    assert sum(of[-1] for of in numbers.values()) - len(events) <= lost
    assert len(events) + lost >= SMALL // 32 + 2


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP])
def test_nothing_waits_for_a_reader_that_was_killed_or_stopped(
    target: Callable, number: int
) -> None:
    program = target("truth_threads", "2", "--spin")

    with running("trace", program.pid, "truth_loop", "--lossless", "--ring-size", 1) as tracer:
        wait_on(program.pid, "truth_loop", tracer)
        with markerjit.attach(program.pid) as session:
            session.statistics()
            waiting = waiting_of(session)
            wait_until(lambda: waiting.counts().events, "a thread that waits")
            tracer.send_signal(number)
            gone = time.monotonic_ns()
            if number == signal.SIGKILL:
                tracer.wait()
            wait_until(lambda: time.monotonic_ns() > gone + READER_NS, "the reader's time")
            wait_until(lambda: not waiting.threads, "threads that go on")
            waits, turns = waiting.counts().events, program.ask("counts")["truth_loop"]
            wait_until(
                lambda: program.ask("counts")["truth_loop"] > turns + 1_000_000, "a million turns"
            )

            assert waiting.counts().events == waits
        tracer.send_signal(signal.SIGCONT)


def test_a_process_that_ends_while_it_waits_ends_the_trace(target: Callable) -> None:
    program = target("truth_threads", "2", "--spin", may_die=True)

    with markerjit.attach(program.pid, ring_size=SMALL) as session:
        with session.trace("truth_loop", lossless=True) as stream:
            wait_until(lambda: stream.waits().events, "a thread that waits")
            os.kill(program.pid, signal.SIGKILL)
            program.wait()
            assert stream.is_over()
        events = stream.drain()

    assert stream.target_ended
    assert events
    assert stream.waits().events > 0


def test_summary_says_how_much_the_process_waited(target: Callable) -> None:
    program = target("truth_threads", "2", "--spin")
    args = ("trace", program.pid, "truth_loop", "--lossless", "--events", 200_000)

    done = cli(*args)
    in_json = cli(*args, "--json")

    first, *_, last = done.stderr.splitlines()
    assert first == "lossless: where a ring is full, the process waits for us"
    assert last.endswith(" s in all (--lossless)")
    assert " waited for this trace, " in last
    assert int(last.split()[0].replace(",", "")) > 0
    summary = json.loads(in_json.stdout.splitlines()[-1])["summary"]
    assert summary["waited"]["events"] > 0
    assert summary["waited"]["seconds"] > 0


def test_a_trace_that_is_not_lossless_waits_for_nothing(target: Callable) -> None:
    program = target("truth_threads", "2", "--spin")

    done = cli("trace", program.pid, "truth_loop", "--events", 1000, "--json")

    assert "waited" not in json.loads(done.stdout.splitlines()[-1])["summary"]
    with markerjit.attach(program.pid) as session:
        session.statistics()
        assert waiting_of(session).counts() == (0, 0)


def test_lossless_is_refused_in_our_own_process() -> None:
    with markerjit.attach() as session, pytest.raises(Refused, match="another process"):  # noqa: SIM117
        with session.trace("*", lossless=True):
            pass


def test_lossless_is_refused_with_a_probe_in_c(target: Callable, probe: Callable) -> None:
    program = target("truth_threads", "1", "--paused")
    name = probe(TURNS, "count")

    done = cli("trace", program.pid, "truth_loop", "--lossless", "--probe", name)
    with markerjit.attach(program.pid) as session, pytest.raises(ValueError, match="lossless"):  # noqa: SIM117
        with session.trace("truth_loop", lossless=True, probe=name):
            pass

    assert done.returncode == 1
    assert "leave out --lossless" in done.stderr


def test_help_is_loud() -> None:
    assert "MAKES THE PROCESS WAIT" in cli("trace", "--help").stdout
