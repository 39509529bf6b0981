"""What is added without a call of the runtime (markerjit/probes/usual.py), told apart from what is
added with one: by a second marker of the same question, whose code calls a bare return instead. An
event that is interrupted needs the call, so now and then one of that marker is not added."""

from __future__ import annotations

import ctypes
import math
import os
import random
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from markerjit.abi import AGGREGATES, CODE_SIZE
from markerjit.events.aggregates import Missed, Statistics
from markerjit.model import Signature
from markerjit.probes import called
from markerjit.questions.buckets import EXPONENTS_ABOVE, EXPONENTS_BELOW, PARTS_BITS, Scale
from markerjit.questions.types import Type
from tests.support.adder import SIGNATURE, Adder, placed
from tests.support.choice import examples
from tests.support.own_arena import CHARS, INT, RESTARTABLE, OwnArena, geometry_of

OF_LENGTH = Signature("sized", "text %.*s more %s", (INT, CHARS, CHARS))
PROPERTY = settings(max_examples=examples(40), deadline=None, derandomize=True)
KEYS = 128
"""More than are used, and few enough that many are not where they are searched first."""

TIMES = 5
"""Events of which one at least is not interrupted."""

INTEGERS = st.one_of(
    st.integers(-(2**63), 2**63 - 1), st.integers(-70, 70),
    st.sampled_from([-(2**63), 2**63 - 1, 2**62, -(2**62), 0, 63, 64, 65]),
)  # fmt: skip
UNSIGNEDS = st.one_of(st.integers(0, 2**64 - 1), st.integers(0, 70), st.just(2**63))
FLOATS = st.one_of(
    st.floats(allow_nan=False),
    st.sampled_from([0.0, -0.0, 1.0, -1.5, math.inf, -math.inf, 5e-324, 2.0**-32, 2.0**64]),
)
VALUES = {"key": INTEGERS, "size": UNSIGNEDS, "half": FLOATS}
SUMMANDS = {
    "key": st.integers(-(2**40), 2**40),
    "size": st.integers(0, 2**40),
    "half": st.integers(-(2**40), 2**40).map(lambda number: number / 2),
}
"""Values whose sum is exact, and the same in whatever order they are added."""
TEXTS = st.binary(max_size=16).map(lambda text: text.replace(b"\0", b"0"))
EVENTS = st.lists(st.tuples(INTEGERS, UNSIGNEDS, TEXTS), min_size=1, max_size=20)


@pytest.fixture(scope="module")
def own() -> OwnArena:
    geometry = geometry_of(max_markers=512, aggregate_pages=65536)
    return OwnArena(geometry, way=RESTARTABLE)


class Both:
    """Two markers that ask the same, and add to one aggregate: one as it is, and one of which
    nothing is added that needs the runtime."""

    def __init__(
        self, own: OwnArena, what: str, by: str | None, where: str | None, *, keys: int,
        signature: Signature = SIGNATURE,
    ) -> None:  # fmt: skip
        self.whole = Adder(own, what, by=by, where=where, keys=keys, signature=signature)
        again = signature._replace(name="again")
        with pytest.MonkeyPatch.context() as patched:
            real = called.runtime_of
            code = own.arena.store.read(0, CODE_SIZE)
            returns = own.arena.base + code.index(b"\xc3")

            def without(*args: Any, **rest: Any) -> called.Runtime:
                return real(*args, **rest)._replace(aggregate=returns)

            patched.setattr(called, "runtime_of", without)
            self.usual = Adder(own, what, by=by, where=where, signature=again)
        own.arena.markers.set_aggregate(self.usual.marker, self.whole.aggregate.ticket)

    def free(self) -> None:
        self.whole.free()
        self.usual.free()


@pytest.fixture
def both(own: OwnArena, request: pytest.FixtureRequest) -> Callable[..., Both]:
    def make(what: str, by: str | None = None, where: str | None = None) -> Both:
        made = Both(own, what, by, where, keys=KEYS if what == "count()" else 16)
        request.addfinalizer(made.free)
        return made

    return make


@pytest.mark.parametrize(
    ("what", "by", "key_of"),
    [
        ("count()", None, lambda key, size, text: ()),
        ("count()", "key", lambda key, size, text: (key,)),
        ("count()", "size, key", lambda key, size, text: (size, key)),
        ("count()", "key < 0, size > 2, key", lambda key, size, text: (key < 0, size > 2, key)),
        ("count()", "text", lambda key, size, text: (shown(text),)),
        ("count()", "text, key", lambda key, size, text: (shown(text), key)),
        ("count()", 'key, "constant", text', lambda key, *rest: (key, "constant", shown(rest[-1]))),
        ("count()", "text[:3], text", lambda *event: (shown(event[-1][:3]), shown(event[-1]))),
        ("count()", "text[:8], size", lambda key, size, text: (shown(text[:8]), size)),
        ("count()", "text[:0], text[:13]", lambda *event: ("", shown(event[-1][:13]))),
        ("count()", "text[2:5]", lambda *event: (shown(event[-1][2:5]),)),
        ("count()", "text[1:], key", lambda key, size, text: (shown(text[1:]), key)),
        (
            "count()",
            "text[9:16], text[8:]",
            lambda key, size, text: (shown(text[9:16]), shown(text[8:])),
        ),
        ("count()", "size, text[3:11]", lambda key, size, text: (size, shown(text[3:11]))),
    ],
)
def test_keys_of_the_usual_case_are_those_of_the_runtime(
    both: Callable[..., Both], what: str, by: str | None, key_of: Callable
) -> None:
    made = both(what, by)
    truth: Counter[tuple[object, ...]] = Counter()
    twice: Counter[tuple[object, ...]] = Counter()

    @PROPERTY
    @given(EVENTS)
    def check(events: list[tuple[int, int, bytes]]) -> None:
        for key, size, text in events:
            for adder, hits in ((made.whole, truth), (made.usual, twice)):
                adder.hit(key, size, text=text)
                hits[key_of(key, size, text)] += 1

    check()
    answers = made.whole.answers()
    counted = {row.key: row.answer - truth[row.key] for row in answers.rows}
    assert counted.keys() == truth.keys()
    assert all(0 <= more <= twice[key] for key, more in counted.items())
    # That a page can be read is known for less than a millisecond (abi.h, MJ_READABLE_WINDOW).
    least = 0.5 if by and "text" in by else 0.95
    assert sum(counted.values()) > least * sum(twice.values())
    assert answers.missed == Missed()


@pytest.mark.parametrize("by", ["text", "text[:6]", "text[2:6]", "text, more"])
def test_text_with_a_length_ends_there_or_at_its_nul(own: OwnArena, by: str) -> None:
    made = Both(own, "count()", by, None, keys=KEYS, signature=OF_LENGTH)
    truth: Counter[tuple[str, ...]] = Counter()
    for data in (b"abcdefghijklmnop", b"abcdefgh", b"abc", b""):
        for length in (-1, *range(len(data) + 2), 100):
            text = data if length < 0 else data[:length]
            key = (shown(eval(by.split(",")[0], {"text": text})),)
            truth[(*key, "more") if by.endswith("more") else key] += 1
            arguments = ctypes.c_int(length), placed(data), placed(b"more", page=1)
            for adder in (made.whole, made.usual) * TIMES:  # the one finds the page for the other
                adder.slot.hit(*arguments)

    answers = made.whole.answers()
    made.free()
    counted = {row.key: row.answer for row in answers.rows}
    assert counted.keys() == truth.keys()
    for key, hits in truth.items():
        assert (TIMES + 1) * hits <= counted[key] <= 2 * TIMES * hits
    assert answers.missed == Missed()


@pytest.mark.parametrize("low", [1, 2, 7, 8, 9])
def test_text_that_ends_before_a_part_has_an_empty_one(own: OwnArena, low: int) -> None:
    """Keys that are like the beginnings of such texts are there, too."""
    made = Both(own, "count()", f"text[{low}:{low + 4}]", None, keys=KEYS)
    start = b"abcdefghi"[:low]
    truth: Counter[tuple[str, ...]] = Counter()
    for text in (*(start + start[:length] for length in range(4)), start[:-1], start[:1], b""):
        for adder in (made.whole, made.usual) * TIMES:
            adder.hit(text=text)
        truth[(shown(text[low : low + 4]),)] += 1

    counted = {row.key: row.answer for row in made.whole.answers().rows}
    made.free()
    assert counted.keys() == truth.keys()
    for key, texts in truth.items():
        assert 1.5 * TIMES * texts < counted[key] <= 2 * TIMES * texts


@pytest.mark.parametrize("name", VALUES)
@pytest.mark.parametrize("does", ["hist", "quantiles"])
def test_buckets_of_the_usual_case_are_those_of_the_runtime(
    both: Callable[..., Both], does: str, name: str
) -> None:
    """Each value is added by both, so each bucket has all of them twice, but for a few."""
    made = both(f"{does}({name})")
    scale = made.whole.shape.scale
    assert scale
    expected: Counter[int] = Counter()
    made.whole.hit(**{name: 1})

    @PROPERTY
    @given(VALUES[name])
    def check(value: Any) -> None:
        expected[bucket_of(scale, value)] += 1
        made.whole.hit(**{name: value})
        made.usual.hit(**{name: value})

    check()
    (row,) = made.whole.answers().rows
    more = Counter(row.answer.counts) - expected - Counter([bucket_of(scale, 1)])
    assert more <= expected
    assert more.total() > 0.95 * expected.total()


def bucket_of(scale: Scale, value: float) -> int:
    """The number of the bucket of a value, by what buckets.py says of them."""
    if scale.type is not Type.F64:
        numbers = range(scale.size)
        (bucket,) = (n for n in numbers if within(int(value), *scale.bounds(n)))
        return bucket
    parts = 1 << PARTS_BITS if scale.fine else 1
    size = abs(value)
    if size >= 2.0**EXPONENTS_ABOVE:
        distance = scale.middle
    else:
        fraction, exponent = math.frexp(size)
        part = int((2 * fraction - 1) * parts)
        distance = max((exponent - 1 + EXPONENTS_BELOW) * parts + part + 1, 0) if size else 0
    return scale.middle + int(math.copysign(distance, value))


@pytest.mark.parametrize("name", VALUES)
@pytest.mark.parametrize("does", ["sum", "avg", "min", "max", "stat"])
def test_each_event_of_the_usual_case_is_added_as_a_whole(
    both: Callable[..., Both], does: str, name: str
) -> None:
    by = "size" if name == "key" else "key"
    made = both(f"{does}({name})", by)
    values = VALUES[name] if does in ("min", "max") else SUMMANDS[name]
    asked: list[bool] = []

    @PROPERTY
    @given(values, st.integers(1, 3))
    def check(value: Any, key: int) -> None:
        made.whole.hit(**{name: value, by: key})
        before = statistics_of(made.whole, key)
        made.usual.hit(**{name: value, by: key})
        after = statistics_of(made.whole, key)
        asked.append(after.events > before.events)
        assert after in (before, with_value(before, value))
        assert before.min is None or before.min <= value
        assert before.max is None or value <= before.max

    check()
    assert sum(asked) > 0.9 * len(asked)


@pytest.mark.parametrize("name", VALUES)
@pytest.mark.parametrize("does", ["min", "max", "stat"])
def test_new_extremes_are_usual(both: Callable[..., Both], does: str, name: str) -> None:
    made = both(f"{does}({name})")
    made.whole.hit(**{name: 100})
    asked: list[bool] = []

    for value in (99, 101, 98, 102, 3, 1000, 0, 5000):
        before = statistics_of(made.whole)
        made.usual.hit(**{name: value})
        after = statistics_of(made.whole)
        asked.append(after.events > before.events)
        if asked[-1]:
            assert after == with_value(before, value)

    assert sum(asked) >= 5


def statistics_of(adder: Adder, *key: int) -> Statistics:
    """What was added for a key."""
    (answer,) = (row.answer for row in adder.answers().rows if row.key == key)
    assert isinstance(answer, Statistics)
    return answer


def with_value(before: Statistics, value: float) -> Statistics:
    """The same with one value more."""
    return Statistics(
        before.events + 1,
        None if before.sum is None else before.sum + value,
        None if before.min is None else min(before.min, value),
        None if before.max is None else max(before.max, value),
    )


@pytest.fixture
def one_cpu() -> Iterator[None]:
    """Each CPU has a sum of its own."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(before)})
    yield
    os.sched_setaffinity(0, before)


@pytest.mark.usefixtures("one_cpu")
@pytest.mark.parametrize("sign", [1, -1])
def test_sum_that_leaves_its_bits_is_the_runtime_s(both: Callable[..., Both], sign: int) -> None:
    """The marker that calls nothing adds at most the first of them: if the other one's was
    interrupted, and added to a word that all CPUs share."""
    made = both("sum(key)")
    most = sign * (2**63 - 1)
    made.whole.hit(most)
    for _ in range(TIMES):
        made.usual.hit(most)

    few = statistics_of(made.whole)
    assert few.events <= 2
    for _ in range(TIMES):
        made.whole.hit(most)
    many = statistics_of(made.whole)
    assert many == Statistics(few.events + TIMES, (few.events + TIMES) * most)


def test_keys_are_found_wherever_they_were_entered(own: OwnArena) -> None:
    """As many as there is room for, so that some are behind others, and behind the end."""
    numbers = random.Random(80)
    for _ in range(10):
        made = Both(own, "count()", "key", None, keys=16)
        keys = [numbers.getrandbits(63) for _ in range(16)]
        for key in keys:
            made.whole.hit(key)
            for _ in range(TIMES):
                made.usual.hit(key)
        made.whole.hit(1)  # has no room

        answers = made.whole.answers()
        made.free()
        assert {row.key for row in answers.rows} == {(key,) for key in keys}
        assert all(2 <= row.answer <= 1 + TIMES for row in answers.rows)
        assert answers.missed == Missed(full=1)


def within(value: int, low: float, high: float) -> bool:
    """Whether a bucket with these bounds has the value."""
    return low <= value <= high


@pytest.mark.parametrize(
    ("what", "by", "event"),
    [
        ("count()", "key", {"key": 8}),  # a new key
        ("count()", "text", {"text": b"new"}),
        ("count()", "text", {"text": None}),
        ("count()", "text", {"text": b"x" * 17}),
        ("count()", "text[5:2]", {}),
        ("sum(size)", None, {"size": 2**63}),
        *(
            (f"{does}(half)", None, {"half": math.nan})
            for does in ("sum", "min", "max", "stat", "hist", "quantiles")
        ),
        *((f"{does}(half)", None, {"half": -math.nan}) for does in ("sum", "max", "hist")),
        ("count()", "u8(size)", {"size": 5}),  # which cannot be read
    ],
)
def test_what_is_not_usual_is_left_to_the_runtime(
    both: Callable[..., Both], what: str, by: str | None, event: dict[str, Any]
) -> None:
    made = both(what, by)
    made.whole.hit(7)
    before = made.whole.answers()

    made.usual.hit(**event)

    assert made.whole.answers() == before


def test_marker_without_an_aggregate_adds_nothing(own: OwnArena, both: Callable[..., Both]) -> None:
    made, other = both("count()"), both("count()", "key")
    for adder in (made.whole, other.whole):
        adder.hit(0)
    before = made.whole.answers(), other.whole.answers()

    for ticket in (0, made.whole.aggregate.ticket + AGGREGATES, other.whole.aggregate.ticket):
        own.arena.markers.set_aggregate(made.usual.marker, ticket)
        made.usual.hit(0)

    assert (made.whole.answers(), other.whole.answers()) == before


def test_condition_is_asked_first(both: Callable[..., Both]) -> None:
    made = both("count()", where='key > 3 and half > 1.5 and text == "yes"')
    for adder in (made.whole, made.usual) * TIMES:
        for key, half, text in ((3, 2.0, b"yes"), (4, 1.0, b"yes"), (4, 2.0, b"no")):
            adder.hit(key, half=half, text=text)
        adder.hit(4, half=2.0, text=b"yes")

    (row,) = made.whole.answers().rows
    assert TIMES < row.answer <= 2 * TIMES


def shown(text: bytes) -> str:
    """As the text of a key is shown."""
    return text.decode(errors="backslashreplace")
