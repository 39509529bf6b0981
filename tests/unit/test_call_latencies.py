"""Durations of calls that the runtime adds up, in this process, against what was given to it."""

from __future__ import annotations

import ctypes
import threading
from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from markerjit.abi import SLOW_WORDS
from markerjit.arena.aggregates import Size, Ticks
from markerjit.errors import BadArgument
from markerjit.events.call_latencies import latencies_of_calls, slow_calls, sums_of_calls
from markerjit.events.latencies import Known, Latencies, SlowPair
from markerjit.facts.latencies import latencies_lines, row_cells, row_facts
from markerjit.model import CType, Signature, TypeClass
from markerjit.patch.request import Pair
from markerjit.probes.pairing import ask_markers
from markerjit.probes.recorders import Recorders
from markerjit.questions import Lack
from markerjit.questions.latencies import WORDS, Side, Timed
from markerjit.ring.clock import NS, Calibration
from markerjit.ring.types import Time
from markerjit.sites.names import parse_name, returns_of
from tests.support.own_arena import LONG, RESTARTABLE, SHARED, OwnArena, Slot, geometry_of

ULONG = CType(TypeClass.UNSIGNED, 8)
CHARS = CType(TypeClass.CHARS, 8)
FORMAT = "ret %ld dur %lu n %ld text %s"
TYPES = (LONG, ULONG, LONG, CHARS)
RETURNS = [Signature(f"func:{name}:return", FORMAT, TYPES) for name in ("read", "write")]


@pytest.fixture(scope="module", params=[RESTARTABLE, SHARED])
def own(request: pytest.FixtureRequest) -> OwnArena:
    return OwnArena(geometry_of(max_markers=512, aggregate_pages=4096), way=request.param)


class Timing:
    """The returns of two functions of this process."""

    def __init__(self, own: OwnArena, *, room: int = 16, **question: Any) -> None:
        timed = Timed("func:*", "func:*:return", **{"by": "", "took": "dur", **question})
        self._arena = own.arena
        self.pairing = ask_markers(timed, [], RETURNS)
        sides = [side for side in self.pairing.ends if isinstance(side, Side)]
        assert len(sides) == len(RETURNS)
        size = Size(self.pairing.key_words, WORDS, room if timed.by else 1)
        if timed.slower_ns is not None:
            slow_words = SLOW_WORDS + max(side.field_words for side in sides)
            size = size._replace(slow_words=slow_words, slow_room=4)
        self.aggregate = own.arena.aggregates.make(size, Ticks(1 << 32, 0))
        self.are_names = [part.strip() == "name" for part in timed.by.split(",")] * bool(timed.by)
        recorders = Recorders(own.arena)
        self.slots, self.known = [], {}
        for signature, side in zip(RETURNS, sides, strict=True):
            probe = Pair.of(timed, self.pairing.key, ends=True, counter=False)
            recorders.tell([signature], probe)
            marker = recorders.find(signature, probe)
            assert marker is not None
            own.arena.markers.set_aggregate(marker, self.aggregate.ticket)
            self.known[marker] = Known(signature.name, side, True)
            address = own.arena.markers.address(marker)
            probe_at = own.arena.asking_probe(marker)
            self.slots.append(Slot(probe=probe_at, data=address, preserving=1))

    def call(
        self, took: int, n: int = 0, *, ret: int = 0, text: bytes = b"", which: int = 0
    ) -> None:
        self.slots[which].hit(
            ctypes.c_int64(ret), ctypes.c_uint64(took), ctypes.c_int64(n), ctypes.c_char_p(text)
        )

    def sums(self) -> Any:
        return sums_of_calls(self._arena.aggregates.copy(self.aggregate))

    def read(self, before: Any = None) -> Latencies:
        return latencies_of_calls(self.sums(), before, self.pairing.key, self.are_names)

    def slow(self) -> list[SlowPair]:
        rows = self._arena.aggregates.take_slow(self.aggregate)
        return slow_calls(rows, self.known, Calibration(Time.MONOTONIC, 0, 0, NS, 0))

    def free(self) -> None:
        self._arena.aggregates.free(self.aggregate.ticket)
        self._arena.aggregates.reclaim(lambda ticket: False)


@pytest.fixture
def timing(own: OwnArena, request: pytest.FixtureRequest) -> Callable[..., Timing]:
    def make(**kwargs: Any) -> Timing:
        made = Timing(own, **kwargs)
        request.addfinalizer(made.free)
        return made

    return make


def check_times(row: Any, took: Sequence[int]) -> None:
    """Sum, longest and number are exact, and quantiles are near to a time that was there."""
    assert (row.sum_ns, row.longest_ns) == (sum(took), max(took))
    assert row.sketch.total == len(took)
    for fraction in (0.5, 0.9, 0.99):
        exact = sorted(took)[int(fraction * (len(took) - 1))]
        assert abs(row.quantile(fraction) - exact) <= exact * 0.02 + 0.5


CALLS = st.lists(
    st.tuples(st.integers(0, 1), st.integers(0, 1 << 40), st.integers(-3, 3)),
    min_size=1, max_size=60,
)  # fmt: skip


@settings(deadline=None)
@given(calls=CALLS)
def test_calls_are_added_up_by_their_key(own: OwnArena, calls: list[tuple[int, int, int]]) -> None:
    made = Timing(own, by="name, n")
    by_key: dict[tuple[str, int], list[int]] = defaultdict(list)
    try:
        for which, took, n in calls:
            made.call(took, n, which=which)
            by_key["func:write" if which else "func:read", n].append(took)
        answer = made.read()
    finally:
        made.free()

    assert {row.key for row in answer.rows} == set(by_key)
    for row in answer.rows:
        check_times(row, by_key[row.key])  # type: ignore[index]
    check_times(answer, [took for _, took, _ in calls])
    assert [row.sum_ns for row in answer.rows] == sorted(map(sum, by_key.values()), reverse=True)
    assert answer.pairs == answer.begins == answer.ends == len(calls)


def test_calls_without_a_key_are_one_histogram(timing: Callable) -> None:
    made = timing()
    for took in (10, 1000, 100_000):
        made.call(took)
    answer = made.read()

    assert [row.key for row in answer.rows] == [()]
    check_times(answer, [10, 1000, 100_000])
    assert "3 calls" in list(latencies_lines(answer, "call"))


def test_an_interval_has_what_came_since(timing: Callable) -> None:
    made = timing(by="name")
    made.call(100)
    before = made.sums()
    made.call(7, which=1)
    made.call(9, which=1)
    answer = made.read(before)

    assert [(row.key, row.calls, row.sum_ns) for row in answer.rows] == [(("func:write",), 2, 16)]
    assert answer.longest_ns is answer.rows[0].longest_ns is None
    assert row_cells(answer.rows[0])[-1] == "-"


def test_a_condition_is_asked_at_the_return(timing: Callable) -> None:
    made = timing(where="ret < 0 and n == 3")
    for ret, n in ((-1, 3), (0, 3), (-1, 2), (-9, 3)):
        made.call(5, n, ret=ret)

    assert made.read().pairs == 2


def test_a_key_without_room_is_counted(timing: Callable) -> None:
    made = timing(by="n", room=4)
    for n in range(10):
        made.call(n, n)
        made.call(n, n)
    answer = made.read()

    assert (len(answer.rows), answer.pairs, answer.end_full) == (4, 8, 12)
    assert answer.ends == 20
    assert "12 calls without room for its key; --room has room for more" in list(
        latencies_lines(answer, "call")
    )


def test_a_text_that_is_too_long_is_counted(timing: Callable) -> None:
    made = timing(by="text", text=4)
    for text in (b"abcd", b"abcde", b"ab"):
        made.call(1, text=text)
    answer = made.read()

    assert {row.key for row in answer.rows} == {("abcd",), ("ab",)}
    assert (answer.end_long, answer.ends) == (1, 3)


def test_slow_calls_have_arguments_and_result(timing: Callable) -> None:
    made = timing(slower_ns=50, by="name")
    made.call(49, 1)
    made.call(50, 2, ret=-7, text=b"x", which=1)
    (pair,) = made.slow()

    assert (pair.took_ns, pair.begin.name, pair.end.name) == (50, "func:write", "func:write:return")
    assert pair.begin.fields == {"n": 2, "text": "x"}
    assert pair.end.fields == {"ret": -7}
    assert pair.begin.tid == pair.end.tid == threading.get_native_id()
    assert made.slow() == []


def test_slow_calls_without_room_are_counted(timing: Callable) -> None:
    made = timing(slower_ns=0)
    for n in range(7):
        made.call(n, n)
    pairs = made.slow()

    assert [pair.begin.fields["n"] for pair in pairs] == [0, 1, 2, 3]
    assert (made.read().unshown, made.read().pairs) == (3, 7)


def test_threads_lose_no_call(timing: Callable) -> None:
    made = timing(by="n")
    threads = [
        threading.Thread(target=lambda n=n: [made.call(n + 1, n) for _ in range(500)])
        for n in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    answer = made.read()

    assert {row.key: (row.calls, row.sum_ns) for row in answer.rows} == {
        (n,): (500, 500 * (n + 1)) for n in range(4)
    }


def test_facts_of_calls_have_a_row_for_each_key(timing: Callable) -> None:
    made = timing(by="name")
    made.call(8)
    (row,) = row_facts(made.read(), "calls")["rows"]

    assert (row["key"], row["calls"], row["sum_ns"], row["longest_ns"]) == (["func:read"], 1, 8, 8)
    assert row["quantiles_ns"]["0.5"] == 8


def test_a_return_that_does_not_know_its_duration_lacks_it() -> None:
    plain = Signature("func:brief:return", "ret %ld", (LONG,))
    timed = Timed("func:*", "func:*:return", by="", took="dur")

    assert ask_markers(timed, [], [*RETURNS, plain]).ends[2] == Lack("func:brief:return", "dur")


@pytest.mark.parametrize(
    ("pattern", "returns"),
    [
        ("func:malloc", "func:malloc:return"),
        ("func:pg_*", "func:pg_*:return"),
        ("func:libc.so.6:read", "func:libc.so.6:read:return"),
        ("func:a::b(int, char)", "func:a::b(int, char):return"),
        ("func:a,func:b,!func:b*", "func:a:return,func:b:return,!func:b*:return"),
        ("func:{a,b}", "func:a:return,func:b:return"),
        ("func:a,@libx.so", "func:a@libx.so:return"),
    ],
)
def test_the_returns_of_functions_are_named_by_them(pattern: str, returns: str) -> None:
    name = returns_of(parse_name(pattern))
    parts = name.parts or (name,)

    assert str(name) == returns
    assert all(part.at_return for part in (*parts, *name.without))


@pytest.mark.parametrize("pattern", ["kv_get", "func:a,kv_get", "func:a:return", "call:a->b"])
def test_what_is_no_function_has_no_calls(pattern: str) -> None:
    with pytest.raises(BadArgument, match="since no end is named"):
        returns_of(parse_name(pattern))
