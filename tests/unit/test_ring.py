"""RingReader over a ring that a model of the recorder writes, and over rings full of nonsense.

The model does what record.c does, in the same steps, so that a test can stop between any two of
them. test_recorder.py reads what the real recorder writes.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from markerjit.ring.layout import FILLER, RECORD_SIZE, RING_CONSUMED, RING_DATA, Geometry
from markerjit.ring.reader import Record, RingReader

GEOMETRY = Geometry(rings=3, ring_size=512, max_markers=4, max_sites=4, max_edits=4)
SIZE = GEOMETRY.ring_size
CPU = 1
HEAD = GEOMETRY.ring_offset(CPU)
DATA = HEAD + RING_DATA
LAP = 7 * SIZE  # tests start in a later lap, where nothing is zero by chance


class BoundedStore:
    """An arena's bytes of which only one ring may be touched, and only `consumed` be written."""

    def __init__(self, *, reserved: int = 0, consumed: int = 0, data: bytes = bytes(SIZE)) -> None:
        self.data = bytearray(data)
        self.reserved = reserved
        self.consumed = consumed
        self.reads = 0

    def read(self, offset: int, size: int) -> bytes:
        self.reads += 1
        assert self.reads < 1000, "the reader runs in a circle"
        if (offset, size) == (HEAD, 8):
            return self.reserved.to_bytes(8, "little")
        if (offset, size) == (HEAD + RING_CONSUMED, 8):
            return self.consumed.to_bytes(8, "little")
        assert DATA <= offset <= offset + size <= DATA + SIZE, "outside of the ring"
        return bytes(self.data[offset - DATA : offset - DATA + size])

    def write(self, offset: int, data: bytes) -> None:
        assert (offset, len(data)) == (HEAD + RING_CONSUMED, 8), "only `consumed` is the reader's"
        self.consumed = int.from_bytes(data, "little")


class Reservation(NamedTuple):
    position: int
    size: int


class Writer:
    """record.c in Python. `lost` counts what found the ring full."""

    def __init__(self, start: int = LAP) -> None:
        self.store = BoundedStore(reserved=start, consumed=start)
        self.lost = 0

    def reserve(self, size: int) -> Reservation | None:
        """Step 2, with the filler at the end of the ring."""
        store = self.store
        position = store.reserved
        left = SIZE - position % SIZE
        filler = left if left < size else 0
        if position + filler + size - store.consumed > SIZE:
            self.lost += 1
            return None
        store.reserved = position + filler + size
        if filler:
            if filler >= RECORD_SIZE:
                self._put(position + 20, FILLER.to_bytes(2, "little"))
            self._commit_word(position, filler)
        return Reservation(position + filler, size)

    def fill(self, place: Reservation, time: int, payload: bytes = b"") -> None:
        """Step 3."""
        self._put(place.position + 8, struct.pack("<QIHH", time, 99, 2, 0) + payload)

    def commit(self, place: Reservation) -> None:
        """Step 4."""
        self._commit_word(place.position, place.size)

    def record(self, time: int, payload: bytes = b"") -> bool:
        """All steps."""
        place = self.reserve(RECORD_SIZE + len(payload))
        if place:
            self.fill(place, time, payload)
            self.commit(place)
        return place is not None

    def _commit_word(self, position: int, size: int) -> None:
        self._put(position, struct.pack("<Q", (position << 16 | size // 8) % (1 << 64)))

    def _put(self, position: int, data: bytes) -> None:
        at = position % SIZE
        assert at + len(data) <= SIZE
        self.store.data[at : at + len(data)] = data


def reader_of(store: BoundedStore) -> RingReader:
    return RingReader(store, GEOMETRY, CPU)


def times(reader: RingReader) -> list[int]:
    return [record.time for record in reader.poll()]


@pytest.fixture
def writer() -> Writer:
    return Writer()


@pytest.fixture
def reader(writer: Writer) -> Iterator[RingReader]:
    yield (one := reader_of(writer.store))
    assert one.damaged == 0


# ---- what was written comes out ------------------------------------------------------------------


def test_an_empty_ring_has_no_records(reader: RingReader) -> None:
    assert list(reader.poll()) == []


def test_a_record_comes_out_as_it_was_written_once(writer: Writer, reader: RingReader) -> None:
    writer.record(5, b"payload!")

    assert list(reader.poll()) == [Record(5, CPU, 99, 2, b"payload!")]
    assert list(reader.poll()) == []


def test_records_come_out_in_their_order_and_give_their_space_back(
    writer: Writer, reader: RingReader
) -> None:
    for time in range(8):
        writer.record(time, bytes(8 * time))

    assert [(one.time, len(one.payload)) for one in reader.poll()] == [
        (time, 8 * time) for time in range(8)
    ]
    assert writer.store.consumed == writer.store.reserved


def test_space_is_given_back_although_nobody_takes_the_records(
    writer: Writer, reader: RingReader
) -> None:
    writer.record(1)

    next(reader.poll())

    assert writer.store.consumed == writer.store.reserved


@pytest.mark.parametrize("tail", range(8, 248, 8))
def test_the_end_of_the_ring_is_filled_and_skipped(tail: int) -> None:
    """Fillers of every length: of 8 and 16 bytes they have no room for a header."""
    writer = Writer(LAP + SIZE - tail)
    reader = reader_of(writer.store)

    writer.record(1, bytes(tail))  # does not fit into the tail
    seen = times(reader)
    writer.record(2)

    assert seen + times(reader) == [1, 2]
    assert writer.store.reserved == LAP + SIZE + tail + 2 * RECORD_SIZE
    assert reader.damaged == 0


def test_a_record_that_fits_the_tail_exactly_needs_no_filler() -> None:
    writer = Writer(LAP + SIZE - RECORD_SIZE)
    reader = reader_of(writer.store)

    writer.record(1)
    writer.record(2)

    assert times(reader) == [1, 2]
    assert writer.store.reserved == LAP + SIZE + RECORD_SIZE


def test_records_that_wrap_are_read_in_one_piece(writer: Writer, reader: RingReader) -> None:
    for time in range(100):
        assert writer.record(time, time.to_bytes(8, "little") * (time % 9))
        (record,) = reader.poll()
        assert record[0] == time
        assert record.payload == time.to_bytes(8, "little") * (time % 9)


def test_a_full_ring_loses_what_comes_and_keeps_what_is_there(
    writer: Writer, reader: RingReader
) -> None:
    kept = [time for time in range(100) if writer.record(time)]

    assert kept == list(range(SIZE // RECORD_SIZE))
    assert writer.lost == 100 - len(kept)
    assert times(reader) == kept


def test_discard_forgets_what_is_in_the_ring(writer: Writer, reader: RingReader) -> None:
    writer.record(1)

    reader.discard()
    writer.record(2)

    assert times(reader) == [2]


# ---- what is not committed yet -------------------------------------------------------------------


def test_an_uncommitted_record_holds_back_only_what_is_behind_it(
    writer: Writer, reader: RingReader
) -> None:
    writer.record(1)
    held = writer.reserve(RECORD_SIZE)
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
    held = writer.reserve(RECORD_SIZE)
    assert held
    writer.record(2)

    assert times(reader) == []
    assert reader.damaged == 0
    writer.fill(held, 1)
    writer.commit(held)
    assert times(reader) == [1, 2]


def test_a_commit_word_of_an_earlier_lap_is_not_believed(
    writer: Writer, reader: RingReader
) -> None:
    while writer.record(1, bytes(8)):  # 32 bytes each: 16 of them are a lap
        pass
    assert len(times(reader)) == SIZE // 32

    held = writer.reserve(32)

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

    for time in range(100):
        writer.record(time)
        assert times(reader) == [time]
    assert reader.damaged == 0


steps = st.lists(
    st.one_of(
        st.tuples(st.just("record"), st.integers(0, 12)),
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
        elif step == "reserve" and (place := writer.reserve(RECORD_SIZE + len(payload))):
            writer.fill(place, len(written), payload)
            held[len(written)] = place
            written.append((len(written), payload))
        elif step == "commit" and held:
            writer.commit(held.pop(sorted(held)[number % len(held)]))
        elif step == "poll":
            seen += [(record.time, record.payload) for record in reader.poll()]
            assert seen == written[: min(held, default=len(written))]
    assert seen == written
    assert reader.damaged == 0


# ---- contents that nobody can have meant ---------------------------------------------------------


def check_hostile(store: BoundedStore) -> RingReader:
    """The reader comes through it, and does not stay in it. The store checks where it reads."""
    reader = reader_of(store)
    for _ in range(3):
        for record in reader.poll():
            assert len(record.payload) < SIZE
            assert record.marker != FILLER
    return reader


words = st.integers(0, (1 << 64) - 1)


@given(reserved=words, consumed=words, data=st.binary(min_size=SIZE, max_size=SIZE))
def test_any_words_in_head_and_ring_are_come_through(
    reserved: int, consumed: int, data: bytes
) -> None:
    check_hostile(BoundedStore(reserved=reserved & ~7, consumed=consumed, data=data))


@given(consumed=words, ahead=st.integers(0, SIZE // 8), lengths=st.binary(min_size=64, max_size=64))
def test_any_lengths_in_commit_words_are_come_through(
    consumed: int, ahead: int, lengths: bytes
) -> None:
    """Every word claims to be a record that starts where it stands, of any length."""
    consumed &= ~7
    reserved = min(consumed + 8 * ahead, (1 << 64) - 8)
    store = BoundedStore(reserved=reserved, consumed=consumed)
    for index, length in enumerate(lengths):
        position = consumed + 8 * index
        word = (position << 16 | (length if length < 250 else length << 8)) % (1 << 64)
        store.data[position % SIZE : position % SIZE + 8] = word.to_bytes(8, "little")

    check_hostile(store)


@pytest.mark.parametrize("odd", [1, 4, 7])
def test_a_reserved_position_between_two_words_is_come_through(odd: int) -> None:
    store = BoundedStore(reserved=LAP + odd, consumed=LAP)

    assert check_hostile(store).damaged


def test_a_consumed_position_between_two_words_is_damage() -> None:
    store = BoundedStore(reserved=LAP, consumed=LAP - 1)

    assert check_hostile(store).damaged == 1


@pytest.mark.parametrize("reserved", [LAP + SIZE + 8, LAP - 8, 0, (1 << 64) - 8])
def test_a_reserved_position_out_of_reach_is_damage_and_then_believed(reserved: int) -> None:
    store = BoundedStore(reserved=reserved, consumed=LAP)

    assert check_hostile(store).damaged == 1
    assert store.consumed == reserved


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


def test_a_ring_that_changes_between_the_two_copies_is_come_through() -> None:
    class Changing(BoundedStore):
        def read(self, offset: int, size: int) -> bytes:
            data = super().read(offset, size)
            if offset >= DATA:
                self.data = bytearray(b"\xff" * SIZE)
            return data

    writer = Writer()
    writer.record(1)
    writer.record(2)
    store = Changing(reserved=writer.store.reserved, consumed=LAP, data=bytes(writer.store.data))

    assert check_hostile(store).damaged == 0
