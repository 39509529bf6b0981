"""RingDrain over a ring that a model of the recorder writes, and over heads that nobody can mean.

The model does what a recorder does: it fills what is left of a page, stops at the limit, and stores
the head last. A test may let it write between any two reads.
"""

from __future__ import annotations

import struct
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from markerjit.model import CType, Field, FieldType, TypeClass
from markerjit.ring.drain import RingDrain
from markerjit.ring.types import FILLER, RecordType
from markerjit.ring.walk import Walked, least_words, walk
from tests.support.heads import head_of

PAGE = 4096
SIZE = 4 * PAGE
HEAD, DATA = 512, 3 * PAGE
NO_LIMIT = (1 << 64) - 1
CPU, RING = 2, 5
LAP = 7 * SIZE  # most tests start in a later lap, where nothing is zero by chance

CHARS = CType(TypeClass.CHARS, 8)
TYPES = {
    1: RecordType(1, "plain", "", []),
    2: RecordType(2, "text", "", [Field("s", FieldType.STRING, CHARS, 0, "s")]),
}
LEAST = least_words(TYPES)


class BoundedStore:
    """An arena's bytes of which only one ring may be touched, and only the limit be written.
    `meanwhile` is called before each read of the ring's bytes."""

    def __init__(self, *, head: int = LAP, limit: int = 0, data: bytes = bytes(SIZE)) -> None:
        self.head = head
        self.limit = limit
        self.begun = 0
        self.data = bytearray(data)
        self.meanwhile: Callable[[], object] = lambda: None
        self.reads = 0

    def read(self, offset: int, size: int) -> bytes:
        self.reads += 1
        assert self.reads < 1000, "the reader runs in a circle"
        if (offset, size) == (HEAD, 8):
            return self.head.to_bytes(8, "little")
        if (offset, size) == (HEAD + 64, 8):
            return self.limit.to_bytes(8, "little")
        if (offset, size) == (HEAD + 72, 8):
            return self.begun.to_bytes(8, "little")
        assert DATA <= offset <= offset + size <= DATA + SIZE, "outside of the ring"
        self.meanwhile()
        return bytes(self.data[offset - DATA : offset - DATA + size])

    def write(self, offset: int, data: bytes) -> None:
        assert len(data) == 8
        if offset == HEAD + 72:
            self.begun = int.from_bytes(data, "little")
            return
        assert offset == HEAD + 64, "only the limit and the beginning are the reader's"
        self.limit = int.from_bytes(data, "little")


class Writer:
    """The recorder in Python. `lost` counts what was not to be recorded."""

    def __init__(self, head: int = LAP) -> None:
        self.store = BoundedStore(head=head)
        self.lost = 0

    def record(self, time: int, words: int = 2) -> bool:
        """A record without text of two words, or with text of three and more."""
        head, size = self.store.head, words * 8
        left = PAGE - head % PAGE
        filler = left if left < size else 0
        if head + filler + size > self.store.limit:
            self.lost += 1
            return False
        if filler:
            self._put(head, struct.pack("<II", head_of(FILLER, filler // 8), 0))
            head += filler
        body = struct.pack("<IIQ", head_of(1 if words == 2 else 2, words), 0, time)
        if words > 2:
            body += struct.pack("<II", size - 24, 0) + time.to_bytes(8, "little") * (words - 3)
        self._put(head, body)
        self.store.head = head + size
        return True

    def _put(self, position: int, data: bytes) -> None:
        at = position % SIZE
        assert at + len(data) <= SIZE
        self.store.data[at : at + len(data)] = data


def drain_of(store: BoundedStore) -> RingDrain:
    return RingDrain(store, HEAD, DATA, SIZE, CPU, RING)


def polled(ring: RingDrain) -> Walked:
    before = ring.consumed
    pieces = [*ring.take()]
    start = pieces[0][0] if pieces else before
    return ring.walk((start, b"".join(data for _, data in pieces)), LEAST)


def times(walked: Walked) -> list[int]:
    numbers: list[int] = np.frombuffer(walked.data, np.uint64)[walked.starts + 1].tolist()
    return numbers


def pictured(ring: RingDrain) -> list[int]:
    start, data = ring.picture()
    walked = walk(data, start, LEAST)
    assert walked.damaged == 0
    return times(walked)


@pytest.fixture
def writer() -> Writer:
    return Writer()


@pytest.fixture
def ring(writer: Writer) -> RingDrain:
    ring = drain_of(writer.store)
    ring.start()
    return ring


# ---- what was written comes out ------------------------------------------------------------------


def test_nothing_can_be_written_before_a_reader_starts(writer: Writer) -> None:
    assert not writer.record(1)

    drain_of(writer.store).start()

    assert writer.record(2)


def test_an_empty_ring_has_no_records(ring: RingDrain) -> None:
    walked = polled(ring)

    assert (times(walked), walked.damaged, ring.damaged) == ([], 0, 0)


def test_records_come_out_once_and_in_their_order(writer: Writer, ring: RingDrain) -> None:
    for time in range(8):
        writer.record(time, 2 + time)

    assert times(polled(ring)) == list(range(8))
    assert times(polled(ring)) == []
    assert writer.store.limit == writer.store.head + SIZE


def test_a_walk_says_its_ring_and_counts_its_records(writer: Writer, ring: RingDrain) -> None:
    for words in (2, 5, 2):
        writer.record(0, words)

    walked = polled(ring)

    assert (walked.cpu, walked.ring) == (CPU, RING)
    assert walked.counts() == {1: 2, 2: 1}


def test_bytes_can_be_taken_before_anybody_looks_at_them(writer: Writer, ring: RingDrain) -> None:
    writer.record(1)
    head = writer.store.head

    assert [*ring.take()] == [(head - 16, bytes(writer.store.data[:16]))]
    assert [*ring.take()] == []


def test_a_full_ring_loses_what_comes_and_keeps_what_is_there(
    writer: Writer, ring: RingDrain
) -> None:
    kept = [time for time in range(2000) if writer.record(time)]

    assert kept == list(range(SIZE // 16))
    assert times(polled(ring)) == kept
    assert writer.record(2000)
    assert times(polled(ring)) == [2000]
    assert ring.damaged == 0


def test_space_is_given_back_after_the_copy(writer: Writer, ring: RingDrain) -> None:
    while writer.record(1):
        pass
    writer.store.meanwhile = lambda: writer.record(2)

    assert set(times(polled(ring))) == {1}


def test_what_comes_while_a_poll_copies_comes_with_the_next(
    writer: Writer, ring: RingDrain
) -> None:
    writer.record(1)
    writer.store.meanwhile = lambda: writer.record(2)

    assert times(polled(ring)) == [1]
    assert times(polled(ring)) == [2]


def test_a_start_forgets_what_was_unread_in_the_ring(writer: Writer, ring: RingDrain) -> None:
    writer.record(1)
    left = ring.unread()

    ((start, data),) = ring.pieces(left)
    assert (start, start + len(data)) == left
    ring.start(left.end)
    assert ring.unread() == (left.end, left.end)
    writer.record(2)

    assert times(polled(ring)) == [2]


sizes = st.integers(2, PAGE // 8)


@given(st.integers(0, 1 << 40), st.lists(st.tuples(sizes, st.integers(1, 300), st.booleans())))
def test_all_that_is_not_lost_comes_out(start: int, steps: list[tuple[int, int, bool]]) -> None:
    writer = Writer(8 * start)
    ring = drain_of(writer.store)
    ring.start()
    written: list[int] = []
    seen: list[int] = []
    number = 0
    for words, count, poll in [*steps, (2, 1, True)]:
        for _ in range(count):
            number += 1
            if writer.record(number, words):
                written.append(number)
        if poll:
            seen += times(polled(ring))

    assert seen == written
    assert len(written) + writer.lost == number
    assert ring.damaged == 0


# ---- a reader after another ----------------------------------------------------------------------


def test_another_reader_takes_up_where_the_first_stopped(writer: Writer, ring: RingDrain) -> None:
    writer.record(1)
    polled(ring)
    writer.record(2)

    other = drain_of(writer.store)
    other.resume()

    assert times(polled(other)) == [2]
    assert other.damaged == 0


def test_another_reader_pictures_what_a_flight_recorder_holds(writer: Writer) -> None:
    writer.store.head = 0  # it was a new ring
    drain_of(writer.store).start(overwrite=True)
    writer.record(1)

    other = drain_of(writer.store)
    other.resume()

    assert pictured(other) == [1]


@pytest.mark.parametrize(
    ("head", "limit"),
    [
        *((LAP, limit) for limit in (0, SIZE - 8, LAP - 8, LAP + SIZE + 8, LAP + SIZE - 1)),
        *((0, limit) for limit in (0, 8, SIZE - 8, SIZE + 8)),
    ],
)
def test_a_limit_that_nobody_set_is_damage_once(head: int, limit: int) -> None:
    writer = Writer(head)
    writer.store.limit = limit
    ring = drain_of(writer.store)

    ring.resume()
    first = polled(ring)
    writer.record(7)

    assert times(first) == []
    assert times(polled(ring)) == [7]
    assert ring.damaged == 1


# ---- flight recorder -----------------------------------------------------------------------------


@pytest.fixture
def flight(writer: Writer) -> RingDrain:
    ring = drain_of(writer.store)
    ring.start(overwrite=True)
    return ring


def test_a_flight_recorder_never_loses_the_newest(writer: Writer, flight: RingDrain) -> None:
    for time in range(5000):
        assert writer.record(time)

    numbers = pictured(flight)

    assert numbers == list(range(5000 - len(numbers), 5000))
    assert SIZE - 2 * PAGE <= len(numbers) * 16 <= SIZE - PAGE


def test_a_picture_has_nothing_from_before_the_start(writer: Writer) -> None:
    ring = drain_of(writer.store)
    ring.start()
    writer.record(1)

    ring.start(overwrite=True)
    writer.record(2)

    assert pictured(ring) == [2]


def test_a_picture_takes_nothing_away(writer: Writer, flight: RingDrain) -> None:
    writer.record(1)

    assert pictured(flight) == pictured(flight) == [1]
    assert writer.store.limit == NO_LIMIT


def test_a_picture_of_a_ring_where_nothing_was_written_is_empty(flight: RingDrain) -> None:
    assert flight.picture() == (LAP, b"")


@given(
    start=st.integers(0, 3 * SIZE // 8),
    before=st.lists(sizes, max_size=60),
    during=st.lists(st.lists(sizes, max_size=30), min_size=2, max_size=2),
)
def test_a_picture_has_only_what_was_not_touched_while_it_was_taken(
    start: int, before: list[int], during: list[list[int]]
) -> None:
    """A record that is being written may be anywhere in the page of the head, and in the next."""
    writer = Writer(start * 8)
    ring = drain_of(writer.store)
    ring.start(overwrite=True)
    number = 0

    def some(sizes: list[int]) -> None:
        nonlocal number
        for words in sizes:
            number += 1
            assert writer.record(number, words)

    def meanwhile() -> None:
        some(during.pop() if during else [])
        head = writer.store.head
        for position in range(head, -(-(head + PAGE) // PAGE) * PAGE):
            writer.store.data[position % SIZE] = 0xEE

    some(before)
    at_start = number
    writer.store.meanwhile = meanwhile

    numbers = pictured(ring)

    assert numbers == list(range(at_start - len(numbers) + 1, at_start + 1))


def test_a_picture_that_the_writer_overtakes_is_empty(writer: Writer, flight: RingDrain) -> None:
    for time in range(2000):
        writer.record(time)
    head = writer.store.head
    writer.store.meanwhile = lambda: [writer.record(0) for _ in range(2000)]

    assert flight.picture() == (head, b"")
    assert flight.damaged == 0


# ---- heads that nobody can mean ------------------------------------------------------------------


@pytest.mark.parametrize(
    "head", [LAP + SIZE + 8, LAP - 8, 0, (1 << 64) - 8, LAP + 1, LAP + 4, (1 << 64) - 1]
)
def test_a_head_that_cannot_be_is_damage_and_then_believed(head: int) -> None:
    store = BoundedStore()
    ring = drain_of(store)
    ring.start()
    store.head = head

    assert [*ring.take()] == []
    assert (ring.consumed, ring.damaged) == (head & -8, 1)
    assert store.limit == ((head & -8) + SIZE) % (1 << 64)


@pytest.mark.parametrize("head", [LAP - 8, LAP + 4, 0])
def test_a_picture_with_a_head_that_cannot_be_is_empty_and_damage(head: int) -> None:
    store = BoundedStore()
    ring = drain_of(store)
    ring.start(overwrite=True)
    store.head = head

    assert ring.picture() == (head, b"")
    assert ring.damaged == 1


def test_a_head_that_goes_back_while_a_picture_is_taken_is_damage() -> None:
    store = BoundedStore()
    ring = drain_of(store)
    ring.start(overwrite=True)
    store.head = LAP + PAGE

    def go_back() -> None:
        store.head = LAP

    store.meanwhile = go_back

    assert ring.picture() == (LAP + PAGE, b"")
    assert ring.damaged == 1


def test_damage_in_pages_is_counted_with_the_rings(writer: Writer, ring: RingDrain) -> None:
    writer.record(1)
    writer.store.data[:2] = b"\x55\x55"

    assert times(polled(ring)) == []
    assert ring.damaged == 1


def test_a_start_is_always_at_a_word() -> None:
    store = BoundedStore(head=LAP + 4)

    drain_of(store).start()

    assert store.limit == LAP + SIZE


def test_records_after_such_a_head_come_out(writer: Writer, ring: RingDrain) -> None:
    writer.store.head -= 5 * PAGE
    polled(ring)

    writer.record(7)

    assert times(polled(ring)) == [7]


words64 = st.integers(0, (1 << 64) - 1)


@given(
    heads=st.lists(words64 | st.integers(LAP // 8, (LAP + SIZE) // 8).map(lambda word: word * 8)),
    limit=words64,
    data=st.binary(min_size=64, max_size=64),
    overwrite=st.booleans(),
)
def test_any_words_in_head_and_ring_are_come_through(
    heads: list[int], limit: int, data: bytes, overwrite: bool
) -> None:
    store = BoundedStore(limit=limit, data=data * (SIZE // 64))
    ring = drain_of(store)
    ring.resume()
    for head in heads:
        store.head = head
        if overwrite:
            _, content = ring.picture()
        else:
            content = polled(ring).data
        assert len(content) <= SIZE


@given(st.lists(words64, min_size=2, max_size=4))
def test_heads_that_change_during_a_picture_are_come_through(heads: list[int]) -> None:
    store = BoundedStore(head=heads.pop())
    ring = drain_of(store)
    ring.start(overwrite=True)
    store.head = heads.pop()

    def meanwhile() -> None:
        store.head = heads[0] if heads else store.head

    store.meanwhile = meanwhile

    _, data = ring.picture()

    assert len(data) <= SIZE
