"""Recordings that are interrupted before each of their instructions.

What happens there: a signal handler records too, or forks, or the process is killed. Whatever way
of recording it is, each event is recorded once or not at all, and counted.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from ctypes import c_uint64
from pathlib import Path

import pytest

from markerjit.abi import ALIVE, PAGE, RING_LIMIT
from tests.support.choice import share, spacing
from tests.support.own_arena import (
    ASSEMBLED,
    LONG,
    OF_C,
    RESTARTABLE,
    SHARED,
    WAYS,
    OwnArena,
    geometry_of,
    numbers,
)
from tests.support.recorder_code import Calls, compile_calls, instructions

pytestmark = pytest.mark.forks

LEAST = {ASSEMBLED: 30, RESTARTABLE: 100, SHARED: 100, OF_C: 30}
"""So many instructions a call comes to, at least."""

every_way = pytest.mark.parametrize("way", WAYS)
restartable_ways = pytest.mark.parametrize("way", [ASSEMBLED, RESTARTABLE])


@pytest.fixture(scope="module")
def calls(build: Path, tmp_path_factory: pytest.TempPathFactory) -> Calls:
    return compile_calls(tmp_path_factory.mktemp("calls"))


@pytest.fixture
def one_cpu() -> Iterator[None]:
    """So that one ring gets all events of a kind."""
    allowed = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {max(allowed)})
    yield
    os.sched_setaffinity(0, allowed)


def taken_apart(own: OwnArena) -> dict[str, list[int]]:
    """The numbers that were recorded of each marker."""
    by_name: dict[str, list[int]] = {}
    for event in own.records():
        by_name.setdefault(event.name, []).extend(numbers([event]))
    return by_name


def check_newest(own: OwnArena, count: int) -> None:
    """Of so many events of `other` the newest are there: two pages of them at least."""
    kept = numbers([event for event in own.picture() if event.name == "other"])
    least = 2 * PAGE // 32
    assert kept[-least:] == [*range(count - least, count)]


def check_times(own: OwnArena) -> int:
    """In each ring positions follow time. Returns how many records there were."""
    count = 0
    for walked in own.walks():
        times = [int.from_bytes(walked.data[8 * at + 8 : 8 * at + 16], "little")
                 for at in walked.starts.tolist()]  # fmt: skip
        assert times == sorted(set(times))
        count += len(times)
    return count


@every_way
def test_a_signal_handler_may_record_before_any_instruction_of_a_recording(
    way: str, calls: Calls
) -> None:
    own = OwnArena(geometry_of(ring_size=1 << 17), way=way)
    outer, inner = own.marker("n %ld", LONG), own.marker("n %ld", LONG, name="inner")
    addresses = instructions(own, outer)
    hits = [
        value
        for value, address in enumerate(addresses)
        if calls.interrupted(outer, inner, value, address)
    ]

    assert taken_apart(own) == {"m": [*range(len(addresses))], "inner": hits}
    assert len(hits) > LEAST[way]
    assert own.counted() == (len(addresses), 0)
    assert own.counted("inner") == (len(hits), 0)
    assert own.damaged == 0


@every_way
def test_time_goes_forwards_in_every_ring_whatever_interrupts(way: str, calls: Calls) -> None:
    own = OwnArena(geometry_of(ring_size=1 << 17), way=way)
    outer, inner = own.marker("n %ld", LONG), own.marker("n %ld", LONG, name="inner")
    count = 0
    for address in instructions(own, outer):
        count += 1 + calls.interrupted(outer, inner, 1, address)

    assert check_times(own) == count


@every_way
def test_a_thread_that_is_stepped_records_and_so_does_its_signal_handler(
    way: str, calls: Calls
) -> None:
    """In single steps no sequence ever comes to its end."""
    own = OwnArena(way=way)
    outer, inner = own.marker("n %ld", LONG), own.marker("n %ld", LONG, name="inner")
    tried = [1]
    while calls.stepped(outer, inner, tried[-1]):
        tried.append(tried[-1] + spacing(3))

    assert taken_apart(own) == {"m": tried, "inner": tried[:-1]}
    assert tried[-1] > 50
    assert own.counted() == (len(tried), 0)
    assert own.counted("inner") == (len(tried) - 1, 0)


@pytest.mark.product
@restartable_ways
@pytest.mark.parametrize("left", [0, 8])
def test_a_signal_handler_may_record_while_a_page_is_turned(
    way: str, left: int, calls: Calls
) -> None:
    """`left` bytes are left in the page, and the record takes 24."""
    own = OwnArena(way=way)
    outer, inner = own.marker("n %ld", LONG), own.marker("n %ld", LONG, name="inner")
    came = 0
    for value, address in enumerate(instructions(own, outer)):
        put_heads(own, 8 * PAGE - left)
        hit = calls.interrupted(outer, inner, value, address)
        came += hit
        expected = {"m": [value], "inner": [value]} if hit else {"m": [value]}
        assert taken_apart(own) == expected, hex(address - own.base)

    assert came > LEAST[way]
    assert own.damaged == 0


def put_heads(own: OwnArena, position: int) -> None:
    """Go on recording and reading in each CPU's own ring at this position."""
    for ring in own.own:
        head = own.geometry.head_offset(ring.ring)
        room = (position + PAGE - 1) // PAGE * PAGE
        own.store.write(head, position.to_bytes(8, "little") + room.to_bytes(8, "little"))
        ring.start()


@every_way
def test_a_full_ring_is_full_before_every_instruction(way: str, calls: Calls) -> None:
    own = OwnArena(way=way)
    outer, inner = own.marker("n %ld", LONG), own.marker("n %ld", LONG, name="inner")
    for ring in (*own.own, *own.shared):
        own.store.write(own.geometry.head_offset(ring.ring) + RING_LIMIT, bytes(8))
    came = 0
    for value, address in enumerate(instructions(own, outer)):
        came += calls.interrupted(outer, inner, value, address)

    assert came > 10
    assert own.counted() == (value + 1, value + 1)
    assert own.counted("inner") == (came, came)


@restartable_ways
def test_a_fork_at_any_instruction_is_one_event_of_the_parent(way: str, calls: Calls) -> None:
    own = OwnArena(way=way)
    outer = own.marker("n %ld", LONG)
    came = 0
    for value, address in enumerate(instructions(own, outer)):
        came += calls.forking(outer, value, address)

    assert taken_apart(own) == {"m": [*range(value + 1)]}
    assert came > LEAST[way]
    assert own.counted() == (value + 1, 0)
    assert own.damaged == 0


def test_a_fork_is_one_event_of_the_parent_in_a_shared_ring_but_at_two_places(
    calls: Calls,
) -> None:
    """From the last look whether this is a child to what it does: reserve (shared.c), and count."""
    own = OwnArena(way=SHARED)
    outer = own.marker("n %ld", LONG)
    came, too_many = 0, []
    addresses = instructions(own, outer)
    for value, address in enumerate(addresses):
        before = own.counted().hits
        came += calls.forking(outer, value, address)
        if own.counted().hits != before + 1:
            too_many.append(address)
    times = Counter(taken_apart(own)["m"])

    assert times.keys() == {*range(len(addresses))}
    assert {*times.values()} <= {1, 2}
    twice = [addresses[value] for value, count in times.items() if count == 2]
    assert came > LEAST[SHARED]
    for places in (twice, too_many):
        assert len(places) <= 6
        assert not places or max(places) - min(places) < 32
    assert own.counted().hits == value + 1 + len(too_many)
    assert own.damaged == 0


@restartable_ways
def test_a_child_that_goes_on_a_lap_later_writes_into_no_ring(
    way: str, calls: Calls, one_cpu: None
) -> None:
    own = OwnArena(geometry_of(ring_size=4 * PAGE), way=way)
    outer, other = own.marker("n %ld", LONG), own.marker("n %ld", LONG, name="other")
    came, times = 0, 700
    for value, address in enumerate(instructions(own, outer)):
        own.start(overwrite=True)
        if not calls.forking(outer, value, address, after=other, times=times):
            continue
        came += 1
        check_newest(own, times)

    assert came > LEAST[way]
    assert own.counted() == (value + 1, 0)
    assert own.counted("other") == (came * times, 0)


@every_way
def test_a_thread_that_is_held_up_for_laps_of_an_overwritten_ring_harms_nobody(
    way: str, calls: Calls, one_cpu: None
) -> None:
    """In a shared ring the page that it holds is left out, and is there again when it is done."""
    own = OwnArena(geometry_of(ring_size=4 * PAGE), way=way)
    outer, other = own.marker("n %ld", LONG), own.marker("n %ld", LONG, name="other")
    own.start(overwrite=True)
    came, times, after = 0, 1000, 1000
    for value, address in enumerate(instructions(own, outer)):
        if not calls.interrupted(outer, other, value, address, times=times):
            continue
        came += 1
        calls.many(other, 0, after)
        check_newest(own, after)

    assert came > LEAST[way]
    assert own.counted() == (value + 1, 0)
    assert own.counted("other") == (came * (times + after), 0)


@pytest.mark.slow
@every_way
def test_a_process_that_dies_at_any_instruction_leaves_a_whole_record_or_none(
    way: str, calls: Calls
) -> None:
    own = OwnArena(way=way)
    outer = own.marker("n %ld", LONG)
    inner = own.marker("n %ld", LONG, name="inner")
    # A child for each that is executed, and not for each that there is: a fork takes long.
    executed = []
    for address in instructions(own, outer):
        if calls.interrupted(outer, inner, 0, address):
            executed.append(address)
        own.start()
    executed = [*share(executed, 3, WAYS.index(way))]
    died = 0
    for value, address in enumerate(executed):
        before = own.counted().hits
        died += calls.dying(outer, value, address, alive=own.base + ALIVE, cpus=own.geometry.cpus)
        values = taken_apart(own).get("m", [])
        assert values in ([], [value]), hex(address - own.base)
        assert own.counted().hits - before <= len(values)
        own.start()  # what was reserved in a shared ring would be waited for

    assert died > LEAST[way] // spacing(3)
    outer.hit(c_uint64(1))
    assert taken_apart(own) == {"m": [1]}
    assert own.damaged == 0


@every_way
def test_a_count_is_exact_whatever_interrupts_it(way: str, calls: Calls) -> None:
    own = OwnArena(way=way)
    outer = own.marker("n %ld", LONG, count=True)
    inner = own.marker("n %ld", LONG, name="inner", count=True)
    came = 0
    for value, address in enumerate(instructions(own, outer)):
        came += calls.interrupted(outer, inner, value, address)
        assert own.counted() == (value + 1, 0), hex(address - own.base)
        assert own.counted("inner") == (came, 0), hex(address - own.base)

    assert came > 20


@restartable_ways
def test_a_count_is_of_the_parent_where_it_forks(way: str, calls: Calls) -> None:
    own = OwnArena(way=way)
    outer = own.marker("n %ld", LONG, count=True)
    came = 0
    for value, address in enumerate(instructions(own, outer)):
        came += calls.forking(outer, value, address)
        assert own.counted() == (value + 1, 0), hex(address - own.base)

    assert came > 20


@every_way
def test_a_thread_that_is_stepped_counts_and_so_does_its_signal_handler(
    way: str, calls: Calls
) -> None:
    own = OwnArena(way=way)
    outer = own.marker("n %ld", LONG, count=True)
    inner = own.marker("n %ld", LONG, name="inner", count=True)
    after = 1
    while calls.stepped(outer, inner, after):
        assert own.counted() == own.counted("inner") == (after, 0)
        after += 1

    assert after > 20
    assert own.counted() == (after, 0)
