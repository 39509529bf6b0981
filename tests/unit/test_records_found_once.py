"""On the live way to a CTF directory records are found once, by the walk of the ring: the packet
says where they start, and what is written is the same as if they were found again."""

from __future__ import annotations

import struct
from collections.abc import Iterable
from ctypes import c_char_p, c_uint64
from pathlib import Path
from typing import Any
from uuid import UUID

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from markerjit.events.rings import Rings
from markerjit.ring.batch import Columns, Packet
from markerjit.ring.clock import Calibration
from markerjit.ring.find import find_records
from markerjit.ring.starts import behind, indices, joined, starts_of
from markerjit.ring.types import FILLER, Options, Time
from markerjit.ring.walk import least_words, packet, walk
from markerjit.trace.batch import Batch
from markerjit.trace.convert import convert
from markerjit.trace.ctf import CtfSink
from markerjit.trace.encode import packets_of
from markerjit.trace.open import open_sink, open_trace
from tests.support.heads import head_of, marker_and_words
from tests.support.made_records import CHARS, I32, make_info, make_type, record
from tests.support.own_arena import CHARS as TEXT
from tests.support.own_arena import LONG, OwnArena, geometry_of

MONOTONIC = Calibration(Time.MONOTONIC, 0, 0, 1_000_000_000, 1_700_000_000_000_000_000)
TICK = make_type(4, "tick", "n %d", I32, time=Time.MONOTONIC)
PUT = make_type(7, "put", "key %s n %d", CHARS, I32, time=Time.MONOTONIC)
LEAST = least_words({TICK.id: TICK, PUT.id: PUT})
INFO = make_info(TICK, PUT, clock=MONOTONIC)
ID = UUID("2a6422d0-6cee-41e0-8c08-cb07d7b3a564")


@pytest.fixture
def no_finder(monkeypatch: pytest.MonkeyPatch) -> None:
    """Records of a packet must not be looked for."""

    def refuse(*_: object) -> Any:
        raise AssertionError("the records of a packet were found a second time")

    monkeypatch.setattr("markerjit.trace.ctf.records.find_records", refuse)
    monkeypatch.setattr("markerjit.ring.find.find_records", refuse)


# ---- the finder is not entered -------------------------------------------------------------------


@pytest.mark.usefixtures("no_finder")
@pytest.mark.parametrize("overwrite", [False, True])
def test_what_comes_out_of_rings_is_written_without_a_second_look(
    build: Path, tmp_path: Path, overwrite: bool
) -> None:
    own = OwnArena(geometry_of())
    ticks = own.marker("n %ld", LONG, options=Options(time=Time.MONOTONIC))
    texts = own.marker("s %s", TEXT, name="text", options=Options(time=Time.MONOTONIC))
    own.start(overwrite=overwrite)
    rings = Rings(own.arena, own.types)
    for number in range(50):
        ticks.hit(c_uint64(number))
        texts.hit(c_char_p(b"x" * number))
    polled = (rings.picture if overwrite else rings.poll)(packets=True)

    sink = CtfSink(tmp_path / "t", make_info(*own.types.values(), clock=MONOTONIC))
    sink.write(Batch(polled.packets, polled.columns, {}))
    sink.close({})

    assert polled.records == 100
    assert all(packet.starts is not None for packet in polled.packets)
    assert (tmp_path / "t" / f"ring_{polled.packets[0].ring}").stat().st_size > 100 * 24


@pytest.mark.usefixtures("no_finder")
def test_a_table_becomes_a_directory_without_a_second_look(tmp_path: Path) -> None:
    columns = [
        Columns(
            TICK,
            np.arange(9, dtype=np.uint64) + np.uint64(5 * 10**9),
            np.array([n % 2 for n in range(9)], np.uint16),
            np.full(9, 812, np.uint32),
            {"n": np.arange(9, dtype=np.int32)},
        )
    ]
    sink = open_sink(str(tmp_path / "t.jsonl"), INFO)
    sink.write(Batch((), columns, {}))
    sink.close({})

    assert convert(open_trace(str(tmp_path / "t.jsonl")), str(tmp_path / "t.ctf")) == 9


# ---- and the files are the same ------------------------------------------------------------------


def tick(time: int) -> bytes:
    return record(TICK, time, 812, time % 1000)


def put(time: int, text: bytes) -> bytes:
    return record(PUT, time, 812, text, -1)


times = st.integers(0, 10**6)
sound = st.builds(tick, times) | st.builds(put, times, st.binary(max_size=30))


def a_word_more(data: bytes) -> bytes:
    """A record that says so and has it: none of its marker is as long."""
    marker, words = marker_and_words(int.from_bytes(data[:4], "little"))
    return struct.pack("<I", head_of(marker, words + 1)) + data[4:] + bytes(8)


longer = sound.map(a_word_more)
too_long_a_text = times.map(lambda time: put(time, b"abc")[:16] + b"\xff" * 4 + put(0, b"abc")[20:])
of_another_century = times.map(lambda time: tick(time + (1 << 63)))
fillers = st.integers(1, 4).map(
    lambda n: struct.pack("<II", head_of(FILLER, n), 0) + bytes(8 * (n - 1))
)
pieces = (
    st.lists(sound | longer | too_long_a_text | of_another_century | fillers, max_size=40)
    | st.lists(st.builds(tick, times), max_size=40)
).map(b"".join)


def written(folder: Path, batches: Iterable[list[Packet]]) -> dict[str, bytes]:
    sink = CtfSink(folder, INFO)
    for packets in batches:
        sink.write(Batch(packets, [], {}))
    sink.close({})
    return {file.name: file.read_bytes() for file in sorted(folder.iterdir())}


@given(
    batches=st.lists(st.lists(pieces, max_size=3), min_size=1, max_size=3),
    folded=st.booleans(),
)
def test_files_are_the_same_whether_records_are_found_again_or_not(
    batches: list[list[bytes]], folded: bool, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("traces")
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("markerjit.trace.ctf.sink.uuid4", lambda: ID)
        live = [[packet(walk(data, 0, LEAST)) for data in some] for some in batches]
        looked_up = [[packet._replace(starts=None) for packet in packets] for packets in live]

        assert written(folder / "live", live) == written(folder / "again", looked_up)


def test_packets_made_of_columns_say_where_their_records_start() -> None:
    columns = Columns(
        TICK,
        np.array([1, 2, 3], np.uint64),
        np.array([0, 1, 0], np.uint16),
        np.array([5, 5, 5], np.uint32),
        {"n": np.array([7, 8, 9], np.int32)},
    )

    for made in packets_of([columns]):
        assert made.starts is not None
        starts, whole = find_records(np.frombuffer(made.data, np.uint64), LEAST)
        assert whole
        assert indices(made.starts).tolist() == indices(starts).tolist()


# ---- starts --------------------------------------------------------------------------------------

sizes_of_records = st.lists(st.integers(2, 5), max_size=6) | st.integers(2, 3).flatmap(
    lambda size: st.lists(st.just(size), max_size=6)
)


@given(sizes_of_records, st.integers(1, 2))
def test_starts_are_the_same_as_a_slice_and_as_indices(sizes: list[int], words: int) -> None:
    expected = [sum(sizes[:index]) for index in range(len(sizes))]

    starts = starts_of(np.array(sizes, np.uint16))

    assert indices(starts).tolist() == expected
    assert indices(behind(starts, words)).tolist() == [at + words for at in expected]
    assert isinstance(starts, slice) == (len(set(sizes)) == 1)


@given(st.lists(sizes_of_records, min_size=1, max_size=4))
def test_starts_of_joined_arrays_go_on_where_the_last_one_ended(
    parts: list[list[int]],
) -> None:
    starts = joined([starts_of(np.array(sizes, np.uint16)) for sizes in parts], [*map(sum, parts)])

    every = [size for sizes in parts for size in sizes]
    assert indices(starts).tolist() == [sum(every[:index]) for index in range(len(every))]


def test_records_of_one_size_that_do_not_fill_their_array_are_not_joined_to_a_slice() -> None:
    assert indices(joined([slice(0, 3, 3), slice(0, 6, 3)], [4, 6])).tolist() == [
        0,
        4,
        7,
    ]
    assert indices(joined([slice(1, 4, 3), slice(0, 6, 3)], [4, 6])).tolist() == [
        1,
        4,
        7,
    ]
