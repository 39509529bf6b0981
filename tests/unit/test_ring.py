"""SharedRing over a ring that a model of the recorder writes, and over rings full of nonsense.

The model does what shared.c does, in the same steps, so that a test can stop between any two of
them. test_recorder.py reads what the real recorder writes.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from markerjit.abi import FILLER, MAX_RECORD, PAGE, RING_BEGUN, RING_LIMIT, Sizes, lay_out
from markerjit.ring.reader import SharedRing
from tests.support.heads import head_of, marker_and_words

SIZE = 8 * PAGE
GEOMETRY = lay_out(Sizes(3, SIZE, max_markers=4, max_patches=4, max_edits=4, ring_stride=2 * SIZE))
CPU = 1
HEAD = GEOMETRY.head_offset(GEOMETRY.cpus + CPU)
DATA = GEOMETRY.ring_offset(GEOMETRY.cpus + CPU)
LAP = 7 * SIZE  # tests start in a later lap, where nothing is zero by chance
MODULUS = 1 << 64
NO_LIMIT = MODULUS - 1
HEADER = 16  # of a record: marker, words, thread, time
WHOLE = 8 + HEADER  # with its commit word


class BoundedStore:
    """An arena's bytes of which only one ring may be touched, and only the reader's words be
    written. `meanwhile` is called after each read of the ring's bytes."""

    def __init__(
        self, *, head: int = 0, limit: int = 0, begun: int = 0, data: bytes = bytes(SIZE)
    ) -> None:
        self.data = bytearray(data)
        self.head = head
        self.limit = limit
        self.begun = begun
        self.begun = 0
        self.meanwhile: Callable[[], object] = lambda: None
        self.reads = 0

    def read(self, offset: int, size: int) -> bytes:
        self.reads += 1
        assert self.reads < 10_000, "the reader runs in a circle"
        if (offset, size) == (HEAD, 8):
            return self.head.to_bytes(8, "little")
        if (offset, size) == (HEAD + RING_LIMIT, 8):
            return self.limit.to_bytes(8, "little")
        if (offset, size) == (HEAD + RING_BEGUN, 8):
            return self.begun.to_bytes(8, "little")
        assert DATA <= offset <= offset + size <= DATA + SIZE, "outside of the ring"
        data = bytes(self.data[offset - DATA : offset - DATA + size])
        self.meanwhile()
        return data

    def write(self, offset: int, data: bytes) -> None:
        assert len(data) == 8
        if offset == HEAD + RING_BEGUN:
            self.begun = int.from_bytes(data, "little")
            return
        assert offset == HEAD + RING_LIMIT, "only the limit and the beginning are the reader's"
        self.limit = int.from_bytes(data, "little")


class Reservation(NamedTuple):
    position: int
    size: int


class Writer:
    """shared.c in Python. `lost` counts what found the ring full."""

    def __init__(self, start: int = LAP) -> None:
        self.store = BoundedStore(head=start, limit=(start + SIZE) % MODULUS)
        self.sums = [
            (start - page * PAGE + SIZE - 1) // SIZE * PAGE for page in range(SIZE // PAGE)
        ]
        rest = start % PAGE
        if rest:
            self.sums[start % SIZE // PAGE] += rest - PAGE
        self.lost = 0

    def reserve(self, payload: int = 0) -> Reservation | None:
        """Step 1, with the filler at the end of a page, and pages that are left out."""
        store, whole = self.store, WHOLE + payload
        assert whole <= PAGE
        for _ in range(2 * SIZE // PAGE):
            head = store.head
            left = PAGE - head % PAGE
            filler = left if left < whole else 0
            start = head + filler
            overwrite = store.limit == NO_LIMIT
            leave_out = overwrite and start % PAGE == 0 and not self._is_free(start)
            end = start + (PAGE if leave_out else whole)
            if end > store.limit:
                self.lost += 1
                return None
            store.head = end
            if filler:
                if filler > 8:
                    self._put(head + 8, head_of(FILLER, filler // 8 - 1).to_bytes(4, "little"))
                self.commit(Reservation(head, filler))
            if not leave_out:
                return Reservation(start, whole)
            self.sums[start % SIZE // PAGE] += PAGE
        raise AssertionError("nothing but pages to leave out")

    def fill(self, place: Reservation, time: int, payload: bytes = b"") -> None:
        """Step 2."""
        words = place.size // 8 - 1
        record = struct.pack("<IIQ", head_of(2, words), 99, time) + payload
        self._put(place.position + 8, record)

    def commit(self, place: Reservation) -> None:
        """Steps 3 and 4."""
        word = (place.position << 16 | place.size // 8) % MODULUS
        self._put(place.position, word.to_bytes(8, "little"))
        self.sums[place.position % SIZE // PAGE] += place.size

    def record(self, time: int, payload: bytes = b"") -> bool:
        """All steps."""
        place = self.reserve(len(payload))
        if place:
            self.fill(place, time, payload)
            self.commit(place)
        return place is not None

    def _is_free(self, position: int) -> bool:
        return self.sums[position % SIZE // PAGE] >= position // SIZE * PAGE

    def _put(self, position: int, data: bytes) -> None:
        at = position % SIZE
        assert at // PAGE == (at + len(data) - 1) // PAGE
        self.store.data[at : at + len(data)] = data


def reader_of(store: BoundedStore) -> SharedRing:
    reader = SharedRing(store, GEOMETRY, CPU, SIZE)
    reader.resume()
    return reader


def polled(ring: SharedRing, *, last: bool = False) -> bytes:
    """All that is taken out now, one piece behind the other."""
    return b"".join(data for _, data in ring.take(last=last))


def parsed(data: bytes) -> list[tuple[int, bytes]]:
    """Time and payload of each record."""
    records, at = [], 0
    while at < len(data):
        head, tid, time = struct.unpack_from("<IIQ", data, at)
        marker, words = marker_and_words(head)
        assert (marker, tid) == (2, 99)
        assert words >= HEADER // 8
        records.append((time, data[at + HEADER : at + 8 * words]))
        at += 8 * words
    return records


def times(ring: SharedRing) -> list[int]:
    return [time for time, _ in parsed(polled(ring))]


def pictured(ring: SharedRing) -> list[int]:
    return [time for time, _ in parsed(ring.picture()[1])]


@pytest.fixture
def writer() -> Writer:
    return Writer()


@pytest.fixture
def reader(writer: Writer) -> Iterator[SharedRing]:
    yield (reader := reader_of(writer.store))
    assert reader.damaged == 0


# ---- what is committed ---------------------------------------------------------------------------


def test_an_empty_ring_has_no_records(reader: SharedRing) -> None:
    assert times(reader) == []


def test_records_come_in_the_order_in_which_they_were_reserved(
    writer: Writer, reader: SharedRing
) -> None:
    writer.record(5, b"payload ")
    writer.record(6)

    assert parsed(polled(reader)) == [(5, b"payload "), (6, b"")]
    assert times(reader) == []


def test_records_are_of_the_ring_that_the_arena_counts(reader: SharedRing) -> None:
    assert (reader.cpu, reader.ring) == (1, 4)


def test_every_rest_of_a_page_is_filled(writer: Writer, reader: SharedRing) -> None:
    """8 bytes hold a commit word and nothing else."""
    for words in [*range(40)] * 20:
        payload = bytes(8 * words)
        assert writer.record(words, payload)
        assert parsed(polled(reader)) == [(words, payload)]
    assert writer.store.head > LAP + 4 * SIZE


def test_the_largest_record_takes_a_page(writer: Writer, reader: SharedRing) -> None:
    payload = b"x" * (MAX_RECORD - HEADER)
    assert all(writer.record(time, payload) for time in range(SIZE // PAGE))
    assert not writer.record(5)

    assert parsed(polled(reader)) == [(time, payload) for time in range(SIZE // PAGE)]


def test_a_full_ring_loses_what_comes_and_keeps_what_is_there(
    writer: Writer, reader: SharedRing
) -> None:
    room = PAGE // WHOLE * SIZE // PAGE
    kept = [time for time in range(2 * room) if writer.record(time)]

    assert kept == list(range(room))
    assert writer.lost == room
    assert times(reader) == kept
    assert writer.record(1)


def test_a_start_forgets_what_is_in_the_ring(writer: Writer, reader: SharedRing) -> None:
    writer.record(1)

    reader.start()
    writer.record(2)

    assert times(reader) == [2]


def test_a_second_reader_goes_on_where_the_first_has_stopped(
    writer: Writer, reader: SharedRing
) -> None:
    writer.record(1)
    writer.record(2)
    assert times(reader) == [1, 2]
    writer.record(3)

    assert times(reader_of(writer.store)) == [3]


# ---- what is not committed yet -------------------------------------------------------------------


def test_an_uncommitted_record_holds_back_only_what_is_behind_it(
    writer: Writer, reader: SharedRing
) -> None:
    writer.record(1)
    held = writer.reserve()
    assert held
    writer.record(3)

    assert times(reader) == [1]
    assert times(reader) == []
    writer.fill(held, 2)
    assert times(reader) == []
    writer.commit(held)
    assert times(reader) == [2, 3]


def test_the_very_first_record_of_a_ring_is_waited_for_too() -> None:
    """A new ring is all zeros, and zero is what the commit word of position 0 begins with."""
    writer = Writer(start=0)
    reader = reader_of(writer.store)
    held = writer.reserve()
    assert held
    writer.record(2)

    assert times(reader) == []
    assert reader.damaged == 0
    writer.fill(held, 1)
    writer.commit(held)
    assert times(reader) == [1, 2]


def test_a_commit_word_of_an_earlier_lap_is_not_believed(
    writer: Writer, reader: SharedRing
) -> None:
    while writer.record(1, bytes(8)):  # 32 bytes each: 128 of them are a page
        pass
    assert len(times(reader)) == SIZE // 32

    held = writer.reserve(8)

    assert held
    assert held.position % SIZE == 0
    assert writer.store.data[:8] != bytes(8)
    assert times(reader) == []
    writer.fill(held, 2, bytes(8))
    writer.commit(held)
    assert times(reader) == [2]


def test_positions_of_more_than_48_bits_are_followed() -> None:
    writer = Writer((1 << 48) - 2 * SIZE)
    reader = reader_of(writer.store)

    for time in range(1000):
        writer.record(time)
        assert times(reader) == [time]
    assert reader.damaged == 0


steps = st.lists(
    st.one_of(
        st.tuples(st.just("record"), st.sampled_from([0, 1, 7, 40, 250, 508])),
        st.tuples(st.just("reserve"), st.integers(0, 12)),
        st.tuples(st.just("commit"), st.integers(0, 3)),
        st.tuples(st.just("poll"), st.just(0)),
    ),
    max_size=60,
)


@given(start=st.integers(1, 1 << 40), steps=steps)
def test_what_comes_out_is_always_the_committed_beginning_of_what_went_in(
    start: int, steps: list[tuple[str, int]]
) -> None:
    writer = Writer(8 * start)
    reader = reader_of(writer.store)
    written: list[tuple[int, bytes]] = []  # in the order of positions
    held: dict[int, Reservation] = {}
    seen: list[tuple[int, bytes]] = []
    for step, number in [*steps, *[("commit", 0)] * len(steps), ("poll", 0)]:
        payload = struct.pack("<Q", len(written)) * number
        if step == "record" and writer.record(len(written), payload):
            written.append((len(written), payload))
        elif step == "reserve" and (place := writer.reserve(len(payload))):
            writer.fill(place, len(written), payload)
            held[len(written)] = place
            written.append((len(written), payload))
        elif step == "commit" and held:
            writer.commit(held.pop(sorted(held)[number % len(held)]))
        elif step == "poll":
            seen += parsed(polled(reader))
            assert seen == written[: min(held, default=len(written))]
    assert seen == written
    assert reader.damaged == 0


# ---- overwriting ---------------------------------------------------------------------------------

PER_PAGE = PAGE // WHOLE


def test_a_ring_that_is_overwritten_shows_its_newest_pages(
    writer: Writer, reader: SharedRing
) -> None:
    reader.start(overwrite=True)
    for time in range(10_000):
        assert writer.record(time)

    numbers = pictured(reader)

    assert numbers == [*range(10_000 - len(numbers), 10_000)]
    assert len(numbers) >= 2 * PER_PAGE
    assert pictured(reader) == numbers, "nothing is consumed"


def test_a_picture_begins_where_the_recording_did(writer: Writer, reader: SharedRing) -> None:
    writer.record(1)
    reader.start(overwrite=True)

    assert pictured(reader) == []
    writer.record(2)
    writer.record(3)
    assert pictured(reader) == [2, 3]


def test_another_reader_may_take_the_picture(writer: Writer, reader: SharedRing) -> None:
    reader.start(overwrite=True)
    for time in range(5000):
        writer.record(time)

    assert pictured(reader_of(writer.store)) == pictured(reader)


def test_what_is_written_while_a_picture_is_taken_is_not_in_it(
    writer: Writer, reader: SharedRing
) -> None:
    reader.start(overwrite=True)
    for time in range(10_000):
        writer.record(time)
    clock = iter(range(10_000, 1 << 40))
    writer.store.meanwhile = lambda: [writer.record(next(clock)) for _ in range(100)]

    numbers = pictured(reader)

    assert numbers == [*range(numbers[0], 10_000)]


def test_a_picture_of_a_ring_that_is_written_faster_than_it_is_copied_is_empty(
    writer: Writer, reader: SharedRing
) -> None:
    reader.start(overwrite=True)
    for time in range(10_000):
        writer.record(time)
    writer.store.meanwhile = lambda: [writer.record(1) for _ in range(PER_PAGE * 4)]

    assert pictured(reader) == []


def test_what_is_behind_an_unfinished_record_is_missing_up_to_the_end_of_its_page(
    writer: Writer, reader: SharedRing
) -> None:
    reader.start(overwrite=True)
    for time in range(10):
        writer.record(time)
    held = writer.reserve()
    for time in range(10, 2 * PER_PAGE + 10):
        writer.record(time)

    assert held
    numbers = pictured(reader)
    assert numbers[:10] == [*range(10)]
    assert numbers[10:] == [*range(PER_PAGE - 1, 2 * PER_PAGE + 10)]


def test_a_page_with_an_unfinished_record_is_left_out_until_that_is_finished(
    writer: Writer, reader: SharedRing
) -> None:
    reader.start(overwrite=True)
    held = writer.reserve()
    assert held
    count = 20 * PER_PAGE
    for time in range(count):
        writer.record(time)
    numbers = pictured(reader)
    assert numbers == [*range(count - len(numbers), count)]
    assert len(numbers) >= 5 * PER_PAGE

    writer.fill(held, 77)
    writer.commit(held)

    assert pictured(reader) == numbers, "an old record, in a page that was left out"
    for time in range(count):
        writer.record(time)
    numbers = pictured(reader)
    assert numbers == [*range(count - len(numbers), count)]
    assert len(numbers) >= 6 * PER_PAGE, "the page is used again"


def test_a_ring_is_read_again_when_it_is_no_longer_overwritten(
    writer: Writer, reader: SharedRing
) -> None:
    reader.start(overwrite=True)
    for time in range(10_000):
        writer.record(time)

    reader.start()
    writer.record(7)

    assert times(reader) == [7]


# ---- contents that nobody can have meant ---------------------------------------------------------


def check_hostile(store: BoundedStore) -> SharedRing:
    """The reader comes through it, and does not stay in it. The store checks where it reads."""
    reader = reader_of(store)
    for _ in range(3):
        for data in (polled(reader), reader.picture()[1]):
            assert len(data) <= SIZE
            assert len(data) % 8 == 0
    reader.start(overwrite=True)
    reader.picture()
    reader.start()
    polled(reader)
    return reader


words = st.integers(0, MODULUS - 1)


@given(head=words, limit=words, begun=words, data=st.binary(min_size=64, max_size=64))
def test_any_words_in_head_and_ring_are_come_through(
    head: int, limit: int, begun: int, data: bytes
) -> None:
    store = BoundedStore(head=head, limit=limit, begun=begun, data=data * (SIZE // 64))

    check_hostile(store)


@given(head=words, back=st.integers(0, 3 * SIZE), data=st.binary(min_size=64, max_size=64))
def test_a_recording_that_began_anywhere_is_come_through(head: int, back: int, data: bytes) -> None:
    store = BoundedStore(head=head, begun=max(head - back, 0), data=data * (SIZE // 64))

    reader_of(store).picture()


@given(
    consumed=words,
    ahead=st.integers(0, SIZE // 8),
    lengths=st.binary(min_size=64, max_size=64),
    record=st.integers(0, 70),
)
def test_any_lengths_in_commit_words_are_come_through(
    consumed: int, ahead: int, lengths: bytes, record: int
) -> None:
    """Every word claims to be a record that starts where it stands, of any length."""
    consumed &= ~7
    head = min(consumed + 8 * ahead, MODULUS - 8)
    store = BoundedStore(head=head, limit=(consumed + SIZE) % MODULUS)
    for index in range(SIZE // 8):
        length = lengths[index % 64] if index % 2 else record
        position = consumed + 8 * index
        word = (position << 16 | (length if length < 250 else length << 8)) % MODULUS
        store.data[position % SIZE : position % SIZE + 8] = word.to_bytes(8, "little")

    check_hostile(store)


@pytest.mark.parametrize("odd", [1, 4, 7])
def test_a_head_between_two_words_is_come_through(odd: int) -> None:
    store = BoundedStore(head=LAP + odd, limit=LAP + SIZE)

    assert check_hostile(store).damaged


def test_a_limit_between_two_words_is_damage() -> None:
    store = BoundedStore(head=LAP, limit=LAP + SIZE - 1)
    reader = reader_of(store)

    assert polled(reader) == polled(reader) == b""
    assert reader.damaged == 1


@pytest.mark.parametrize("head", [LAP + SIZE + 8, LAP - 8, 0, MODULUS - 8])
def test_a_head_out_of_reach_is_damage_and_then_believed(head: int) -> None:
    store = BoundedStore(head=head, limit=LAP + SIZE)
    reader = reader_of(store)

    assert [polled(reader) for _ in range(3)] == [b""] * 3
    assert reader.damaged == 1
    assert store.limit == (head + SIZE) % MODULUS


@pytest.mark.parametrize("length", [0, 0xFFFF, 4])
def test_a_record_of_an_impossible_length_is_damage_and_the_ring_goes_on(length: int) -> None:
    writer = Writer()
    reader = reader_of(writer.store)
    writer.record(1)
    word = LAP << 16 | length
    writer.store.data[LAP % SIZE : LAP % SIZE + 8] = word.to_bytes(8, "little")

    assert times(reader) == []
    writer.record(2)
    assert times(reader) == [2]
    assert reader.damaged == 1


@pytest.mark.parametrize("size", [0, 1, 3, 1023])
def test_a_record_that_says_another_size_than_its_commit_word_is_left_out(size: int) -> None:
    writer = Writer()
    reader = reader_of(writer.store)
    writer.record(1)
    at = LAP % SIZE + 8
    writer.store.data[at : at + 4] = head_of(2, size).to_bytes(4, "little")
    writer.record(2)

    assert times(reader) == [2]


def test_a_ring_that_changes_between_the_two_copies_is_come_through() -> None:
    writer = Writer()
    writer.record(1)
    writer.record(2)
    store = BoundedStore(head=writer.store.head, limit=LAP + SIZE, data=bytes(writer.store.data))

    def change() -> None:
        store.data = bytearray(b"\xff" * SIZE)

    store.meanwhile = change

    assert check_hostile(store).damaged == 0


def test_a_head_that_goes_back_while_a_picture_is_taken_is_come_through() -> None:
    writer = Writer()
    reader = reader_of(writer.store)
    reader.start(overwrite=True)
    writer.record(1)

    writer.store.head = 8

    assert reader.picture()[1] == b""
    assert reader.damaged == 1
