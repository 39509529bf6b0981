"""The pairs that the runtime makes, in this process, against pairs that are made here."""

from __future__ import annotations

import ctypes
import json
import math
import os
import random
import struct
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from markerjit.abi import HELD_WORDS, MISSED, SLOW_WORDS
from markerjit.arena.aggregates import Size, Ticks
from markerjit.errors import BadQuestion
from markerjit.events.latencies import (
    Known,
    Latencies,
    LatencyRow,
    PairEnd,
    SlowPair,
    Sums,
    latencies_of,
    slow_pairs,
    sums_of,
)
from markerjit.events.latency_rows import rows_of
from markerjit.facts.latencies import latencies_lines, slow_facts, slow_line
from markerjit.facts.words import duration_words
from markerjit.model import CType, Signature, TypeClass
from markerjit.patch.request import Pair
from markerjit.probes.pairing import ask_markers
from markerjit.probes.recorders import Recorders
from markerjit.questions import Lack
from markerjit.questions.buckets import Sketch
from markerjit.questions.latencies import SCALE, WORDS, Side, Timed
from markerjit.ring.clock import NS, Calibration
from markerjit.ring.types import Time
from tests.support.choice import examples
from tests.support.own_arena import DOUBLE, LONG, RESTARTABLE, SHARED, OwnArena, Slot, geometry_of
from tests.support.timing import reaped

CHARS = CType(TypeClass.CHARS, 8)
POINTER = CType(TypeClass.POINTER, 8)
BEGIN = Signature("begin", "id %ld text %s half %g place %p", (LONG, CHARS, DOUBLE, POINTER))
END = Signature("end", "id %ld text %s status %ld", (LONG, CHARS, LONG))


@pytest.fixture(scope="module", params=[RESTARTABLE, SHARED])
def own(request: pytest.FixtureRequest) -> OwnArena:
    return OwnArena(geometry_of(max_markers=512, aggregate_pages=2048), way=request.param)


class Pairing:
    """Two markers of this process, of which one begins and one ends. Its clock is CLOCK_MONOTONIC
    unless it is told otherwise."""

    def __init__(
        self,
        own: OwnArena,
        *,
        room: int = 64,
        counter: bool = False,
        forget_ns: int = 10**18,
        groups: int = 4,
        **question: Any,
    ) -> None:
        self.timed = Timed("begin", "end", **{"by": "id", **question})
        self._arena = own.arena
        pairing = ask_markers(self.timed, [BEGIN], [END])
        begin, end = pairing.begins[0], pairing.ends[0]
        assert isinstance(begin, Side) and isinstance(end, Side)
        self._begin_words = begin.field_words
        size = Size(pairing.key_words, WORDS, room, HELD_WORDS + begin.field_words)
        if self.timed.slower_ns is not None:
            slow_words = SLOW_WORDS + begin.field_words + end.field_words
            size = size._replace(slow_words=slow_words, slow_room=4)
        if pairing.group:
            size = size._replace(group_words=pairing.group_words, group_room=groups)
        self.group = pairing.group
        self.aggregate = own.arena.aggregates.make(size, Ticks(1 << 32, forget_ns))
        recorders = Recorders(own.arena)
        self.slots = []
        self.known = {}
        for signature, side, ends in ((BEGIN, begin, False), (END, end, True)):
            probe = Pair.of(
                self.timed, pairing.key, ends=ends, counter=counter, group=pairing.group
            )
            recorders.tell([signature], probe)
            marker = recorders.find(signature, probe)
            assert marker is not None
            own.arena.markers.set_aggregate(marker, self.aggregate.ticket)
            self.known[marker] = Known(signature.name, side, ends)
            address = own.arena.markers.address(marker)
            probe_at = own.arena.asking_probe(marker)
            self.slots.append(Slot(probe=probe_at, data=address, preserving=1))

    def begin(self, id: int, text: bytes | None = b"t", half: float = 0.0, place: int = 0) -> None:
        self.slots[0].hit(
            ctypes.c_int64(id), ctypes.c_char_p(text), ctypes.c_double(half),
            ctypes.c_void_p(place),
        )  # fmt: skip

    def end(self, id: int, text: bytes | None = b"t", status: int = 0) -> None:
        self.slots[1].hit(ctypes.c_int64(id), ctypes.c_char_p(text), ctypes.c_int64(status))

    def read(self) -> Latencies:
        return latencies_of(sums_of(self._arena.aggregates.copy_pairs(self.aggregate)))

    def rows(self) -> dict[Any, LatencyRow]:
        sums = sums_of(self._arena.aggregates.copy_pairs(self.aggregate))
        rows = rows_of(sums.groups, None, self.group)
        return {row.key if len(row.key) > 1 else row.key[0]: row for row in rows}

    def slow(self) -> list[SlowPair]:
        return self.pairs_of(self._arena.aggregates.take_slow(self.aggregate))

    def pairs_of(self, rows: Sequence[bytes]) -> list[SlowPair]:
        clock = Calibration(Time.MONOTONIC, 0, 0, NS, 0)
        return slow_pairs(rows, self.known, self._begin_words, clock)

    def free(self) -> None:
        self._arena.aggregates.free(self.aggregate.ticket)
        self._arena.aggregates.reclaim(lambda ticket: False)


@pytest.fixture
def pairing(own: OwnArena, request: pytest.FixtureRequest) -> Callable[..., Pairing]:
    def make(**kwargs: Any) -> Pairing:
        made = Pairing(own, **kwargs)
        request.addfinalizer(made.free)
        return made

    return make


# ---- pairs ---------------------------------------------------------------------------------------


def test_time_of_a_pair_lies_between_what_is_measured_around_it(pairing: Callable) -> None:
    made = pairing()
    before = time.monotonic_ns()
    made.begin(1)
    inside = time.monotonic_ns()
    time.sleep(0.002)
    inside = time.monotonic_ns() - inside
    made.end(1)
    around = time.monotonic_ns() - before
    answer = made.read()

    assert (answer.pairs, answer.begins, answer.ends) == (1, 1, 1)
    assert answer.longest_ns == answer.sum_ns
    assert inside <= answer.sum_ns <= around
    assert answer.quantile(0.5) == pytest.approx(answer.sum_ns, rel=0.02)
    (bucket,) = [bucket for bucket in answer.histogram.buckets() if bucket.number]
    assert bucket.low <= answer.sum_ns <= bucket.high


def test_counter_is_converted_in_the_process(pairing: Callable) -> None:
    """The tick of this pairing is a nanosecond, so what comes out is ticks."""
    made = pairing(counter=True)
    made.begin(1)
    time.sleep(0.001)
    made.end(1)

    assert made.read().pairs == 1
    assert made.read().sum_ns > 100_000


STEPS = st.lists(
    st.tuples(st.booleans(), st.integers(-3, 3), st.sampled_from([b"", b"a", b"ab", None])),
    max_size=60,
)


@pytest.mark.parametrize("by", ["id", "text", "text, id % 2", "id, text[:1]", "1"])
def test_each_begin_and_each_end_is_in_one_number(own: OwnArena, by: str) -> None:
    def key_of(id: int, text: bytes | None) -> object:
        start = None if text is None else text[:1]
        rest = abs(id) % 2 * (-1 if id < 0 else 1)
        keys = {"id": id, "text": text, "text, id % 2": (text, rest), "id, text[:1]": (id, start)}
        return keys.get(by)

    @settings(max_examples=25, deadline=None, derandomize=True)
    @given(STEPS)
    def check(steps: list[tuple[bool, int, bytes | None]]) -> None:
        made = Pairing(own, by=by)
        waiting: set[object] = set()
        pairs = replaced = alone = 0
        for ends, id, text in steps:
            key = key_of(id, text)
            if ends:
                made.end(id, text)
                pairs += key in waiting
                alone += key not in waiting
                waiting.discard(key)
            else:
                made.begin(id, text)
                replaced += key in waiting
                waiting.add(key)
        answer = made.read()
        made.free()

        assert (answer.pairs, answer.replaced, answer.alone) == (pairs, replaced, alone)
        assert answer.waiting == len(waiting)
        assert answer.begins == sum(not ends for ends, _, _ in steps)
        assert answer.ends == sum(ends for ends, _, _ in steps)

    check()


def test_place_is_free_again_when_its_pair_was_made(pairing: Callable) -> None:
    made = pairing(room=4)
    for id in range(5000):
        made.begin(id)
        made.end(id)
    answer = made.read()

    assert (answer.pairs, answer.full, answer.waiting) == (5000, 0, 0)


def test_begins_without_room_are_counted(pairing: Callable) -> None:
    made = pairing(room=4)
    for id in range(100):
        made.begin(id)
    for id in range(100):
        made.end(id)
    answer = made.read()

    assert answer.pairs == 8  # twice as many places as there is room for
    assert (answer.full, answer.alone, answer.waiting) == (92, 92, 0)
    assert answer.begins == answer.ends == 100


def test_begin_that_has_waited_for_long_gives_its_place_to_another(pairing: Callable) -> None:
    made = pairing(room=4, forget_ns=1)
    for id in range(100):
        made.begin(id)
    answer = made.read()

    assert (answer.forgotten, answer.full, answer.waiting) == (92, 0, 8)
    assert answer.begins == 100


def test_keys_that_are_too_long_or_cannot_be_read(pairing: Callable) -> None:
    made = pairing(by="text", text=4)
    made.begin(1, b"12345")
    made.end(1, b"12345")
    memory = pairing(by="u64(place)", ends_by="u64(status)")
    memory.begin(1, place=16)
    memory.end(1, status=16)
    place = ctypes.c_uint64(77)
    memory.begin(1, place=ctypes.addressof(place))
    memory.end(1, status=ctypes.addressof(place))

    assert (made.read().long, made.read().end_long, made.read().pairs) == (1, 1, 0)
    answer = memory.read()
    assert (answer.unreadable, answer.end_unreadable, answer.pairs) == (1, 1, 1)


def test_condition_is_of_begins(pairing: Callable) -> None:
    made = pairing(where="half > 1")
    for id in (1, 2):
        made.begin(id, half=float(id))
        made.end(id)

    assert (made.read().pairs, made.read().alone, made.read().begins) == (1, 1, 1)


def test_threads_that_begin_and_end_are_counted_all(pairing: Callable) -> None:
    made = pairing(by="id", room=1000)

    def work(first: int) -> None:
        for id in range(first, first + 300):
            made.begin(id)
            made.end(id)

    threads = [threading.Thread(target=work, args=(1000 * at,)) for at in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    answer = made.read()

    assert (answer.pairs, answer.waiting, answer.alone) == (1200, 0, 0)


def test_child_of_a_fork_pairs_nothing(pairing: Callable) -> None:
    made = pairing()
    made.begin(1)
    child = os.fork()
    if not child:
        made.end(1)
        made.begin(2)
        os._exit(0)
    reaped(child)

    assert (made.read().pairs, made.read().waiting) == (0, 1)
    made.end(1)
    assert made.read().pairs == 1


def test_late_thread_leaves_the_memory_of_another_alone(own: OwnArena) -> None:
    late = Pairing(own)
    late.begin(1)
    late.free()
    other = Pairing(own, by="id, 1")
    assert other.aggregate.extent.start == late.aggregate.extent.start
    late.begin(2)
    late.end(1)

    assert (other.read().begins, other.read().ends) == (0, 0)
    other.free()


# ---- slow pairs ----------------------------------------------------------------------------------


def test_slow_pair_has_the_fields_of_both_ends(pairing: Callable) -> None:
    made = pairing(slower_ns=0)
    made.begin(-7, b"text", 0.25, 4096)
    made.end(-7, None, -3)
    (pair,) = made.slow()

    assert pair.begin.name == "begin"
    assert pair.begin.fields == {"id": -7, "text": "text", "half": 0.25, "place": 4096}
    assert pair.end.fields == {"id": -7, "text": None, "status": -3}
    assert pair.begin.tid == pair.end.tid == threading.get_native_id()
    assert made.slow() == []
    assert slow_line(pair).endswith(
        f'begin {pair.begin.tid} id=-7 text="text" half=0.25 place=4096 '
        "-> end id=-7 text=None status=-3"
    )


def test_only_pairs_that_take_long_are_kept(pairing: Callable) -> None:
    made = pairing(slower_ns=20_000_000)
    for id in (1, 2):
        made.begin(id)
        time.sleep(0.021 if id == 2 else 0)
        made.end(id)

    assert made.read().pairs == 2
    slow = made.slow()
    assert 2 in [pair.begin.fields["id"] for pair in slow]
    assert all(pair.took_ns >= 20_000_000 for pair in slow)


def test_slow_pairs_without_room_are_counted(pairing: Callable) -> None:
    made = pairing(slower_ns=0)
    for id in range(10):
        made.begin(id)
        made.end(id)
    first = made.slow()
    made.begin(10)
    made.end(10)

    assert [pair.begin.fields["id"] for pair in first] == [0, 1, 2, 3]
    assert [pair.begin.fields["id"] for pair in made.slow()] == [10]
    assert (made.read().unshown, made.read().pairs) == (6, 11)


def test_row_of_any_words_is_a_pair_or_left_out(pairing: Callable) -> None:
    made = pairing(slower_ns=0)
    begin, end = made.known
    words = made.aggregate.size.slow_words

    @settings(max_examples=examples(200), deadline=None, derandomize=True)
    @given(
        st.lists(st.integers(0, 2**64 - 1), min_size=words, max_size=words),
        *[st.sampled_from([begin, end, 0, 2**32 - 1])] * 2,
    )
    def check(row: list[int], first: int, last: int) -> None:
        row[3], row[4] = first << 32 | row[3] & 0xFFFFFFFF, last << 32 | row[4] & 0xFFFFFFFF
        pairs = made.pairs_of([struct.pack(f"<{words}Q", *row)])

        assert len(pairs) == ((first, last) == (begin, end))
        assert all(slow_line(pair) for pair in pairs)

    check()


@pytest.mark.parametrize("seed", range(8))
def test_counts_that_the_process_has_written_over_make_an_interval_of_no_less_than_nothing(
    seed: int,
) -> None:
    numbers = random.Random(seed)

    def any_sums() -> Sums:
        words = [numbers.randrange(1 << 64) for _ in range(MISSED + WORDS + 1)]
        missed, buckets = words[:MISSED], words[MISSED : MISSED + WORDS - 2]
        return Sums(tuple(missed), tuple(buckets), *words[-3:])

    nothing = Sums((0,) * MISSED, (0,) * (WORDS - 2), 0, 0, 0)
    for now, before in ((any_sums(), any_sums()), (nothing, any_sums())):
        answer = latencies_of(now, before)

        assert min(answer.pairs, answer.sum_ns, answer.begins, answer.ends, answer.unshown) >= 0
        assert all(bucket.number >= 0 for bucket in answer.histogram.buckets())
        assert all(len(line) < 200 for line in latencies_lines(answer))
    assert answer.pairs == 0


# ---- groups --------------------------------------------------------------------------------------


def test_a_pair_is_in_the_group_of_its_begin(pairing: Callable) -> None:
    """Whatever its end says, and in whatever order ends come."""
    made = pairing(per="text[:3], id % 2", slower_ns=0)
    texts = {1: b"one", 2: b"two", 3: b"one more", 4: b"four"}
    for id, text in texts.items():
        made.begin(id, text)
    for id in (3, 1, 2):
        made.end(id, b"other")
    rows = made.rows()

    assert {key: row.calls for key, row in rows.items()} == {("one", 1): 2, ("two", 0): 1}
    pairs = made.slow()
    taken = {pair.begin.fields["id"]: pair.took_ns for pair in pairs}
    assert [pair.end.fields["text"] for pair in pairs] == ["other"] * 3
    assert rows["one", 1].sum_ns == taken[1] + taken[3]
    assert rows["one", 1].longest_ns == max(taken[1], taken[3])
    assert rows["two", 0].sum_ns == taken[2]
    answer = made.read()
    assert (answer.pairs, answer.waiting, answer.sum_ns) == (3, 1, sum(taken.values()))


def test_a_replaced_begin_leaves_its_group(pairing: Callable) -> None:
    made = pairing(per="text")
    made.begin(1, b"first")
    made.begin(1, b"second")
    made.end(1)

    assert {key: row.calls for key, row in made.rows().items()} == {"second": 1}


def test_pairs_without_room_for_their_group_are_in_all_pairs(pairing: Callable) -> None:
    made = pairing(per="text[:1]", groups=2)
    for id, text in enumerate((b"a", b"b", b"c", b"a", b"d")):
        made.begin(id, text)
        made.end(id)

    assert {key: row.calls for key, row in made.rows().items()} == {"a": 2, "b": 1}
    answer = made.read()
    assert (answer.pairs, answer.begins, answer.ends, answer.alone) == (5, 5, 5, 0)


def test_a_group_that_is_too_long_or_cannot_be_read_is_none(pairing: Callable) -> None:
    """Its pair is made by the key, which is well."""
    number = ctypes.c_uint32(7)
    made = pairing(per="u32(place)", where="id != 9")
    made.begin(1, place=ctypes.addressof(number))
    made.begin(2, place=16)
    made.end(1)
    made.end(2)

    assert {key: row.calls for key, row in made.rows().items()} == {7: 1}
    assert (made.read().pairs, made.read().unreadable) == (2, 0)
    long = pairing(per="text", text=8)
    for id, text in enumerate((b"12345678", b"123456789")):
        long.begin(id, text)
        long.end(id)
    assert {key: row.calls for key, row in long.rows().items()} == {"12345678": 1}
    assert (long.read().pairs, long.read().long) == (2, 0)


def test_a_key_that_cannot_be_read_has_no_pair_and_no_group(pairing: Callable) -> None:
    """The key and the group each say by themselves whether a number is missing."""
    number = ctypes.c_uint32(7)
    made = pairing(by="u32(place)", ends_by="7", per="id, u32(place) % 4")
    made.begin(1, place=16)
    made.begin(2, place=ctypes.addressof(number))
    made.end(7)

    assert {key: row.calls for key, row in made.rows().items()} == {(2, 3): 1}
    assert (made.read().pairs, made.read().unreadable) == (1, 1)


def test_threads_enter_the_groups_of_their_begins(own: OwnArena) -> None:
    made = Pairing(own, room=256, per="id % 8", groups=16)
    turns = 2000

    def turn(thread: int) -> None:
        for at in range(turns):
            id = thread * turns + at
            made.begin(id)
            made.end(id)

    threads = [threading.Thread(target=turn, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    rows, answer = made.rows(), made.read()
    made.free()

    assert {key: row.calls for key, row in rows.items()} == dict.fromkeys(range(8), turns // 2)
    assert answer.pairs == 4 * turns and answer.sum_ns == sum(row.sum_ns for row in rows.values())


def test_a_number_of_a_group_that_was_written_over_is_none(own: OwnArena) -> None:
    made = Pairing(own, per="id")
    made.begin(5)
    size, keys = made.aggregate.size, made.aggregate.keys
    held = keys + 8 * (size.mask + 1)
    for place in range(size.mask + 1):  # the begin's is one of them
        at = held + 8 * (place * (size.key_words + size.held_words) + size.key_words + 2)
        own.store.write(at, struct.pack("<Q", 1 << 60))
    made.end(5)
    rows, answer = made.rows(), made.read()
    made.free()

    assert not rows and answer.pairs == 1


# ---- what is no latency --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("question", "sentence"),
    [
        ({"by": "nothing"}, "there is no name nothing"),
        ({"by": "id, text", "ends_by": "id"}, "has 2 parts, and that of an end 1"),
        ({"by": "half", "ends_by": "id"}, "a float cannot be a key"),
        ({"by": "text", "ends_by": "status"}, "cannot be added up together"),
        ({"by": "id", "where": "status > 1"}, "there is no name status"),
        ({"by": "1, 2, 3, 4, 5, 6, 7"}, "at most 6 parts"),
        ({"by": "1, 2, 3, 4", "per": "1, 2, 3"}, "at most 6 parts together"),
        ({"per": "status"}, "there is no name status"),
        ({"per": "half"}, "a float cannot be a key"),
        ({"by": "stack"}, "--per stack .* divides the times by the stack of the begin"),
    ],
)
def test_wrong_latency_is_refused(question: dict[str, Any], sentence: str) -> None:
    with pytest.raises(BadQuestion, match=sentence):
        ask_markers(Timed("begin", "end", **question), [BEGIN], [END])


def test_marker_that_lacks_a_name_is_told() -> None:
    pairing = ask_markers(Timed("b", "e", by="half > 1", ends_by="status > 1"), [BEGIN, END], [END])

    assert pairing.begins[1] == Lack("end", "half")


@pytest.mark.parametrize(
    ("duration_ns", "words"),
    [
        (0, "0 ns"), (870, "870 ns"), (1024, "1.02 µs"), (9_996, "10.0 µs"), (999_400, "999 µs"),
        (999_600, "1.00 ms"), (52_100_000, "52.1 ms"), (2_100_000_000, "2.10 s"), (None, "-"),
    ],
)  # fmt: skip
def test_durations_are_said_with_three_digits(duration_ns: int | None, words: str) -> None:
    assert duration_words(duration_ns) == words


def test_lines_fit_eighty_columns(pairing: Callable) -> None:
    made = pairing()
    for id in range(200):
        made.begin(id)
        made.end(id + id % 2)
    lines = list(latencies_lines(made.read()))

    assert max(map(len, lines)) <= 80
    assert "100 pairs" in lines


def test_latencies_of_two_processes_are_added_up() -> None:
    def of(counts: dict[int, int], key: str, number: int) -> Latencies:
        sketch = Sketch(SCALE, counts)
        row = LatencyRow((key,), sketch, number, number)
        return Latencies(sketch, number, number, *range(number, number + 11), rows=(row,))

    left, right = of({40: 2, 41: 1}, "a", 10), of({41: 3}, "a", 100)
    both = left.plus(right)

    assert (both.sketch.counts, both.sum_ns, both.longest_ns) == ({40: 2, 41: 4}, 110, 100)
    assert (both.waiting, both.unshown, both.pairs) == (110, 128, 6)
    assert both.rows == (LatencyRow(("a",), both.sketch, 110, 100),)
    assert [row.key for row in left.plus(of({50: 1}, "b", 300)).rows] == [("b",), ("a",)]
    assert left.plus(right._replace(longest_ns=None)).longest_ns is None


def test_a_slow_pair_is_json_whatever_its_fields_are() -> None:
    end = PairEnd("end", 7, {"x": math.inf, "y": math.nan, "z": 1.5, "text": None})

    text = json.dumps(slow_facts(SlowPair(1, 2, 3, end, end)), allow_nan=False)

    assert json.loads(text)["begin"]["fields"] == {"x": "inf", "y": "nan", "z": 1.5, "text": None}
