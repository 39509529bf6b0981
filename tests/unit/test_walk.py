"""Where records are found in bytes of a ring: as a recorder writes them, and in nonsense.

`found_slowly` says what is right. It goes from header to header and knows no other way.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from itertools import accumulate

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from markerjit.model import CType, Field, FieldType, TypeClass
from markerjit.ring.batch import Packet
from markerjit.ring.by_marker import ByMarker
from markerjit.ring.starts import indices
from markerjit.ring.types import FILLER, HEAD_OF_16, RecordType
from markerjit.ring.walk import Walked, least_words, packet, walk, walk_packet
from tests.support.heads import head_of, marker_and_words

PAGE = 4096
WORDS = PAGE // 8


def make_type(id: int, *fields: FieldType) -> RecordType:
    long = CType(TypeClass.SIGNED, 8)
    return RecordType(id, f"m{id}", "", [Field(f.value, f, long, 0, "d") for f in fields])


TYPES = {
    0: make_type(0),
    1: make_type(1, FieldType.INT, FieldType.FLOAT),
    7: make_type(7, FieldType.STRING),
    300: make_type(300, FieldType.INT),
    70_000: make_type(70_000, FieldType.INT, FieldType.FLOAT),
    3_000_000: make_type(3_000_000, FieldType.STRING),
}
SMALLEST = {0: 2, 1: 4, 7: 3, 300: 3, 70_000: 4, 3_000_000: 3}
LEAST = least_words(TYPES)
MOST = 1023
"""Words that a head can say, which are more than a page has."""

Record = tuple[int, int]
"""A marker and the words of the record."""


def header(marker: int, words: int) -> bytes:
    return struct.pack("<II", head_of(marker, words), 0)


def write(records: Sequence[Record], *, start: int = 0, inside: bytes = b"\x99" * 8) -> bytes:
    """As a recorder does: what does not fit into a page comes in the next. `inside` is in each
    word of a record but the first."""
    data = bytearray()
    for marker, words in records:
        left = WORDS - (start + len(data)) // 8 % WORDS
        if words > left:
            data += header(FILLER, left) + inside * (left - 1)
        data += header(marker, words) + inside * (words - 1)
    return bytes(data)


def found_slowly(data: bytes, start: int) -> tuple[list[tuple[int, int, int]], int]:
    """(word, marker, words) of each record, and how often a page was given up."""
    return _found_slowly(data, lambda at: at + WORDS - (start // 8 + at) % WORDS)


def _found_slowly(data: bytes, page_end) -> tuple[list[tuple[int, int, int]], int]:  # type: ignore[no-untyped-def]
    records, damaged, at, end = [], 0, 0, len(data) // 8
    while at < end:
        (head,) = struct.unpack_from("<I", data, at * 8)
        marker, words = marker_and_words(head)
        smallest = 1 if marker == FILLER else SMALLEST.get(marker, 1 << 16)
        stop = min(page_end(at), end)
        if not smallest <= words <= stop - at:
            damaged += 1
            at = stop
            continue
        if marker != FILLER:
            records.append((at, marker, words))
        at += words
    return records, damaged


def as_found(walked: Walked) -> tuple[list[tuple[int, int, int]], int]:
    columns = (walked.starts.tolist(), walked.markers.tolist(), walked.words.tolist())
    return list(zip(*columns, strict=True)), walked.damaged


def check(data: bytes, start: int = 0) -> Walked:
    walked = walk(data, start, LEAST)
    assert as_found(walked) == found_slowly(data, start)
    return walked


records = st.builds(
    lambda marker, more: (marker, SMALLEST[marker] + more),
    st.sampled_from(sorted(SMALLEST)),
    st.one_of(st.just(0), st.integers(0, 3), st.integers(0, WORDS - 4)),
)
positions = st.integers(0, 3 * WORDS).map(lambda word: word * 8)


# ---- what a recorder writes ----------------------------------------------------------------------


def test_of_nothing_nothing_is_found() -> None:
    walked = check(b"")

    assert (walked.counts(), walked.damaged) == ({}, 0)


@given(st.lists(records, max_size=60), positions)
def test_all_records_are_found_in_their_order(some: list[Record], start: int) -> None:
    data = write(some, start=start)

    walked = check(data, start)

    assert list(zip(walked.markers.tolist(), walked.words.tolist(), strict=True)) == some
    assert walked.damaged == 0


@given(st.integers(2, WORDS), st.integers(1, 4), positions, st.integers(0, WORDS))
def test_pages_in_which_all_records_are_alike_are_walked_as_others(
    words: int, pages: int, start: int, cut: int
) -> None:
    """Each size leaves another rest of the page, from none to nearly all of it."""
    data = write([(0, words)] * (WORDS // words * pages + 1), start=start)

    walked = check(data[: len(data) - cut * 8], start)

    assert walked.damaged <= 1


@pytest.mark.parametrize("other", [(7, 4), (0, 2), (1, 8), (2, 4), (1, 0)])
@pytest.mark.parametrize("at", [4, WORDS, 2 * WORDS + 40, 3 * WORDS - 8])
def test_one_record_that_is_unlike_the_others_is_seen(other: Record, at: int) -> None:
    data = bytearray(write([(1, 4)] * (3 * WORDS // 4)))
    data[at * 8 : at * 8 + 4] = header(*other)[:4]

    walked = check(bytes(data))

    assert walked.starts.tolist() != list(range(0, 3 * WORDS, 4)) or 7 in walked.markers


@pytest.mark.parametrize("left", range(1, 6))
def test_fillers_of_every_length_are_no_records(left: int) -> None:
    data = write([(7, WORDS - left), (1, 6)])

    walked = check(data)

    assert walked.starts.tolist() == [0, WORDS]
    assert walked.damaged == 0


def test_records_that_end_with_the_page_need_no_filler() -> None:
    data = write([(7, WORDS), (1, 4), (7, WORDS - 4), (0, 2)])

    assert check(data).starts.tolist() == [0, WORDS, WORDS + 4, 2 * WORDS]
    assert len(data) == 2 * PAGE + 16


@pytest.mark.parametrize("kinds", [[(1, 4)], [(300, 3)], [(1, 4), (0, 2), (300, 3), (7, 9)]])
@pytest.mark.parametrize("start", [0, 8 * 5, 8 * (WORDS - 4)])
def test_many_pages_are_walked_as_few(kinds: list[Record], start: int) -> None:
    data = write(kinds * (140 * WORDS // sum(words for _, words in kinds)), start=start)

    walked = check(data, start)

    assert len(data) > 135 * PAGE
    assert walked.damaged == 0


@given(st.lists(records, min_size=1, max_size=60), records, positions)
def test_numbers_that_look_like_headers_are_none(
    some: list[Record], looks: Record, start: int
) -> None:
    data = write(some, start=start, inside=header(*looks))

    assert check(data, start).damaged == 0


def test_records_are_counted_by_marker() -> None:
    walked = walk(write([(1, 4), (7, 3), (1, 4)]), 0, LEAST)

    assert walked.counts() == {1: 2, 7: 1}


def test_a_walk_says_where_its_records_are_from() -> None:
    walked = walk(write([(1, 4)]), 0, LEAST, cpu=3, ring=5, first=77)

    assert walked[:3] == (3, 5, 77)


# ---- what nobody can have meant ------------------------------------------------------------------


@pytest.mark.parametrize(
    ("marker", "words"),
    [(1, 0), (1, 3), (1, WORDS - 3), (1, MOST), (2, 4), (FILLER, 0), (FILLER, WORDS - 3)],
    ids=lambda number: f"{number:#x}",
)
def test_after_damage_the_next_page_is_walked(marker: int, words: int) -> None:
    good = write([(0, 2), (0, 2)])
    data = good + header(marker, words) + bytes(PAGE - 40) + write([(300, 3)])

    walked = check(data)

    assert walked.starts.tolist() == [0, 2, WORDS]
    assert walked.damaged == 1


def test_a_record_that_goes_over_the_end_of_the_bytes_is_damage() -> None:
    walked = check(write([(1, 4), (1, 4)])[:-8])

    assert (walked.starts.tolist(), walked.damaged) == ([0], 1)


def test_every_page_of_zeros_is_damage_once() -> None:
    assert check(bytes(5 * PAGE), 8).damaged == 6


def test_a_type_that_claims_to_have_no_size_is_come_through() -> None:
    least = ByMarker({}, np.uint16, others=0, filler=0)

    pages = walk(bytes(2 * PAGE), 0, least)
    more = walk(bytes(2 * PAGE) + header(0, 2) + bytes(8), 0, least)

    assert (pages.starts.tolist(), pages.damaged) == ([], 2)
    assert (more.starts.tolist(), more.damaged) == ([2 * WORDS], 2)


@given(st.lists(records, min_size=1, max_size=60), positions, st.data())
def test_wherever_damage_is_the_rest_is_found(
    some: list[Record], start: int, data: st.DataObject
) -> None:
    written = bytearray(write(some, start=start))
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.sampled_from([0, *accumulate(words * 8 for _, words in some[:-1])]))
        at = min(at, len(written) - 8)
        written[at : at + 4] = header(*data.draw(st.one_of(records, headers)))[:4]

    check(bytes(written), start)


headers = st.tuples(
    st.sampled_from([*SMALLEST, FILLER, FILLER - 1, 2, 0x8000, 70_001]),
    st.one_of(st.integers(0, 8), st.integers(0, WORDS + 2), st.just(MOST)),
)
nonsense = st.one_of(
    st.binary(max_size=3 * PAGE),
    st.lists(headers, max_size=3 * WORDS).map(
        lambda some: b"".join(header(*head) for head in some)
    ),
    st.tuples(headers, st.integers(0, 3 * WORDS)).map(lambda pair: header(*pair[0]) * pair[1]),
)


@given(nonsense, positions)
@example(b"\xff" * PAGE, 0)
@example(header(FILLER, 1) * 2 * WORDS, 0)
@example(b"\1", 0)
def test_any_bytes_are_walked_as_the_slow_way_does(data: bytes, start: int) -> None:
    check(data, start)


# ---- packets -------------------------------------------------------------------------------------


def test_bytes_without_fillers_and_damage_are_the_packet_themselves() -> None:
    data = write([(1, 4)] * WORDS)

    made = packet(walk(data, 0, LEAST, cpu=2, ring=9))

    assert (made.cpu, made.ring) == (2, 9)
    assert made.data is data


@given(nonsense | st.lists(records, max_size=40).map(write), positions)
def test_a_packet_has_the_records_and_nothing_else(data: bytes, start: int) -> None:
    walked = walk(data, start, LEAST)
    spans = zip(walked.starts.tolist(), walked.words.tolist(), strict=True)

    made = packet(walked)

    assert made.data == b"".join(data[at * 8 : (at + words) * 8] for at, words in spans)
    again = walk_packet(made, LEAST, first=walked.first)
    assert again.damaged == 0
    assert made.starts is not None
    assert indices(made.starts).tolist() == again.starts.tolist()
    assert again.markers.tolist() == walked.markers.tolist()
    assert again.words.tolist() == walked.words.tolist()
    assert packet(again).data is made.data


def test_records_that_were_left_out_of_a_walk_are_not_in_the_packet() -> None:
    walked = walk(write([(1, 4), (0, 2), (1, 5)]), 0, LEAST)
    mask = walked.markers == 1

    made = packet(walked._replace(starts=walked.starts[mask], markers=walked.markers[mask]))

    assert made.data == write([(1, 4), (1, 5)])


def test_a_packet_may_have_records_that_are_larger_than_a_page() -> None:
    large = header(7, MOST) + bytes(MOST * 8 - 8)

    walked = walk_packet(Packet(0, 0, large + header(0, 2) + bytes(8) + large), LEAST)

    assert walked.starts.tolist() == [0, MOST, MOST + 2]
    assert walked.damaged == 0


@pytest.mark.parametrize("first", [[], [(1, 4)]])
@pytest.mark.parametrize("marker", [7, 8, FILLER])
def test_no_older_record_has_all_words_that_its_head_can_say(
    first: list[Record], marker: int
) -> None:
    heads = [(*record, record[1] - 1) for record in first] + [(marker & 0xFFFF, 0xFFFF, 0xFFFF)]
    data = b"".join(struct.pack("<HHI", *head, 0) + bytes(rest * 8) for *head, rest in heads)

    walked = walk_packet(Packet(0, 0, data, head=HEAD_OF_16), LEAST)

    assert (len(walked.starts), walked.damaged) == (len(first), 1)


@given(nonsense)
def test_a_packet_of_any_bytes_is_walked_up_to_its_damage(data: bytes) -> None:
    walked = walk_packet(Packet(0, 0, data), LEAST)

    assert as_found(walked) == _found_slowly(data, lambda at: len(data) // 8)
