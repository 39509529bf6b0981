"""The real recorders, in this process: what they write is read and decoded.

They are called through slots, as a marker's body calls its probe, in each of the three ways of
recording (own_arena.py). Texts are in test_texts.py, interruptions in test_interruptions.py.
"""

from __future__ import annotations

import ctypes
import math
import os
import struct
import threading
import time
from collections import Counter
from collections.abc import Iterator
from ctypes import c_char_p, c_double, c_int, c_int64, c_uint64
from itertools import chain
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from markerjit.abi import PAGE, SINCE_TICKS
from markerjit.model import CType, Event, TypeClass, Value
from markerjit.ring.types import Options, Time
from tests.support.choice import examples
from tests.support.heads import head_of
from tests.support.own_arena import (
    ASSEMBLED,
    CHARS,
    CPUS,
    DOUBLE,
    INT,
    LONG,
    OF_C,
    POINTER,
    RESTARTABLE,
    SHARED,
    WAYS,
    OwnArena,
    Slot,
    geometry_of,
    marker_id,
    numbers,
    own_fs_base,
    own_rseq_offset,
)
from tests.support.recorder_code import Calls, compile_calls
from tests.support.timing import reaped

BOOL = CType(TypeClass.BOOL, 1)
CLOCK_MONOTONIC_COARSE = 6
SYS_RSEQ, RSEQ_UNREGISTER, RSEQ_SIGNATURE, RSEQ_SIZE = 334, 1, 0x53053053, 32

every_way = pytest.mark.parametrize("way", WAYS)


@pytest.fixture(scope="module")
def calls(build: Path, tmp_path_factory: pytest.TempPathFactory) -> Calls:
    return compile_calls(tmp_path_factory.mktemp("calls"))


@pytest.fixture(params=WAYS)
def own(request: pytest.FixtureRequest, build: Path) -> OwnArena:
    return OwnArena(way=request.param)


@pytest.fixture
def one_cpu() -> Iterator[None]:
    """So that one ring gets all events of a kind."""
    allowed = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {max(allowed)})
    yield
    os.sched_setaffinity(0, allowed)


def taken(own: OwnArena, format_: str, args: tuple[CType, ...], *values: object) -> list[Value]:
    """What a marker of this format and these types delivers for these values."""
    own.marker(format_, *args).hit(*values)
    (event,) = own.records()
    return list(event.fields.values())


# ---- values --------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [1, 2, 4, 8])
@pytest.mark.parametrize("number", [0, 1, -1, 127, -128])
def test_signed_numbers_of_every_size(own: OwnArena, size: int, number: int) -> None:
    register = c_uint64(number & (1 << 8 * size) - 1 | 0xA5A5A5A5A5A5A5A5 << 8 * size)

    assert taken(own, "n %d", (CType(TypeClass.SIGNED, size),), register) == [number]


@pytest.mark.parametrize("size", [1, 2, 4, 8])
def test_unsigned_numbers_of_every_size(own: OwnArena, size: int) -> None:
    most = (1 << 8 * size) - 1

    values = taken(own, "n %u", (CType(TypeClass.UNSIGNED, size),), c_uint64((1 << 64) - 1))

    assert values == [most]


def test_bools_chars_and_pointers(own: OwnArena) -> None:
    args = (BOOL, INT, POINTER, CHARS, BOOL)
    values = (c_int(1), c_int(ord("x")), c_uint64((1 << 64) - 16), c_uint64(3), c_int(0x100))

    recorded = taken(own, "%d %c %p %p %d", args, *values)

    assert recorded == [True, "x", (1 << 64) - 16, 3, False]


def test_numbers_and_floats_in_registers_and_on_the_stack(own: OwnArena) -> None:
    args = (LONG, DOUBLE) * 6
    values = [kind(i + 1) for i, kind in enumerate((c_uint64, c_double) * 6)]

    assert taken(own, "%ld %g " * 6, args, *values) == list(range(1, 13))


@pytest.mark.parametrize("ctype", [DOUBLE, CType(TypeClass.FLOAT, 4)])
def test_ten_floats_are_more_than_there_are_registers_for(own: OwnArena, ctype: CType) -> None:
    values = taken(own, "%g " * 10, (ctype,) * 10, *[c_double(i / 4) for i in range(10)])

    assert values == [i / 4 for i in range(10)]


def test_twelve_numbers_of_mixed_sizes(own: OwnArena) -> None:
    args = tuple(CType(TypeClass.SIGNED, size) for size in (1, 8, 2, 4) * 3)

    assert taken(own, "%d " * 12, args, *[c_int64(-i) for i in range(12)]) == [
        -i for i in range(12)
    ]


@every_way
def test_a_duration_is_computed_of_the_time_when_it_began_and_recorded_where_it_is_one(
    way: str,
) -> None:
    if way == OF_C:
        pytest.skip("only stubs have the time when a call began, and make a preserving call")
    own = OwnArena(way=way, ns_per_tick=1 << 31)
    own.marker("", name="clock").hit()
    (clock,) = own.records()
    began = clock.time
    slot = own.marker("ret %ld dur %lu a %ld", LONG, LONG, LONG, name="func:m:return")
    ticks = 1 << SINCE_TICKS

    slot.hit(c_int64(1), c_uint64(ticks | began), c_int64(2))
    slot.hit(c_int64(3), c_uint64(77), c_int64(4))
    slot.hit(c_int64(5), c_uint64(ticks | (ticks - 1)), c_int64(6))

    ended, lasted, other = own.records()
    duration = ended.fields.pop("dur")
    assert duration == (ended.time - began) >> 1 if way == ASSEMBLED else duration > 0
    assert duration <= (ended.time - began) >> 1
    assert ended.fields == {"ret": 1, "a": 2}
    assert lasted.fields == {"ret": 3, "dur": 77, "a": 4}
    assert other.fields == {"ret": 5, "dur": 0, "a": 6}, "the other CPU is ahead"


def test_a_field_of_that_name_in_another_event_is_what_it_is(own: OwnArena) -> None:
    assert taken(own, "dur %lu", (CType(TypeClass.UNSIGNED, 8),), c_uint64(1 << 63)) == [1 << 63]


def test_a_record_says_who_and_when(own: OwnArena, one_cpu: None) -> None:
    slot = own.marker("")

    slot.hit()
    slot.hit()

    first, second = own.records()
    assert first.tid == second.tid == threading.get_native_id()
    assert 0 < first.time < second.time
    assert (first.cpu, first.name, first.fields) == (max(os.sched_getaffinity(0)), "m", {})


def test_an_id_of_the_thread_that_cannot_be_found_is_zero(build: Path) -> None:
    for way in WAYS:
        own = OwnArena(way=way, tid_offset=-1)

        own.marker("").hit()

        assert [event.tid for event in own.records()] == [0]


kinds = st.sampled_from([*(CType(c, s) for c in (TypeClass.SIGNED, TypeClass.UNSIGNED)
                          for s in (1, 2, 4, 8)), DOUBLE, POINTER])  # fmt: skip
arguments = st.lists(st.tuples(kinds, st.integers(0, (1 << 64) - 1), st.booleans()), max_size=12)
MANY = geometry_of(max_markers=1024)
_ARENAS: dict[str, OwnArena] = {}


@every_way
@settings(max_examples=examples(100), deadline=None)
@given(drawn=arguments, kind=st.sampled_from(list(Time)), tid=st.booleans())
def test_any_arguments_come_out_as_they_went_in_whichever_are_asked_for(
    way: str, build: Path, drawn: list[tuple[CType, int, bool]], kind: Time, tid: bool
) -> None:
    if way not in _ARENAS:
        _ARENAS[way] = OwnArena(MANY, way=way)
    own = _ARENAS[way]
    letters = {TypeClass.FLOAT: "g", TypeClass.POINTER: "p"}
    format_ = " ".join(
        f"f{at} %{letters.get(ctype.type_class, 'd')}" for at, (ctype, _, _) in enumerate(drawn)
    )
    names = tuple(f"f{at}" for at, (_, _, asked) in enumerate(drawn) if asked)
    options = Options(kind, tid, names)
    slot = own.marker(format_, *(ctype for ctype, _, _ in drawn), options=options)
    own.types = {marker_id(own, slot): own.types[marker_id(own, slot)]}

    slot.hit(*(_argument(ctype, number) for ctype, number, _ in drawn))

    (event,) = own.records()
    assert event.tid == (threading.get_native_id() if tid else 0)
    assert list(event.fields) == list(names)
    for (ctype, number, _), value in zip(
        (argument for argument in drawn if argument[2]), event.fields.values(), strict=True
    ):
        assert struct.pack("<d", value) == struct.pack("<d", _value(ctype, number)), ctype


def _argument(ctype: CType, number: int) -> object:
    if ctype.type_class is TypeClass.FLOAT:
        return c_double(_value(ctype, number))
    return c_uint64(number)


def _value(ctype: CType, number: int) -> float:
    """What is defined of an argument with these bits."""
    if ctype.type_class is TypeClass.FLOAT:
        (real,) = struct.unpack("<d", number.to_bytes(8, "little"))
        return 0.5 if math.isnan(real) else float(real)
    data = number.to_bytes(8, "little")[: ctype.size]
    return int.from_bytes(data, "little", signed=ctype.type_class is TypeClass.SIGNED)


# ---- options -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "clock"),
    [(Time.MONOTONIC, time.CLOCK_MONOTONIC), (Time.COARSE, CLOCK_MONOTONIC_COARSE)],
)
def test_the_systems_clocks_say_what_they_say_to_others(
    own: OwnArena, kind: Time, clock: int
) -> None:
    slot = own.marker("n %d", INT, options=Options(kind))

    before = time.clock_gettime_ns(clock)
    slot.hit(c_int(1))
    after = time.clock_gettime_ns(clock)

    (event,) = own.records()
    assert before <= event.time <= after


def test_a_clock_that_was_not_found_says_nothing(build: Path) -> None:
    for way in WAYS:
        own = OwnArena(way=way, clock=0)
        own.marker("n %d", INT, options=Options(Time.MONOTONIC)).hit(c_int(1))

        assert [event.time for event in own.records()] == [0]


def test_without_a_time_events_are_in_the_order_of_their_ring(own: OwnArena, one_cpu: None) -> None:
    slot = own.marker("n %d", INT, options=Options(Time.NONE))

    for number in range(5):
        slot.hit(c_int(number))

    # An execution that is interrupted in its restartable sequence goes to the shared ring.
    rings = [numbers(own.events_of([walked])) for walked in own.walks()]
    assert all(ring == sorted(ring) for ring in rings)
    assert sorted(number for ring in rings for number in ring) == [0, 1, 2, 3, 4]


def test_a_record_takes_no_more_than_what_is_asked_for(own: OwnArena) -> None:
    options = Options(Time.NONE, thread_id=False, fields=("b",))
    own.marker("a %ld b %d c %g", LONG, INT, DOUBLE, options=options).hit(
        c_uint64(1), c_int(2), c_double(3)
    )

    (walked,) = own.walks()

    assert walked.data[-16:] == struct.pack("<IIi4x", head_of(0, 2), 0, 2)


def test_a_marker_may_be_recorded_in_several_ways_at_once(own: OwnArena) -> None:
    first = own.marker("a %d b %d", INT, INT)
    other = own.marker("a %d b %d", INT, INT, options=Options(fields=("b",), thread_id=False))

    for slot in (first, other):
        slot.hit(c_int(1), c_int(2))

    assert [event.fields for event in own.records()] == [{"a": 1, "b": 2}, {"b": 2}]


# ---- counting and losing -------------------------------------------------------------------------


def test_counting_counts_and_records_nothing(own: OwnArena, calls: Calls) -> None:
    slot = own.marker("n %ld", LONG, count=True)

    calls.many(slot, 0, 1000)

    assert own.counted() == (1000, 0)
    assert own.records() == []


def test_what_the_reader_counts_is_counted_by_the_recorder_only_where_it_is_lost(
    own: OwnArena, calls: Calls
) -> None:
    slot = own.marker("n %ld", LONG, options=Options(counted=False))

    calls.many(slot, 0, 10_000)

    lost = 10_000 - len(own.records())
    assert own.counted() == (lost, lost)
    assert lost > 0


@every_way
@pytest.mark.parametrize("count", [0, 1, 2, 5, 11])
def test_full_rings_count_every_loss(way: str, count: int, calls: Calls) -> None:
    """Records of sizes of which some fill a page, and some leave a piece of it."""
    own = OwnArena(geometry_of(ring_size=4 * PAGE), way=way)
    slot = own.marker("n %ld " + "%ld " * count, *[LONG] * (1 + count))
    seen: list[int] = []
    for lap in range(6):
        calls.many(slot, 1000 * lap, 1000 * lap + 1000)
        seen += numbers(own.records())

    assert seen == sorted(set(seen))
    hits, lost = own.counted()
    assert hits == 6000
    assert lost == 6000 - len(seen) > 0
    assert own.damaged == 0


def test_a_ring_that_was_full_goes_on_where_it_was_read(build: Path, one_cpu: None) -> None:
    for way in WAYS:
        own = OwnArena(geometry_of(ring_size=PAGE), way=way)
        slot = own.marker("n %d", INT)
        room = PAGE // (32 if way == SHARED else 24)
        delivered = 0
        for lap in range(5):
            for number in range(200):
                slot.hit(c_int(number))

            # An execution that is interrupted in its restartable sequence goes to the shared ring.
            # The ring that gets all others comes first.
            full, *interrupted = [numbers(own.events_of([walked])) for walked in own.walks()]
            assert len(full) == room, (way, lap)
            assert full == sorted(full)
            recorded = {*full, *chain.from_iterable(interrupted)}
            assert recorded >= {*range(full[-1] + 1)}, (way, lap)
            assert len(recorded) == room + sum(map(len, interrupted))
            delivered += len(recorded)
            hits = 200 * (lap + 1)
            assert own.counted() == (hits, hits - delivered)


@pytest.mark.parametrize("rsp", [False, True])
@pytest.mark.parametrize("size", [PAGE, 2 * PAGE, 8 * PAGE])
def test_the_largest_records_fill_a_page_each(
    own: OwnArena, one_cpu: None, size: int, *, rsp: bool
) -> None:
    own = OwnArena(geometry_of(ring_size=size), way=own.way)
    slot = own.marker("s %s", CHARS, options=Options(text=100_000, rsp=rsp))
    limit = own.arena.markers.entry(0).limits[0]
    text = b"x" * limit

    recorded = 0
    for _ in range(3):
        for _ in range(10):
            slot.hit(c_char_p(text))
        # An execution that is interrupted in its restartable sequence goes to the shared ring.
        rings = [own.events_of([walked]) for walked in own.walks()]
        assert max(map(len, rings)) == size // PAGE
        assert {event.fields["s"] for ring in rings for event in ring} == {text.decode()}
        recorded += sum(map(len, rings))
    assert own.counted() == (30, 30 - recorded)
    assert limit > 4000


def test_texts_and_numbers_share_a_ring(own: OwnArena, calls: Calls) -> None:
    small, large = own.marker("n %ld", LONG), own.marker("s %s", CHARS, name="large")
    expected: list[Value] = []

    for length in range(0, 256, 3):
        small.hit(c_uint64(length))
        large.hit(c_char_p(b"x" * length))
        expected += [length, "x" * length]

    records = own.records()
    assert [next(iter(event.fields.values())) for event in records] == expected
    assert own.damaged == 0


def test_a_ring_that_is_overwritten_keeps_the_newest_and_loses_nothing(
    own: OwnArena, calls: Calls, one_cpu: None
) -> None:
    slot = own.marker("n %ld", LONG)
    own.start(overwrite=True)

    calls.many(slot, 0, 100_000)

    kept = numbers(own.picture())
    least = (own.geometry.ring_size - 3 * PAGE) // 32
    assert kept[-least:] == [*range(100_000 - least, 100_000)]
    assert own.counted() == (100_000, 0)
    assert numbers(own.picture()) == kept, "nothing is taken out"


def test_a_ring_may_be_read_again_after_it_was_overwritten(own: OwnArena, calls: Calls) -> None:
    slot = own.marker("n %ld", LONG)
    own.start(overwrite=True)
    calls.many(slot, 0, 10_000)

    own.start()
    slot.hit(c_uint64(7))

    assert numbers(own.records()) == [7]
    assert own.damaged == 0


# ---- threads -------------------------------------------------------------------------------------


def in_a_thread(function: object, *args: object) -> None:
    thread = threading.Thread(target=function, args=args)  # type: ignore[arg-type]
    thread.start()
    thread.join()


@every_way
def test_threads_and_a_reader_lose_nothing_but_what_is_counted(way: str, calls: Calls) -> None:
    own = OwnArena(geometry_of(ring_size=1 << 14), way=way)
    each = 30_000
    slots = [own.marker("n %ld", LONG, name=f"m{index}") for index in range(3)]
    threads = [threading.Thread(target=calls.many, args=(slot, 1, each + 1)) for slot in slots]
    for thread in threads:
        thread.start()
    seen: list[Event] = []
    running = True
    while running:
        running = any(thread.is_alive() for thread in threads)
        seen += own.records()
    for thread in threads:
        thread.join()

    for index in range(3):
        kept = numbers([event for event in seen if event.name == f"m{index}"])
        hits, lost = own.counted(f"m{index}")
        assert hits == each
        assert len(kept) == len(set(kept)) == each - lost
        assert set(kept) <= set(range(1, each + 1))
    assert own.damaged == 0


@pytest.mark.parametrize("way", [ASSEMBLED, RESTARTABLE])
def test_a_cpus_own_ring_gets_nearly_all(way: str, calls: Calls) -> None:
    own = OwnArena(geometry_of(ring_size=1 << 20), way=way)
    slot = own.marker("n %ld", LONG)

    calls.many(slot, 0, 20_000)

    shared = sum(len(walk.starts) for walk in own.walks() if walk.ring >= own.geometry.cpus)
    assert shared < 100


@pytest.mark.parametrize("way", [ASSEMBLED, RESTARTABLE])
def test_a_thread_without_restartable_sequences_uses_the_shared_rings(
    way: str, build: Path
) -> None:
    own = OwnArena(way=way)
    slot = own.marker("n %d", INT)

    def unregistered() -> None:
        area = ctypes.c_void_p(own_fs_base() + own_rseq_offset())
        size, how = ctypes.c_int(RSEQ_SIZE), ctypes.c_int(RSEQ_UNREGISTER)
        signature = ctypes.c_int(RSEQ_SIGNATURE)
        assert not ctypes.CDLL(None).syscall(SYS_RSEQ, area, size, how, signature)
        slot.hit(c_int(1))

    in_a_thread(unregistered)

    assert [walk.ring >= own.geometry.cpus for walk in own.walks()] == [True]
    assert own.counted() == (1, 0)


@every_way
def test_a_cpu_with_too_high_a_number_shares_the_ring_of_another(way: str, calls: Calls) -> None:
    """CPUs may be plugged in; rings are for those that were possible."""
    if CPUS < 2:
        pytest.skip("needs two CPUs")
    own = OwnArena(geometry_of(cpus=1, ring_size=1 << 20), way=way)
    slot = own.marker("n %ld", LONG)

    def elsewhere() -> None:
        os.sched_setaffinity(0, {CPUS - 1})
        calls.many(slot, 0, 100)

    in_a_thread(elsewhere)

    (walked,) = own.walks()
    assert (walked.ring, len(walked.starts)) == (1, 100)
    assert own.counted() == (100, 0)


def test_the_child_of_a_fork_records_and_counts_nothing(own: OwnArena) -> None:
    record = own.marker("n %ld", LONG)
    count = own.marker("x %g", DOUBLE, name="count", count=True)
    text = own.marker("s %s", CHARS, name="text")
    child = os.fork()
    if not child:
        record.hit(c_uint64(1))
        count.hit(c_double(1))
        text.hit(c_char_p(b"x"))
        os._exit(0)

    assert reaped(child) == 0
    assert own.records() == []
    assert [own.counted(name) for name in ("m", "count", "text")] == [(0, 0)] * 3
    record.hit(c_uint64(2))
    assert numbers(own.records()) == [2]


def test_a_probe_leaves_its_slot_alone(own: OwnArena) -> None:
    slot = own.marker("n %ld", LONG)
    before = bytes(slot)

    slot.hit(c_uint64(1))

    assert isinstance(slot, Slot)
    assert bytes(slot) == before


@pytest.mark.parametrize("free", [70_000, 0xFFFF, 0x10000])
def test_an_id_of_more_than_16_bits_is_recorded_and_counted(free: int) -> None:
    for way in WAYS:
        own = OwnArena(geometry_of(max_markers=1 << 17), way=way)
        small = own.marker("n %d", INT, name="small")
        own.arena.control.write("markers_used", free)
        large = own.marker("n %d", INT, name="large")

        for number in range(500):  # more than a page, so that there are fillers
            (small if number % 3 else large).hit(c_int(number))

        assert marker_id(own, large) == free
        walks = own.walks()
        markers = [marker for walked in walks for marker in walked.markers.tolist()]
        assert Counter(markers) == {0: 333, free: 167}
        assert sorted(numbers(own.events_of(walks))) == [*range(500)]
        assert own.arena.counters.of(free).hits == 167
