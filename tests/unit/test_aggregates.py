"""The runtime's sums by key, in this process, against sums that are made here: whatever the values,
with restartable sequences and without."""

from __future__ import annotations

import ctypes
import math
import os
import threading
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any
from unittest.mock import Mock

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from markerjit.abi import AGGREGATE_SIZE, AggregateEntry
from markerjit.arena.aggregates import ROOM_WITHOUT_KEY, Size
from markerjit.arena.code import Code
from markerjit.elf.demangle import demangled
from markerjit.errors import BadArgument, BadQuestion, Refused
from markerjit.events.aggregates import (
    AggregateRow,
    Answers,
    Missed,
    Statistics,
    answers_of,
    since,
    totals_of,
)
from markerjit.facts.aggregates import answers_facts, histogram_lines, key_words
from markerjit.model import Signature
from markerjit.patch.request import AddUp
from markerjit.probes.adding import ask_markers
from markerjit.probes.recorders import Recorders
from markerjit.questions.aggregates import Asked, Gathered, keys_of, parse_aggregate
from markerjit.questions.buckets import Histogram, Scale, Sketch
from markerjit.questions.types import Type
from markerjit.unwind.frames import Frame, WalkedStack
from markerjit.unwind.walk import StackEnd
from markerjit.x86.assemble import assemble_anywhere
from tests.support.adder import SIGNATURE, UNSIGNED, Adder, give_back
from tests.support.own_arena import CHARS, LONG, RESTARTABLE, SHARED, OwnArena, geometry_of
from tests.support.timing import reaped

CLAIMED = 1  # native/src/runtime/aggregate.c
PROPERTY = settings(max_examples=25, deadline=None, derandomize=True)

INTEGERS = st.one_of(
    st.integers(-(2**63), 2**63 - 1), st.integers(-70, 70),
    st.sampled_from([-(2**63), 2**63 - 1, 2**62, -(2**62)]),
)  # fmt: skip
UNSIGNEDS = st.one_of(st.integers(0, 2**64 - 1), st.integers(0, 200))
FLOATS = st.floats(allow_nan=False)
VALUES = (INTEGERS, UNSIGNEDS, FLOATS)


@pytest.fixture(scope="module", params=[RESTARTABLE, SHARED])
def own(request: pytest.FixtureRequest) -> OwnArena:
    geometry = geometry_of(max_markers=256, aggregate_pages=2048)
    return OwnArena(geometry, way=request.param)


@pytest.fixture
def adder(own: OwnArena, request: pytest.FixtureRequest) -> Callable[..., Adder]:
    def make(*args: Any, **kwargs: Any) -> Adder:
        made = Adder(own, *args, **kwargs)
        request.addfinalizer(made.free)
        return made

    return make


# ---- counts and sums -----------------------------------------------------------------------------


def test_events_are_counted_by_key(adder: Callable) -> None:
    count = adder("count()", by="key % 3, size > 2")
    for n in range(100):
        count.hit(n, n)

    assert {row.key: row.answer for row in count.answers().rows} == {
        (0, False): 1, (1, False): 1, (2, False): 1, (0, True): 33, (1, True): 32, (2, True): 32,
    }  # fmt: skip
    assert count.answers().missed == Missed()


def test_one_question_about_many_markers_is_prepared_at_once(
    own: OwnArena, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The room is looked at once, and the code assembled once, however many markers there are."""
    signatures = [Signature(f"many{index}", "key %ld", (LONG,)) for index in range(40)]
    asked = parse_aggregate("count()", by="name, key * 7", where="key != 5", bytes_of_text=16)
    shape, _ = ask_markers(asked, signatures)
    probe = AddUp.of(asked, shape)
    looks = Mock(side_effect=Code.places)
    monkeypatch.setattr(Code, "places", lambda code: looks(code))
    assembled = Mock(wraps=assemble_anywhere)
    monkeypatch.setattr("markerjit.probes.question.assemble_anywhere", assembled)
    recorders = Recorders(own.arena)

    recorders.tell(signatures, probe)

    assert looks.call_count == 1
    assert assembled.call_count <= 1
    markers = [recorders.find(signature, probe) for signature in signatures]
    starts = sorted(own.arena.asking_probe(marker) for marker in markers if marker is not None)
    assert len({*starts}) == len(signatures)
    extents = sorted(own.arena.markers.questions())
    assert all(before.end <= after.start for before, after in pairwise(extents))


@pytest.mark.parametrize("values", VALUES, ids=["signed", "unsigned", "floats"])
def test_statistics_are_those_of_the_values(own: OwnArena, values: st.SearchStrategy[Any]) -> None:
    name = {INTEGERS: "key", UNSIGNEDS: "size", FLOATS: "half"}[values]

    @PROPERTY
    @given(st.lists(values, min_size=1, max_size=20))
    def check(given: list[Any]) -> None:
        stat = Adder(own, f"stat({name})")
        for value in given:
            stat.hit(**{name: value})
        (row,) = stat.answers().rows
        stat.free()

        answer = row.answer
        assert isinstance(answer, Statistics)
        assert (answer.events, answer.min, answer.max) == (len(given), min(given), max(given))
        if name == "half":
            assert answer.sum is not None
            assert math.isnan(sum(given)) or answer.sum == pytest.approx(sum(given), rel=1e-9)
        else:
            assert answer.sum == sum(given)

    check()


@pytest.mark.parametrize(
    ("what", "answer"),
    [
        ("count()", 3), ("sum(key)", Statistics(3, 6)), ("avg(key)", Statistics(3, 6)),
        ("min(key)", Statistics(3, min=-1)), ("max(key * 2)", Statistics(3, max=8)),
        ("sum(half)", Statistics(3, -1.5)), ("sum(len(text))", Statistics(3, 12)),
        ("max(key > 3)", Statistics(3, max=1)),
    ],
)  # fmt: skip
def test_each_aggregate_has_what_it_is_called(adder: Callable, what: str, answer: object) -> None:
    made = adder(what)
    for key in (3, 4, -1):
        made.hit(key, half=-0.5)

    assert [row.answer for row in made.answers().rows] == [answer]


def test_mean_is_the_sum_by_the_count() -> None:
    assert Statistics(4, 10).avg == 2.5
    assert Statistics(4).avg is None
    assert Statistics(0, 0).avg is None


def test_floats_are_added_whatever_the_program_has_in_its_control_word(adder: Callable) -> None:
    made = adder("sum(half)")
    for value in (math.inf, -math.inf, 1e308, 1e308):
        made.hit(half=value)

    (row,) = made.answers().rows
    assert row.events == 4
    assert math.isnan(row.answer.sum)


def test_what_is_no_number_is_missed(adder: Callable) -> None:
    for what in ("stat(half)", "hist(half)", "quantiles(half)", "sum(half)"):
        made = adder(what)
        made.hit(half=math.nan)
        made.hit(half=-math.nan)
        made.hit(half=1.0)

        assert made.answers().missed == Missed(nan=2)
        assert made.answers().events == 1


@pytest.mark.parametrize("what", ["count()", "sum(key)", "hist(key)", "quantiles(key)"])
def test_counts_that_the_process_has_written_over_make_an_interval_of_nothing(
    adder: Callable, what: str
) -> None:
    made = adder(what, by="size")
    for turn in range(5):
        made.hit(turn, 1)
    before = totals_of(made._arena.aggregates.copy(made.aggregate), made.shape)
    now = before._replace(keys={key: (0,) * len(words) for key, words in before.keys.items()})

    answers = answers_of(since(now, before, made.shape), made.shape, 16)

    assert answers.rows == ()
    assert answers.missed == Missed()


def test_interval_has_what_was_added_in_it(adder: Callable) -> None:
    made = adder("sum(key)", by="size")
    made.hit(5, 1)
    before = totals_of(made._arena.aggregates.copy(made.aggregate), made.shape)
    made.hit(-7, 1)
    made.hit(9, 2)
    now = totals_of(made._arena.aggregates.copy(made.aggregate), made.shape)

    rows = answers_of(since(now, before, made.shape), made.shape, 16).rows
    assert {row.key: row.answer for row in rows} == {
        (1,): Statistics(1, -7),
        (2,): Statistics(1, 9),
    }


# ---- buckets -------------------------------------------------------------------------------------


@pytest.mark.product
@pytest.mark.parametrize("fine", [False, True])
@pytest.mark.parametrize("values", VALUES, ids=["signed", "unsigned", "floats"])
def test_each_value_is_in_its_bucket(
    own: OwnArena, values: st.SearchStrategy[Any], fine: bool
) -> None:
    name = {INTEGERS: "key", UNSIGNEDS: "size", FLOATS: "half"}[values]
    made = Adder(own, f"{'quantiles' if fine else 'hist'}({name})", by="text")
    number = iter(range(10**9))

    @PROPERTY
    @given(values)
    def check(value: Any) -> None:
        if next(number) % 16 == 15:  # there is room for so many keys
            made.free()
            made.__init__(own, str(made.asked.does) + f"({name})", by="text")  # type: ignore[misc]
        key = f"{value}"[:16]
        made.hit(**{name: value}, text=key.encode())

        (counts,) = [row.answer.counts for row in made.answers().rows if row.key == (key,)]
        scale = made.shape.scale
        assert scale and len(counts) >= 1
        bounds = [scale.bounds(bucket) for bucket in counts]
        assert any(_is_within(value, *each, scale) for each in bounds), (value, bounds)

    check()
    made.free()


def _is_within(value: Any, low: Any, high: Any, scale: Scale) -> bool:
    if scale.type is not Type.F64:
        return bool(low <= value <= high)
    if abs(value) >= 2.0**64:
        return bool(low == 2.0**64 if value > 0 else high == -(2.0**64))
    if abs(value) < 2.0**-32:
        return bool(low == 0)
    return bool(low < value <= high if value < 0 else low <= value < high)


def test_values_that_are_larger_than_all_buckets_are_not_shown_as_their_end(
    adder: Callable,
) -> None:
    powers, fine = adder("hist(half)"), adder("quantiles(half)")
    for made in (powers, fine):
        for value in (math.inf, -math.inf, 2.0**64, 2.0**64 * (1 - 2**-53), 1.5):
            made.hit(half=value)

    (facts,) = answers_facts(powers.answers())["rows"]
    ends = [(each["low"], each["high"]) for each in facts["buckets"] if each["number"]]
    assert ends == [("-inf", -(2.0**64)), (1.0, 2.0), (2.0**63, 2.0**64), (2.0**64, "inf")]
    (row,) = powers.answers().rows
    labels = [line.split(")")[0].strip() for line in histogram_lines(row.answer) if ")" in line]
    assert (labels[0], labels[-1]) == ("[-inf, -16E", "[16E, inf")
    (row,) = fine.answers().rows
    assert [row.answer.quantile(at / 4) for at in (0, 1, 3, 4)] == pytest.approx(
        [-math.inf, 1.5, math.inf, math.inf], rel=0.02
    )
    assert answers_facts(fine.answers())["rows"][0]["quantiles"]["0.999"] == "inf"


@pytest.mark.parametrize("type_", [Type.I64, Type.U64, Type.F64])
@pytest.mark.parametrize("fine", [False, True])
def test_buckets_lie_beside_each_other(type_: Type, fine: bool) -> None:
    scale = Scale(type_, fine)
    first = {Type.U64: 0, Type.I64: 0 if not fine else scale.middle - 1888, Type.F64: 0}[type_]
    bounds = [scale.bounds(number) for number in range(first, scale.size)]

    for (_, high), (low, _) in pairwise(bounds):
        if type_ is not Type.F64:
            assert low == high + 1
        elif low != 0:  # that of zero has what is next to it on both sides
            assert low == high
    assert (bounds[0][0] <= -(2**63)) == (type_ is not Type.U64)
    assert bounds[-1][1] >= (2**63 - 1 if type_ is Type.I64 else 2**64 - 1)


@PROPERTY
@given(st.lists(UNSIGNEDS, min_size=1, max_size=50), st.sampled_from([0, 0.1, 0.5, 0.9, 0.99, 1]))
def test_quantile_differs_by_at_most_two_percent(values: list[int], fraction: float) -> None:
    scale = Scale(Type.U64, fine=True)
    counts: dict[int, int] = {}
    for value in values:
        number = next(
            number for number in _near(scale, value)
            if scale.bounds(number)[0] <= value <= scale.bounds(number)[1]
        )  # fmt: skip
        counts[number] = counts.get(number, 0) + 1
    exact = sorted(values)[int(fraction * (len(values) - 1))]

    answer = Sketch(scale, counts).quantile(fraction)

    assert answer is not None
    assert abs(answer - exact) <= 0.02 * exact
    assert Sketch(scale, {}).quantile(fraction) is None


def _near(scale: Scale, value: int) -> Sequence[int]:
    """The buckets of the power of two of a value."""
    bits = value.bit_length()
    return range(max(bits - 7, 0) * 32, max(bits - 4, 2) * 32)


def test_histogram_has_the_empty_buckets_between() -> None:
    histogram = Histogram(Scale(Type.U64, fine=False), {1: 2, 4: 1})

    assert [tuple(bucket) for bucket in histogram.buckets()] == [
        (1, 1, 2), (2, 3, 0), (4, 7, 0), (8, 15, 1),
    ]  # fmt: skip
    assert histogram.total == 3
    assert list(Histogram(Scale(Type.U64, fine=False), {}).buckets()) == []


# ---- keys ----------------------------------------------------------------------------------------


def test_answers_of_several_processes_are_joined_by_key() -> None:
    scale = Scale(Type.U64, fine=False)
    parts = [
        Answers((AggregateRow(("a",), 3), AggregateRow(("b",), 1)), Missed(full=1), 2, 8),
        Answers((AggregateRow(("b",), 4),), Missed(full=2, nan=1), 1, 8),
    ]

    assert parts[0].plus(parts[1]) == Answers(
        (AggregateRow(("b",), 5), AggregateRow(("a",), 3)), Missed(full=3, nan=1), 2, 16
    )
    assert parts[0].plus(Answers((), Missed(), 0, 0)) == parts[0]
    for left, right, both in (
        (Statistics(2, 5, 1, 4), Statistics(1, -7, -7, -7), Statistics(3, -2, -7, 4)),
        (Statistics(2, 5), Statistics(1, 2), Statistics(3, 7)),
        (Histogram(scale, {1: 2, 3: 1}), Histogram(scale, {3: 4}), Histogram(scale, {1: 2, 3: 5})),
        (Sketch(scale, {0: 1}), Sketch(scale, {7: 2}), Sketch(scale, {0: 1, 7: 2})),
    ):
        rows = [Answers((AggregateRow((), each),), Missed(), 1, 1) for each in (left, right)]
        assert rows[0].plus(rows[1]).rows == (AggregateRow((), both),)


FINE, OF_FLOATS = Scale(Type.U64, fine=True), Scale(Type.F64, fine=False)


@pytest.mark.parametrize(
    ("left", "right"),
    [
        (AggregateRow(("a",), 3), AggregateRow(("a",), Sketch(FINE, {1: 1}))),
        (AggregateRow(("a",), 3), AggregateRow(("b",), Sketch(FINE, {1: 1}))),
        (AggregateRow((), Sketch(FINE, {1: 1})), AggregateRow((), Histogram(FINE, {1: 1}))),
        (AggregateRow((), Histogram(FINE, {1: 1})), AggregateRow((), Histogram(OF_FLOATS, {1: 1}))),
        (AggregateRow((), Statistics(1, 5)), AggregateRow((), Statistics(1, None, 5))),
        (AggregateRow((), Statistics(1, 5)), AggregateRow((), Statistics(1, 5.0))),
        (AggregateRow((), Statistics(1, 5)), AggregateRow((), 1)),
        (AggregateRow((1,), 1), AggregateRow((1, 2), 1)),
        (AggregateRow((1,), 1), AggregateRow(("a",), 1)),
    ],
)
def test_answers_to_two_questions_are_not_joined(left: AggregateRow, right: AggregateRow) -> None:
    parts = [Answers((row,), Missed(), 1, 8) for row in (left, right)]

    for first, last in (parts, reversed(parts)):
        with pytest.raises(BadArgument, match="answers to the same question"):
            first.plus(last)


@pytest.mark.parametrize("other", [None, 3, (), "answers", AggregateRow((), 1)])
def test_only_answers_are_joined(other: Any) -> None:
    with pytest.raises(BadArgument, match="it must be an Answers"):
        Answers((), Missed(), 0, 0).plus(other)


def test_key_without_its_text_is_joined_with_the_others() -> None:
    parts = [Answers((AggregateRow((key,), 1),), Missed(), 1, 8) for key in (None, "a")]

    assert [row.key for row in parts[0].plus(parts[1]).rows] == [(None,), ("a",)]


def test_texts_of_a_key_are_whole_or_missed(adder: Callable) -> None:
    made = adder("count()", by="text", text=8)
    for text in (b"12345678", b"123456789", b"", None, "é".encode(), b"12345678"):
        made.hit(text=text)

    assert {row.key: row.answer for row in made.answers().rows} == {
        ("12345678",): 2, ("",): 1, (None,): 1, ("é",): 1,
    }  # fmt: skip
    assert made.answers().missed == Missed(long=1)


@pytest.mark.parametrize(
    ("by", "key"),
    [
        ("text[:3]", "abc"), ("text[2:5]", "cde"), ("text[20:]", ""), ("text[2:]", "cdefgh"),
        ("name", "m"), ('"constant"', "constant"), ("text[1:][1:4]", "cde"),
    ],
)  # fmt: skip
def test_parts_of_texts_are_keys(adder: Callable, by: str, key: str) -> None:
    made = adder("count()", by=by)
    made.hit(text=b"abcdefgh")

    assert [row.key for row in made.answers().rows] == [(key,)]


def test_wild_pointer_is_a_key_that_is_missing(adder: Callable) -> None:
    made = adder("count()", by="text")
    made.slot.hit(
        ctypes.c_int64(0), ctypes.c_uint64(0), ctypes.c_double(0), ctypes.c_uint64(0x123456789000)
    )

    assert [(row.key, row.answer) for row in made.answers().rows] == [((None,), 1)]


def test_full_table_counts_what_it_has_no_room_for(adder: Callable) -> None:
    made = adder("count()", by="key", keys=5)
    for n in range(20):
        made.hit(n)
    for n in range(20):
        made.hit(n)

    answers = made.answers()
    assert {row.key: row.answer for row in answers.rows} == {(n,): 2 for n in range(5)}
    assert answers.missed == Missed(full=30)
    assert (answers.keys, answers.room) == (5, 5)


def test_event_without_a_key_has_room_while_another_thread_gives_the_first_number(
    adder: Callable, own: OwnArena
) -> None:
    made = adder("count()", keys=ROOM_WITHOUT_KEY)
    entry = own.arena.geometry.aggregates.offset + made.aggregate.ticket % 256 * AGGREGATE_SIZE
    own.store.write(entry + AggregateEntry.used.offset, (1).to_bytes(8, "little"))
    own.store.write(made.aggregate.keys, CLAIMED.to_bytes(8, "little"))  # of no words the hash is 0
    for _ in range(5):
        made.hit()

    answers = made.answers()
    assert [row.answer for row in answers.rows] == [5]
    assert answers.missed == Missed()


def test_condition_comes_first(adder: Callable) -> None:
    made = adder("count()", by="key", where="size > 10 and text.startswith('t')", keys=2)
    for n in range(20):
        made.hit(n, n)
        made.hit(n, n, text=b"other")

    assert made.answers().events == 2
    assert made.answers().missed.full == 7


def test_threads_add_up_together(adder: Callable) -> None:
    made = adder("sum(size)", by="key % 50", keys=64)

    def run() -> None:
        for n in range(300):
            made.hit(n, n)

    threads = [threading.Thread(target=run) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert {row.key[0]: row.answer for row in made.answers().rows} == {
        key: Statistics(36, 6 * sum(range(key, 300, 50))) for key in range(50)
    }


def test_child_of_a_fork_adds_nothing_and_takes_no_key(adder: Callable) -> None:
    made = adder("count()", by="key")
    made.hit(1)
    child = os.fork()
    if not child:
        made.hit(1)
        made.hit(2)
        os._exit(0)
    reaped(child)

    assert [(row.key, row.answer) for row in made.answers().rows] == [((1,), 1)]
    assert made.answers().keys == 1


@pytest.mark.parametrize("what", ["hist(u32(size))", "stat(u32(size))", "sum(1.5 * u8(size))"])
def test_value_that_cannot_be_read_is_missed(adder: Callable, what: str) -> None:
    made = adder(what)
    place = ctypes.c_uint32(0)
    made.hit(size=8)
    made.hit(size=ctypes.addressof(place))
    made.hit(size=2**63)

    assert made.answers().events == 1
    assert made.answers().missed == Missed(unreadable=2)


def test_key_that_cannot_be_read_is_missed_and_a_choice_is_not(adder: Callable) -> None:
    made = adder("count()", by="u32(size) if key else 7, key")
    place = ctypes.c_uint32(5)
    made.hit(1, size=8)
    made.hit(0, size=8)
    made.hit(1, size=ctypes.addressof(place))

    assert {row.key: row.answer for row in made.answers().rows} == {(7, 0): 1, (5, 1): 1}
    assert made.answers().missed == Missed(unreadable=1)


@pytest.mark.parametrize(
    "asked",
    [
        {"by": "u8(size)"},
        {"by": "str(size)", "where": "key == 0"},
        {"where": 'str(size) == "a"'},
        {"where": "u64(size) == 7"},
    ],
)
def test_computed_address_is_never_read_by_what_is_known_of_its_page(
    own: OwnArena, adder: Callable, asked: dict[str, str]
) -> None:
    """The program may hold a pointer to memory that it has just given back, and not follow it. The
    text makes its page known for some 0.7 ms, in which it is unmapped."""
    known, made = adder("count()", by="text"), adder("count()", **asked)
    libc = ctypes.CDLL(None)
    libc.mmap.restype = ctypes.c_void_p
    child = os.fork()
    if not child:
        own.revive()
        for _ in range(20):
            page = libc.mmap(None, 4096, 3, 0x22, -1, 0)
            words = (ctypes.c_int64(1), ctypes.c_uint64(0), ctypes.c_double(0))
            known.slot.hit(*words, ctypes.c_char_p(page))
            libc.munmap(ctypes.c_void_p(page), 4096)
            made.hit(size=page)
        os._exit(0)
    status = reaped(child)

    assert status == 0
    assert known.answers().events == 20
    rows = [(row.key, row.events) for row in made.answers().rows]
    assert rows == ([((None,), 20)] if asked.get("by") == "str(size)" else [])
    assert made.answers().missed.unreadable == (20 if asked.get("by") == "u8(size)" else 0)


# ---- memory --------------------------------------------------------------------------------------


def test_late_thread_leaves_the_memory_of_another_alone(own: OwnArena) -> None:
    late = Adder(own, "count()", by="key")
    late.free()
    other = Adder(own, "count()", by="size")
    assert other.aggregate.extent == late.aggregate.extent
    late.hit(3)

    assert other.answers().rows == ()
    assert other.answers().missed == Missed()
    other.hit(size=7)
    assert [row.key for row in other.answers().rows] == [(7,)]
    other.free()


def test_number_that_stands_for_no_key_is_not_believed(own: OwnArena) -> None:
    """The program can write anything there."""
    made = Adder(own, "count()", by="key", keys=4)
    made.hit(3)
    size = 8 * (1 + made.aggregate.size.key_words)
    places = [made.aggregate.keys + size * at for at in range(made.aggregate.size.mask + 1)]
    (place,) = (at for at in places if any(own.store.read(at, 8)))
    own.store.write(place, (1 << 31).to_bytes(4, "little"))
    made.hit(3)

    assert made.answers().missed == Missed(full=1)
    made.free()


def test_memory_is_given_back_and_used_again(own: OwnArena) -> None:
    aggregates = own.arena.aggregates
    assert aggregates.all() == []
    first, second = (aggregates.make(Size(1, 1, 100)) for _ in range(2))
    assert [aggregate.ticket for aggregate in aggregates.all()] == [first.ticket, second.ticket]
    assert first.extent.end <= second.extent.start
    give_back(aggregates, first.ticket)
    third = aggregates.make(Size(1, 1, 100))

    assert third.extent == first.extent
    assert third.ticket not in (first.ticket, second.ticket)
    assert aggregates.find(first.ticket) is None
    assert not third.is_left
    for ticket in (second.ticket, third.ticket):
        give_back(aggregates, ticket)


def test_memory_belongs_to_nobody_while_a_thread_may_be_in_it(own: OwnArena) -> None:
    aggregates = own.arena.aggregates
    first = aggregates.make(Size(1, 1, 100))
    aggregates.free(first.ticket)

    assert aggregates.ended == 1
    second = aggregates.make(Size(1, 1, 100))
    aggregates.reclaim(lambda ticket: ticket == first.ticket)
    assert aggregates.ended == 1
    third = aggregates.make(Size(1, 1, 100))
    aggregates.reclaim(lambda ticket: False)
    assert aggregates.ended == 0
    fourth = aggregates.make(Size(1, 1, 100))

    starts = [each.extent.start for each in (first, second, third, fourth)]
    assert starts[0] < starts[1] < starts[2] and starts[3] == starts[0]
    assert len({each.ticket % 256 for each in (first, second, third)}) == 3
    for each in (second, third, fourth):
        give_back(aggregates, each.ticket)


def test_memory_in_which_a_thread_stays_is_lost_when_its_marker_adds_to_another(
    own: OwnArena,
) -> None:
    aggregates = own.arena.aggregates
    first = aggregates.make(Size(1, 1, 100))
    aggregates.free(first.ticket)
    aggregates.part(first.ticket, lambda ticket: ticket == first.ticket)
    aggregates.reclaim(lambda ticket: False)
    second = aggregates.make(Size(1, 1, 100))

    assert aggregates.ended == 0
    assert second.extent.start >= first.extent.end
    place = own.arena.geometry.aggregates.offset + first.ticket % 256 * AGGREGATE_SIZE
    own.store.write(place, bytes(AGGREGATE_SIZE))  # for the other tests
    give_back(aggregates, second.ticket)


def test_memory_without_a_thread_waits_for_a_stop_when_its_marker_adds_to_another(
    own: OwnArena,
) -> None:
    """Whoever is counted as inside afterwards is in the memory of the other one."""
    aggregates = own.arena.aggregates
    first = aggregates.make(Size(1, 1, 100))
    aggregates.free(first.ticket)
    aggregates.part(first.ticket, lambda ticket: False)
    second = aggregates.make(Size(1, 1, 100))
    aggregates.reclaim(lambda ticket: True)
    third = aggregates.make(Size(1, 1, 100))

    assert second.extent.start >= first.extent.end
    assert third.extent == first.extent
    for each in (second, third):
        give_back(aggregates, each.ticket)


def test_thread_that_changes_memory_by_locked_instructions_counts_itself(own: OwnArena) -> None:
    made = Adder(own, "count()", by="key")
    made.hit(1)  # a key is entered so
    (marker,) = (
        int(entry.id)
        for entry in own.arena.markers.entries()
        if entry.aggregate == made.aggregate.ticket
    )
    assert not own.arena.calls.is_entered([marker])
    geometry, size = own.arena.geometry, 16
    rows = [
        own.store.read(geometry.calls_offset(ring, marker), size) for ring in range(geometry.rings)
    ]
    assert sum(int.from_bytes(row[:8], "little") for row in rows) > 0
    made.free()


def test_ticket_fits_a_word_whatever_the_target_has_written(own: OwnArena) -> None:
    before = own.arena.control.number("aggregates_made")
    for number in (2**64 - 1, 2**56 - 1, 2**56 - 2):
        own.arena.control.write("aggregates_made", number)
        aggregate = own.arena.aggregates.make(Size(1, 1, 4))
        assert own.arena.aggregates.find(aggregate.ticket) == aggregate
        give_back(own.arena.aggregates, aggregate.ticket)
    own.arena.control.write("aggregates_made", before)


def test_no_room_is_refused_with_how_much_there_is(own: OwnArena) -> None:
    with pytest.raises(Refused, match=r"1000000 keys take \d+ KiB, and .*--keys"):
        own.arena.aggregates.make(Size(4, 100, 1_000_000))

    assert own.arena.aggregates.all() == []


def test_entry_that_makes_no_sense_is_not_believed(own: OwnArena) -> None:
    aggregate = own.arena.aggregates.make(Size(1, 1, 10))
    place = own.arena.geometry.aggregates.offset + aggregate.ticket % 256 * AGGREGATE_SIZE
    sound = own.store.read(place, AGGREGATE_SIZE)
    for at in range(8, AGGREGATE_SIZE, 4):
        field = next(
            name
            for name, *_ in reversed(AggregateEntry._fields_)
            if getattr(AggregateEntry, name).offset <= at
        )
        if field in ("owner", "used", "went", "lost", "reserved", "tick_ns", "forget", "_to_line"):
            continue
        if field in ("slow_words", "slow_room", "slow_head", "slow_read"):  # it has no pairs
            continue
        if field in ("live", "most", "most_at", "spilled"):  # and no blocks
            continue
        own.store.write(place + at, b"\xfe\xff\xff\xff")
        assert own.arena.aggregates.find(aggregate.ticket) is None, at
        own.store.write(place, sound)
    give_back(own.arena.aggregates, aggregate.ticket)


# ---- what is no aggregate ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("what", "by", "sentence"),
    [
        ("size", None, "this is not an aggregate; there are count"),
        ("median(size)", None, "this is not an aggregate"),
        ("hist()", None, "takes a value"),
        ("count(size)", None, r"count\(\) takes no value"),
        ("sum(text)", None, "this is a text"),
        ("sum(weight)", None, "there is no name weight"),
        ("count()", "half", "a float cannot be a key"),
        ("count()", "key, wait", "there is no name wait"),
        ("count()", "", "an expression is empty"),
        ("count()", "()", "nothing in the brackets"),
        ("count()", "key +", "this is not an expression"),
        ("count()", "1, 2, 3, 4, 5, 6, 7", "at most 6 parts"),
        ("count()", "text[240:]", "of the first 248"),
        ("count()", "text[:200], text[:200], text[:200]", "more than a key has"),
    ],
)
def test_wrong_aggregate_is_refused(what: str, by: str | None, sentence: str) -> None:
    with pytest.raises(BadQuestion, match=sentence):
        ask_markers(parse_aggregate(what, by=by), [SIGNATURE])


def test_parts_of_a_key_are_divided_as_python_divides_them() -> None:
    assert keys_of("a, b") == ("a", "b")
    assert keys_of("a if b in (1, 2) else c") == ("a if b in (1, 2) else c",)
    assert keys_of('key[:4], name == "a,b"') == ("key[:4]", 'name == "a,b"')
    assert keys_of("(a, b)") == ("a", "b")


def test_markers_whose_values_cannot_be_added_are_refused() -> None:
    other = Signature("n", "key %s size %lu half %ld text %p", (CHARS, UNSIGNED, LONG, CHARS))
    for what, by, sentence in (
        ("count()", "key", "cannot be added up together: i64, text"),
        ("sum(text)", None, "n: |this is a text"),
    ):
        with pytest.raises(BadQuestion, match=sentence):
            ask_markers(parse_aggregate(what, by=by), [SIGNATURE, other])

    asked = parse_aggregate("sum(half)", by="size")
    shape, (first, second) = ask_markers(asked, [SIGNATURE, other])
    assert shape.value is Type.F64
    assert isinstance(first, Gathered) and first.value and first.value.type is Type.F64
    assert isinstance(second, Gathered) and second.value and second.value.type is Type.F64


def test_aggregate_is_shown_as_it_was_asked() -> None:
    asked = Asked(parse_aggregate("hist(size)").does, "size", "key", "size > 2")

    assert str(asked) == "hist(size) by key where size > 2"


def test_many_empty_buckets_are_one_line_and_a_few_are_lines_of_their_own() -> None:
    far = histogram_lines(Histogram(Scale(Type.U64, fine=False), {1: 5, 20: 10}))
    near = histogram_lines(Histogram(Scale(Type.U64, fine=False), {1: 5, 6: 10}))

    assert [line.split()[:2] for line in far] == [["1", "5"], ["…"], ["[512K,", "1M)"]]
    assert len([*near]) == 6


def test_a_stack_in_a_key_has_its_function_as_the_source_has_it() -> None:
    stack = WalkedStack((Frame(4096, "/bin/x", 4096, "_Z4halfd", 0),), StackEnd.OUTERMOST)

    assert key_words((stack, 7)) == [demangled("_Z4halfd"), "7"]
