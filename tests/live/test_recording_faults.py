"""Recording when something goes wrong: readers and programs that are killed, rings with nonsense in
them, disks that are full, and files that cannot be written. What is recorded, and what is lost, is
still what the program counted; the markers are off afterwards."""

from __future__ import annotations

import json
import os
import random
import re
import signal
import struct
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import markerjit
from markerjit.events.rings import Rings
from tests.support.commands import cli, facts, one_line, running
from tests.support.markers import modes_of, wait_on, wait_switched
from tests.support.programs import Target
from tests.support.timing import wait_until
from tests.support.turns import by_thread, let_turn, turns_in

RATE = "1000"
"""Turns of a thread in a second, so few that none is lost while a tracer begins."""


def summary_in(path: Path) -> dict[str, Any]:
    return json.loads(path.read_text().splitlines()[-1])["summary"]


def counts_in(path: Path) -> tuple[int, int]:
    """Events and losses, where everything was shown and nobody took a marker."""
    summary = summary_in(path)
    assert not summary.get("not_shown") and not summary.get("taken")
    return summary["events"], summary["lost"]


# ---- the reader is killed ----------------------------------------------------------------------


@contextmanager
def traced_into(path: Path, pid: int, *args: object) -> Iterator[subprocess.Popen[str]]:
    """`trace` with its JSON lines in a file, once the marker is on."""
    with (
        path.open("w") as file,
        running("trace", pid, "truth_loop", "--json", *args, stdout=file) as tracer,
    ):
        wait_until(
            lambda: tracer.poll() is not None or reads(pid, tracer.pid), "the tracer to begin"
        )
        wait_on(pid, "truth_loop", tracer)
        wait_switched(pid)
        yield tracer


def reads(pid: int, reader: int) -> bool:
    """Whether this process reads the rings of that one, and has looked into them."""
    with markerjit.View(pid) as view:
        arena = view.arena()
        return bool(arena and arena.reader and arena.reader.owner.pid == reader)


def all_printed(path: Path, turns: int) -> Callable[[], bool]:
    """Whether a file has as many events. They were not lost: the rate is low."""
    return lambda: path.read_text().count("\n") == turns


def killed_reader(program: Target, path: Path, *, busy: bool) -> int:
    """A reader is killed, in the middle of its work or when it has none; the program goes on and
    then stands still. Returns how many events it had printed."""
    with traced_into(path, program.pid) as tracer:
        program.ask("resume")
        wait_until(lambda: path.stat().st_size > 1 << 14, "events")
        if not busy:
            turns = program.ask("pause")["truth_loop"]
            wait_until(all_printed(path, turns), "all events")
        tracer.kill()
        tracer.wait()
    if not busy:
        program.ask("resume")
    wait_until(lambda: left_in_rings(program.pid) > 1 << 12, "events that nobody reads")
    program.ask("pause")
    return len(turns_in(path))


def left_in_rings(pid: int) -> int:
    with markerjit.attach(pid) as session:
        arena = session._target.seen.arena
        return Rings(arena, {}).unread()


@pytest.mark.parametrize("busy", [False, True], ids=["idle", "busy"])
def test_another_reader_goes_on_where_a_killed_one_stopped(
    target: Callable, tmp_path: Path, busy: bool
) -> None:
    program = target("truth_threads", "2", "--rate", RATE, "--paused")
    first, second = tmp_path / "first", tmp_path / "second"

    killed_reader(program, first, busy=busy)
    with traced_into(second, program.pid, "--resume") as tracer:
        program.ask("resume")
        time.sleep(0.05)
        counts = program.ask("pause")
        tracer.send_signal(signal.SIGINT)
        _, errors = tracer.communicate()

    assert (tracer.returncode, errors) == (0, "")
    before, after = turns_in(first), turns_in(second)
    lost = summary_in(second)["lost"]
    assert summary_in(second)["events"] == len(after)
    # What the dead reader had taken out of the rings and not printed, nobody has.
    taken = counts["truth_loop"] - len(before) - len(after) - lost
    assert taken >= 0 if busy else taken == 0
    assert len({*before, *after}) == len(before) + len(after)
    threads_before, threads_after = by_thread(before), by_thread(after)
    missing = 0
    for who, turns in threads_after.items():
        earlier = threads_before.get(who, [])
        assert earlier == list(range(1, len(earlier) + 1))
        assert turns == sorted(turns)
        missing += turns[-1] - len(earlier) - len(turns)
    assert missing == taken + lost


def test_another_reader_says_how_much_it_drops_of_what_a_killed_one_left(
    target: Callable, tmp_path: Path
) -> None:
    program = target("truth_threads", "2", "--rate", RATE, "--paused")
    first, second = tmp_path / "first", tmp_path / "second"

    killed_reader(program, first, busy=False)
    before = program.ask("counts")["truth_loop"]
    left = left_in_rings(program.pid)
    with traced_into(second, program.pid) as tracer:
        program.ask("resume")
        time.sleep(0.05)
        after = program.ask("pause")["truth_loop"]
        tracer.send_signal(signal.SIGINT)
        _, errors = tracer.communicate()

    kibibytes = -(-left // 1024)
    assert tracer.returncode == 0
    assert errors.splitlines()[0].startswith(f"{kibibytes} KiB of events"), errors
    assert "--resume" in errors
    assert len(errors.splitlines()) == 1, errors
    assert sum(counts_in(second)) == after - before
    assert len(turns_in(second)) == after - before


def test_status_says_that_a_reader_was_killed_and_the_next_command_switches_off(
    target: Callable, tmp_path: Path
) -> None:
    program = target("truth_threads", "2", "--rate", RATE, "--paused")
    killed_reader(program, tmp_path / "first", busy=False)

    shown = cli("status", program.pid)
    cli("on", program.pid, "truth_birth")

    assert "is gone and left its markers recording" in shown.stderr
    assert modes_of(program.pid) == {"truth_loop": None, "truth_birth": "jump"}


def test_what_a_killed_reader_recorded_in_another_way_is_left_out_and_that_is_said(
    target: Callable, tmp_path: Path
) -> None:
    program = target("truth_threads", "2", "--rate", RATE, "--paused")
    second = tmp_path / "second"

    with traced_into(tmp_path / "first", program.pid, "--no-thread-id") as tracer:
        tracer.kill()
        tracer.wait()
    program.ask("resume")
    wait_until(lambda: left_in_rings(program.pid) > 1 << 12, "events that nobody reads")
    before = program.ask("pause")["truth_loop"]
    with traced_into(second, program.pid, "--resume", "--fields", "i,n") as tracer:
        program.ask("resume")
        time.sleep(0.05)
        after = program.ask("pause")["truth_loop"]
        tracer.send_signal(signal.SIGINT)
        _, errors = tracer.communicate()

    assert tracer.returncode == 0
    assert errors.startswith(f"left out: {before:,} events of an earlier reader, recorded with")
    assert sum(counts_in(second)) == after - before


def test_reader_that_was_away_too_long_says_who_has_the_rings_now(
    target: Callable, tmp_path: Path
) -> None:
    program = target("truth_threads", "2", "--rate", RATE, "--paused")
    first, second = tmp_path / "first", tmp_path / "second"

    with traced_into(first, program.pid) as away:
        away.send_signal(signal.SIGSTOP)
        with markerjit.attach(program.pid) as session:
            session._target.seen.arena.control.write("lease_ns", 1)
        with traced_into(second, program.pid) as tracer:
            away.send_signal(signal.SIGCONT)
            _, errors = away.communicate()
            program.ask("resume")
            time.sleep(0.05)
            turns = program.ask("pause")["truth_loop"]
            tracer.send_signal(signal.SIGINT)
            assert tracer.communicate()[1] == ""

    assert (away.returncode, tracer.returncode) == (1, 0)
    assert "another controller took the rings" in errors
    assert sum(counts_in(second)) == turns
    assert turns_in(first) == []


# ---- the program is killed ---------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["jump", "int3"])
@pytest.mark.parametrize("turn", range(2))
def test_all_that_a_killed_program_had_recorded_is_there(
    target: Callable, tmp_path: Path, mode: str, turn: int
) -> None:
    counts, events = tmp_path / "counts", tmp_path / "events"
    program = target("truth_crowd", "3", "--move", "--counts", counts, may_die=True)

    with (
        events.open("w") as file,
        running(
            "trace", program.pid, "crowd_turn", "--mode", mode, "--json", stdout=file,
        ) as tracer,
    ):  # fmt: skip
        wait_on(program.pid, "crowd_turn", tracer)
        program.process.stdin.write(b"run 100000000\n")
        program.process.stdin.flush()
        wait_until(lambda: events.stat().st_size > (turn << 16), "events")
        program.process.kill()
        _, errors = tracer.communicate()

    assert tracer.returncode == 1
    assert re.fullmatch(f"markerjit: process {program.pid} .*ended.*\n", errors)
    counted = struct.unpack("<3Q", counts.read_bytes()[:24])
    seen = by_thread(turns_in(events))
    lost = summary_in(events)["lost"]
    assert summary_in(events)["events"] == sum(map(len, seen.values()))
    in_the_middle = 0
    for who, turns in seen.items():
        assert turns == sorted(set(turns))
        assert turns[-1] <= counted[who] + 1
        in_the_middle += turns[-1] == counted[who] + 1
    recorded = sum(map(len, seen.values()))
    assert 0 <= recorded + lost - sum(counted) <= 3
    assert in_the_middle <= recorded + lost - sum(counted)


# ---- rings with nonsense in them ---------------------------------------------------------------


class Mutator:
    """Writes nonsense into the rings of an arena, as the program could."""

    def __init__(self, arena: Any, seed: int) -> None:
        self._arena = arena
        self._random = random.Random(seed)

    def ring(self) -> int:
        return self._random.randrange(self._arena.geometry.rings)

    def content(self) -> None:
        """A few words of a ring, also headers that look like one: anywhere, and as often where the
        records are that were not read yet."""
        words = [
            self._random.choice([0, 1 << 16, 3 << 16, 0xFFFF, 0xFFFFFFFF, (1 << 64) - 1])
            if self._random.random() < 0.5
            else self._random.getrandbits(64)
            for _ in range(self._random.randrange(1, 8))
        ]
        ring, most = self.ring(), self._arena.geometry.ring_size // 8 - 8
        head = self._arena.store.read(self._arena.geometry.head_offset(ring), 8)
        near = int.from_bytes(head, "little") // 8 - self._random.randrange(1, 40)
        at = near % most if self._random.random() < 0.5 else self._random.randrange(most)
        offset = self._arena.geometry.ring_offset(ring) + at * 8
        self._arena.store.write(offset, struct.pack(f"<{len(words)}Q", *words))

    def head(self) -> None:
        """Somewhere else: near, far, or nowhere."""
        offset = self._arena.geometry.head_offset(self.ring())
        now = int.from_bytes(self._arena.store.read(offset, 8), "little")
        moved = self._random.choice(
            [now - 64, now + 4096, now ^ 1 << 40, self._random.getrandbits(63) & -8, 0]
        )
        self._arena.store.write(offset, struct.pack("<Q", moved % (1 << 64)))


def test_interrupt_while_markers_are_switched_on_leaves_them_to_whoever_comes_next(
    target: Callable, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ctrl-C in a program that uses the library: nobody has counted on it, and some are on."""
    program = target("truth_threads", "2", "--rate", "2000")
    session = markerjit.attach(program.pid)
    switch = session._switcher.switch

    def interrupted(*args: Any, **more: Any) -> None:
        switch(*args, **more)
        raise KeyboardInterrupt

    with session, monkeypatch.context() as patched:
        patched.setattr(session._switcher, "switch", interrupted)
        with pytest.raises(KeyboardInterrupt), session.trace("truth_*"):
            pass

    assert any(modes_of(program.pid).values())
    with markerjit.attach(program.pid) as session:
        assert session.arena().reader.owner.pid == os.getpid()
        with session.trace("truth_*"):
            pass
    assert set(modes_of(program.pid).values()) == {None}


@pytest.mark.product
@pytest.mark.parametrize("rseq", ["1", "0"], ids=["own rings", "shared rings"])
@pytest.mark.parametrize("what", ["content", "head"])
@pytest.mark.parametrize("seed", range(2))
def test_nonsense_in_rings_is_counted_and_harms_nobody(
    target: Callable, monkeypatch: pytest.MonkeyPatch, what: str, rseq: str, seed: int
) -> None:
    monkeypatch.setenv("GLIBC_TUNABLES", f"glibc.pthread.rseq={rseq}")
    program = target("truth_threads", "2", "--rate", "5000")

    with markerjit.attach(program.pid, ring_size=1 << 14) as session:
        with session.trace("truth_*") as stream:
            mutator = Mutator(session._target.seen.arena, seed)
            names = set()
            for _ in range(40):
                for _ in range(10):
                    getattr(mutator, what)()
                names |= {event.name for event in stream.poll()}
                let_turn(program)
        stream.drain()
        assert sum(stream.statistics()[2:4]) > 0
        assert names <= {"truth_loop", "truth_birth"}
        assert set(modes_of(program.pid).values()) == {None}

        before = program.ask("pause")["truth_loop"]
        with session.trace("truth_*") as stream:  # and what comes next is whole again
            program.ask("resume")
            let_turn(program)
            after = program.ask("pause")["truth_loop"]
        events = stream.drain()
    if what == "content":  # to a head that was elsewhere the runtime may have come back
        assert len(events) > 0
        assert stream.statistics() == (len(events), after - before - len(events), 0, 0, ())


def test_nonsense_of_one_record_costs_that_record_and_is_counted(
    target: Callable, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GLIBC_TUNABLES", "glibc.pthread.rseq=0")
    program = target("truth_modes-jump")

    with markerjit.attach(program.pid) as session:
        arena = session._target.seen.arena
        with session.trace("truth_mode") as stream:
            program.command("run 1")
            assert len(stream.drain()) == 1
            arena = session._target.seen.arena
            heads = {
                ring: arena.store.read(arena.geometry.head_offset(ring), 8)
                for ring in range(arena.geometry.rings)
            }
            program.command("run 10")
            for ring, head in heads.items():
                if arena.store.read(arena.geometry.head_offset(ring), 8) != head:
                    at = int.from_bytes(head, "little") + 8  # behind the commit word
                    arena.store.write(arena.geometry.ring_offset(ring) + at, b"\xaa" * 4)
        events = stream.drain()

    assert len(events) == 9
    assert sum(stream.statistics()[2:4]) == 1


def test_rings_that_are_refused_leave_nothing_behind(target: Callable) -> None:
    program = target("truth_modes-jump")
    cli("on", program.pid, "truth_spin")

    refused = cli("trace", program.pid, "truth_mode", "--ring-size", "1024")

    one_line(refused, "has room for")
    shown = cli("status", program.pid)
    assert (shown.returncode, shown.stderr) == (0, "")
    assert facts("status", program.pid)["arena"]["reader"] is None
    assert modes_of(program.pid) == {"truth_mode": None, "truth_spin": "jump"}
