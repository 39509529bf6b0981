"""Questions that are asked one after the other in an open session: what is done for each."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

import markerjit
from markerjit.errors import Refused
from markerjit.probes import idle, unused
from markerjit.proc.sharers import Sharer
from markerjit.remote import references
from markerjit.session import held, unasked
from markerjit.x86 import encoding
from tests.support.timing import wait_until

pytestmark = pytest.mark.live


@pytest.fixture
def stops(monkeypatch: pytest.MonkeyPatch) -> Mock:
    """The stops of a process beside those of switches."""
    stops = Mock(wraps=references.referred)
    monkeypatch.setattr(references, "referred", stops)
    return stops


@pytest.fixture
def assembled(monkeypatch: pytest.MonkeyPatch) -> Mock:
    """What keystone is asked for."""
    assembled = Mock(wraps=encoding.assembled)
    monkeypatch.setattr(encoding, "assembled", assembled)
    return assembled


def test_only_what_is_new_in_a_question_is_assembled(target: Callable, assembled: Mock) -> None:
    program = target("truth_keys", "1")
    asked = []
    with markerjit.attach(program.pid) as session:
        for number in (0x1234, 0x2345, 0x2345):
            assembled.reset_mock()
            where = f"value > {number}"
            with session.aggregate("truth_key", "hist(value)", by="text[:5]", where=where):
                pass
            session.on("truth_key", where=f"value < {number + 1}")
            session.off("truth_key")
            asked.append([call.args[0] for call in assembled.call_args_list])

    assert asked[1:] == [["cmp rax, 0x2345", "cmp rax, 0x2346"], []]


def test_the_threads_of_a_new_question_stop_for_its_switch_alone(
    target: Callable, stops: Mock
) -> None:
    program = target("truth_keys", "2")
    with markerjit.attach(program.pid) as session:
        for number in range(4):
            with session.aggregate("truth_key", by="key", where=f"key != {number}"):
                pass

        assert stops.call_count == 0


def counts_by_key(program: Any, path: Path) -> dict[tuple[int, ...], int]:
    """What the program has counted by itself, since it was started. It stands still."""
    program.ask(f"tell {path}")
    rows = (line.split() for line in path.read_text().splitlines())
    return {(int(row[0]),): int(row[1]) for row in rows}


def pass_by(program: Any, adding: markerjit.AddingUp, events: int) -> None:
    """Have markers executed until so many more events are added."""
    more = adding.read().events + events
    program.ask("resume")
    wait_until(lambda: adding.read().events > more, "events were added")
    program.ask("pause")


def test_nor_do_they_for_a_question_that_is_asked_again(
    target: Callable, stops: Mock, tmp_path: Path
) -> None:
    """Its marker names the memory of the time before, in which no thread is."""
    program = target("truth_keys", "2", "--timer")
    sums: Counter[tuple[object, ...]] = Counter()
    with markerjit.attach(program.pid) as session:
        for _ in range(3):
            with session.aggregate("truth_key", by="key") as adding:
                pass_by(program, adding, 1000)
            sums.update({row.key: row.events for row in adding.read().rows})

        assert stops.call_count == 0
    assert sums == counts_by_key(program, tmp_path / "told")


def test_memory_in_which_a_thread_is_stays(target: Callable, stops: Mock) -> None:
    """It has counted itself in, and not out. So its marker gets other memory, and this is lost."""
    program = target("truth_keys", "1")
    with markerjit.attach(program.pid) as session:
        with session.aggregate("truth_key", by="key") as first:
            pass_by(program, first, 100)
        with session._switcher.turn() as turn:
            arena = turn.seen.arena
            assert arena
            (marker,) = (int(entry.id) for entry in arena.markers.entries() if entry.aggregate)
            entered = arena.geometry.calls_offset(0, marker)
            count = int.from_bytes(arena.store.read(entered, 8), "little")
            arena.store.write(entered, (count + 1).to_bytes(8, "little"))
        with session.aggregate("truth_key", by="key") as again:
            pass_by(program, again, 100)
        with session._switcher.turn() as turn:
            unasked.give_back_memory(turn, arena)
            unasked.give_back(turn, arena)
            kept = arena.markers.entry(marker)

    assert again.read().events >= 100
    assert stops.call_count >= 2
    assert kept.recorder


@pytest.mark.parametrize("kind", ["aggregate", "latency"])
def test_code_of_questions_that_ended_is_given_back(
    target: Callable, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    monkeypatch.setattr(idle, "MOST_IDLE", 3)
    program = target("truth_pairs" if kind == "latency" else "truth_keys", "2")
    rooms, used, known = [], [], []
    with markerjit.attach(program.pid) as session:
        for number in range(16):
            if kind == "latency":
                where = f"tid > {number}"
                with session.latency("truth_begin", "truth_end", where=where) as latency:
                    program.ask("resume")
                    wait_until(lambda: latency.read().pairs > 10, "pairs were made")
                    program.ask("pause")
            else:
                with session.aggregate("truth_key", by=f"key + {100 + number}") as adding:
                    pass_by(program, adding, 10)
                assert min(row.key for row in adding.read().rows) >= (100 + number,)
            with session._switcher.turn() as turn:
                arena = turn.seen.arena
                assert arena
                rooms.append(arena.code.room.code)
                used.append(arena.markers.used)
            known.append(sum(map(len, session._switcher.recorders._known.values())))

    # A word on a stack that looks like an address in code keeps that.
    assert rooms[0] - min(rooms) <= 8 * (rooms[0] - rooms[1])
    assert max(used) <= 8 * used[0]
    assert max(known) <= 2


def test_a_child_that_keeps_their_code_costs_few_looks(
    target: Callable, stops: Mock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are looked at again only when there are twice as many."""
    monkeypatch.setattr(idle, "MOST_IDLE", 2)
    child = Mock(return_value=Sharer(1, "it is a child"))
    monkeypatch.setattr(unused, "find_sharer", child)
    program = target("truth_keys", "1")
    with markerjit.attach(program.pid) as session:
        for number in range(12):
            with session.aggregate("truth_key", by=f"key + {number}"):
                pass

    assert child.call_count == 3  # with 2, 4 and 8 of them
    assert stops.call_count == 3


def test_memory_stays_where_a_thread_does_not_stop(target: Callable, stops: Mock) -> None:
    program = target("truth_keys", "1")
    with markerjit.attach(program.pid) as session:
        with session.aggregate("truth_key", by="key"):
            pass
        with session._switcher.turn() as turn:
            arena = turn.seen.arena
            assert arena
            stops.side_effect = Refused("a thread does not stop")
            unasked.give_back_memory(turn, arena)
            kept = arena.aggregates.ended
            stops.side_effect = None
            unasked.give_back_memory(turn, arena)

            assert (kept, arena.aggregates.ended) == (1, 0)


def test_the_table_of_ended_ones_is_cleared_now_and_then(
    target: Callable, stops: Mock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(held, "MOST_ENDED", 3)
    program = target("truth_keys", "2")
    ended = []
    with markerjit.attach(program.pid) as session:
        for _ in range(9):
            with session.aggregate("truth_key", by="key"):
                pass
            with session._switcher.turn() as turn:
                assert turn.seen.arena
                ended.append(turn.seen.arena.aggregates.ended)

    assert ended == [1, 2, 3] * 3
    assert stops.call_count == 2


def largest(session: markerjit.Session) -> int:
    """For how many keys there is room at most, a power of two. No ended one has memory then."""
    keys = 1024
    try:
        while True:
            with session.aggregate("truth_key", by="key", keys=2 * keys):
                keys *= 2
    except Refused:
        return keys


def test_the_memory_of_questions_that_ended_is_taken_when_there_is_no_other(
    target: Callable, stops: Mock
) -> None:
    program = target("truth_keys", "2")
    with markerjit.attach(program.pid) as session:
        keys = largest(session)
        stops.reset_mock()
        for number in range(3):  # each of them needs more than half of all
            where = f"key != {number}"
            with session.aggregate("truth_key", by="key", keys=keys, where=where) as adding:
                assert adding.read().room == keys

    assert stops.call_count == 2
