"""Records to columns and columns to events. The records are written here, field by field."""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from markerjit.elf import parse_format
from markerjit.model import CType, Event, Field, FieldType, TypeClass, Value
from markerjit.ring.batch import Columns, Packet, Texts
from markerjit.ring.clock import NS, Calibration
from markerjit.ring.columns import merge, monotonic, take
from markerjit.ring.decode import columns_of, decode
from markerjit.ring.to_events import events
from markerjit.ring.types import RecordType, TextState, Time
from markerjit.ring.walk import Walked, least_words, packet, walk
from tests.support.drawn_records import (
    BOOL,
    CHARS,
    INT,
    KINDS,
    NANOSECONDS,
    Record,
    Text,
    by_id,
    rings,
    types_of,
    write,
)
from tests.support.heads import head_of


def walked(records: Sequence[Record], *, cpu: int = 0, first: int = 0) -> Walked:
    least = least_words({record.type.id: record.type for record in records})
    return walk(write(records), 0, least, cpu=cpu, ring=cpu, first=first)


def texts(column: Texts) -> list[Text]:
    data, spans = column.data.tobytes(), pairwise(column.offsets.tolist())
    return [(data[a:b], s) for (a, b), s in zip(spans, column.states.tolist(), strict=True)]


def listed(columns: Columns) -> list[tuple[Any, ...]]:
    """(time, cpu, tid, values) of each record. Numbers are compared as they are written, so that a
    NaN is one."""
    values = [
        texts(column) if isinstance(column, Texts) else [repr(value) for value in column.tolist()]
        for column in (columns.fields[field.name] for field in columns.type.fields)
    ]
    rows = list(zip(*values, strict=True)) or [()] * len(columns.time)
    head = (columns.time.tolist(), columns.cpu.tolist(), columns.tid.tolist())
    return [(*key, values) for *key, values in zip(*head, rows, strict=True)]


def expected(record: Record, cpu: int, number: int) -> tuple[Any, ...]:
    type_ = record.type
    return (
        number if type_.time is Time.NONE else record.time,
        cpu,
        record.tid if type_.tid else 0,
        tuple(
            value if isinstance(value, tuple) else repr(value) for value in record.values
        ),
    )  # fmt: skip


# ---- types and records of every kind -------------------------------------------------------------


# ---- columns -------------------------------------------------------------------------------------


@given(rings())
def test_columns_have_what_was_written_in_order_of_time(
    made: tuple[list[RecordType], list[list[Record]]],
) -> None:
    types, rings = made
    least = least_words(by_id(*types))
    walks = [
        walk(write(records), 0, least, cpu=cpu, ring=cpu, first=100 * cpu)
        for cpu, records in enumerate(rings)
    ]

    columns, bad = columns_of(walks, by_id(*types))

    assert bad == 0
    for type_ in types:
        right = [
            expected(record, cpu, 100 * cpu + number)
            for cpu, records in enumerate(rings)
            for number, record in enumerate(records)
            if record.type is type_
        ]
        if type_.time is not Time.NONE:
            right.sort(key=lambda row: row[0])
        assert [row for each in columns if each.type is type_ for row in listed(each)] == right
    assert all(len(column.time) for column in columns)
    assert len({column.type.id for column in columns}) == len(columns)


@given(rings())
def test_packets_are_decoded_as_rings_are(
    made: tuple[list[RecordType], list[list[Record]]],
) -> None:
    types, rings = by_id(*made[0]), made[1]
    least = least_words(types)
    walks = [walk(write(records), 0, least, cpu=c, ring=c) for c, records in enumerate(rings)]

    columns = decode([packet(piece) for piece in walks], types)

    assert [*map(listed, columns)] == [*map(listed, columns_of(walks, types).columns)]


def kv(id: int = 1, *, time: Time = Time.TSC, tid: bool = True) -> RecordType:
    fields = parse_format("key %s len %d", (CHARS, INT))
    return RecordType(id, "kv_get", "key %s len %d", fields, time=time, tid=tid)


def test_columns_have_the_types_of_their_fields_and_no_holes() -> None:
    (type_,) = types_of(Time.TSC, True, [KINDS])
    record = Record(type_, 5, 7, (*([0] * 8), 0.5, 0.25, True, 65, 1, (b"abc", 0), (b"", 2)))

    (columns,) = columns_of([walked([record, record])], by_id(type_)).columns

    codes = [
        "text" if isinstance(column, Texts) else column.dtype.str[1:]
        for column in columns.fields.values()
    ]
    assert codes == [
        *("i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8"), *("f8", "f8", "b1", "i4", "u8"),
        *("text", "text"),
    ]  # fmt: skip
    for column in (columns.time, columns.cpu, columns.tid, *columns.fields.values()):
        if not isinstance(column, Texts):
            assert column.flags.c_contiguous
    assert (columns.time.dtype, columns.cpu.dtype, columns.tid.dtype) == ("u8", "u2", "u4")


@pytest.mark.parametrize(("byte", "truth"), [(0, False), (1, True), (0x80, True)])
def test_a_bool_is_true_whatever_its_byte_says(byte: int, truth: bool) -> None:
    (type_,) = types_of(Time.TSC, True, [[(FieldType.BOOL, BOOL, "d")]])
    record = Record(type_, 0, 0, (byte,))

    (columns,) = columns_of([walked([record])], by_id(type_)).columns

    assert columns.fields["f0"].tolist() == [truth]  # type: ignore[union-attr]


def test_records_of_markers_that_are_not_asked_for_are_left_out() -> None:
    first, second = types_of(Time.TSC, True, [[], []])
    walk_of_both = walked([Record(first, 1, 0, ()), Record(second, 2, 0, ())])

    (columns,) = columns_of([walk_of_both], by_id(second)).columns

    assert columns.type is second


def test_without_time_columns_are_in_the_order_of_the_rings() -> None:
    (type_,) = types_of(Time.NONE, True, [[]])
    walks = [walked([Record(type_, 0, 0, ())], cpu=cpu, first=10 * cpu) for cpu in (2, 0, 1)]

    (columns,) = columns_of(walks, {0: type_}).columns

    assert columns.cpu.tolist() == [0, 1, 2]
    assert columns.time.tolist() == [0, 10, 20]


def test_many_texts_are_copied_as_few() -> None:
    type_ = kv()
    records = [
        Record(type_, time, 0, ((b"%d" % time * (time % 3), 0), time)) for time in range(9000)
    ]

    (columns,) = columns_of([walked(records)], {1: type_}).columns

    assert texts(columns.fields["key"]) == [record.values[0] for record in records]  # type: ignore[arg-type]


def test_numbers_of_records_go_on_from_packet_to_packet() -> None:
    (type_,) = types_of(Time.NONE, False, [[]])
    counted: dict[tuple[int, int], int] = {}
    three, two = (write([Record(type_, 0, 0, ())] * count) for count in (3, 2))

    first = decode([Packet(0, 0, three), Packet(1, 1, two)], by_id(type_), counted=counted)
    second = decode([Packet(0, 0, two)], by_id(type_), counted=counted)

    assert [column.time.tolist() for column in first] == [[0, 1, 2, 0, 1]]
    assert [column.time.tolist() for column in second] == [[3, 4]]
    assert counted == {(0, 0): 5, (1, 1): 2}


# ---- texts that cannot be what they say ----------------------------------------------------------


def test_a_record_without_room_for_its_text_is_dropped_and_counted() -> None:
    type_ = kv()
    records = [Record(type_, time, 0, ((b"12345678", 0), time)) for time in range(5)]
    data = bytearray(write(records))
    size = len(data) // 5
    data[2 * size + 16 : 2 * size + 20] = struct.pack("<I", 9)  # its number has no place now
    data[4 * size + 16 : 4 * size + 20] = struct.pack("<I", 0xFFFFFFFF)

    columns, bad = columns_of([walk(bytes(data), 0, least_words({1: type_}))], {1: type_})

    assert bad == 2
    assert columns[0].time.tolist() == [0, 1, 3]
    assert texts(columns[0].fields["key"]) == [(b"12345678", 0)] * 3  # type: ignore[arg-type]


@pytest.mark.parametrize("length", [8, 16, 0x7FFFFFF8, 0xFFFFFFFF])
def test_a_text_that_takes_the_place_of_the_next_is_dropped_and_counted(length: int) -> None:
    """A length of 8 ends where the record does: the head of the second text would be behind it."""
    type_ = RecordType(1, "m", "a %s b %s", parse_format("a %s b %s", (CHARS, CHARS)))
    data = bytearray(write([Record(type_, 0, 0, ((b"", 0), (b"", 0)))]))
    data[16:20] = struct.pack("<I", length)

    columns, bad = columns_of([walk(bytes(data), 0, least_words({1: type_}))], {1: type_})

    assert (columns, bad) == ([], 1)


def test_a_text_in_a_state_that_is_none_is_dropped_and_counted() -> None:
    type_ = kv()

    columns, bad = columns_of([walked([Record(type_, 0, 0, ((b"a", 4), 1))])], {1: type_})

    assert (columns, bad) == ([], 1)


def test_a_record_may_be_longer_than_its_fields() -> None:
    type_ = kv()
    data = bytearray(write([Record(type_, 5, 0, ((b"a", 0), 7))]) + bytes(16))
    data[:4] = struct.pack("<I", head_of(1, len(data) // 8))

    columns, bad = columns_of([walk(bytes(data), 0, least_words({1: type_}))], {1: type_})

    assert bad == 0
    assert listed(columns[0]) == [(5, 0, 0, ((b"a", 0), "7"))]


@given(
    rings(),
    st.lists(st.tuples(st.integers(0), st.one_of(st.integers(0, 40), st.integers(0, 255)))),
)
def test_any_damage_is_come_through(
    made: tuple[list[RecordType], list[list[Record]]], damage: list[tuple[int, int]]
) -> None:
    types, rings = by_id(*made[0]), made[1]
    least = least_words(types)
    walks = []
    for records in rings:
        data = bytearray(write(records))
        for at, byte in damage:
            if data:
                data[at % len(data)] = byte
        walks.append(walk(bytes(data), 0, least))

    columns, bad = columns_of(walks, types)

    total = sum(len(column.time) for column in columns)
    assert total + bad == sum(len(piece.starts) for piece in walks)
    for table in columns:
        for column in table.fields.values():
            if isinstance(column, Texts):
                assert len(column.data) <= sum(len(each.data) for each in walks)
                assert (np.diff(column.offsets) >= 0).all()
    assert len(events(columns, NANOSECONDS)) == total


# ---- taking apart and putting together -----------------------------------------------------------


@given(rings(), st.lists(st.integers(0, 1700), max_size=4))
def test_what_was_taken_apart_is_the_same_put_together(
    made: tuple[list[RecordType], list[list[Record]]], moments: list[int]
) -> None:
    types, rings = by_id(*made[0]), made[1]
    least = least_words(types)
    walks = [walk(write(records), 0, least, cpu=c, ring=c) for c, records in enumerate(rings)]
    for columns in columns_of(walks, types).columns:
        parts, rest = [], columns
        for moment in sorted(moments):
            ready, rest = take(rest, moment)
            parts.append(ready)
            if columns.type.time is not Time.NONE:
                assert (ready.time < moment).all()
                assert (rest.time >= moment).all()
        parts.append(rest)

        assert listed(merge(parts)) == listed(columns)
        assert [row for part in parts for row in listed(part)] == listed(columns)


@given(rings())
def test_columns_of_rings_merge_to_what_they_are_together(
    made: tuple[list[RecordType], list[list[Record]]],
) -> None:
    types, rings = by_id(*made[0]), made[1]
    least = least_words(types)
    walks = [walk(write(records), 0, least, cpu=c, ring=c) for c, records in enumerate(rings)]
    parts = [column for each in walks for column in columns_of([each], types).columns]
    for columns in columns_of(walks, types).columns:
        same = [part for part in parts if part.type is columns.type]

        assert listed(merge(same)) == listed(columns)


# No moment is later than the largest time, so a record of that time is never before it.
@pytest.mark.parametrize(("until", "ready"), [(-1, 0), (0, 0), (5, 1), (6, 2), (1 << 70, 2)])
def test_what_is_as_late_as_the_moment_is_kept(until: int, ready: int) -> None:
    (type_,) = types_of(Time.TSC, True, [[]])
    times = [4, 5, (1 << 64) - 1]
    (columns,) = columns_of([walked([Record(type_, t, 0, ()) for t in times])], {0: type_}).columns

    before, rest = take(columns, until)

    assert before.time.tolist() + rest.time.tolist() == times
    assert len(before.time) == ready


def test_without_time_everything_is_before() -> None:
    (type_,) = types_of(Time.NONE, True, [[]])
    (columns,) = columns_of([walked([Record(type_, 0, 0, ())] * 3)], {0: type_}).columns

    ready, kept = take(columns, 1)

    assert (len(ready.time), len(kept.time)) == (3, 0)


# ---- time ----------------------------------------------------------------------------------------


@given(
    counter=st.integers(0, (1 << 63) - 1),
    steps=st.lists(st.integers(-(1 << 62), 1 << 62), max_size=20),
    frequency=st.integers(NS, 6 * NS),
    start=st.integers(0, 1 << 60),
)
def test_times_are_those_of_the_calibration(
    counter: int, steps: list[int], frequency: int, start: int
) -> None:
    clock = Calibration(Time.TSC, counter, start, frequency, 0)
    times = [counter + step for step in steps if counter + step >= 0]

    nanoseconds = monotonic(np.array(times, np.uint64), clock)

    assert nanoseconds.tolist() == [clock.monotonic(time) for time in times]


def test_nanoseconds_stay_as_they_are() -> None:
    assert monotonic(np.array([5, 1 << 40], np.uint64), NANOSECONDS).tolist() == [5, 1 << 40]


# ---- events --------------------------------------------------------------------------------------


def shown(format_: str, args: tuple[CType, ...], *values: Any) -> list[Value]:
    """The values of an event with these."""
    type_ = RecordType(1, "m", format_, parse_format(format_, args))
    (columns,) = columns_of([walked([Record(type_, 0, 0, values)])], {1: type_}).columns
    (event,) = events([columns], NANOSECONDS)
    assert list(event.fields) == [field.name for field in type_.fields]
    return list(event.fields.values())


@given(st.integers(-(1 << 31), (1 << 31) - 1), st.floats(), st.booleans())
def test_numbers_are_pythons_own(number: int, real: float, truth: bool) -> None:
    values = shown("a %d b %g c %d", (INT, CType(TypeClass.FLOAT, 8), BOOL), number, real, truth)

    assert [*map(type, values)] == [int, float, bool]
    assert values[::2] == [number, truth]
    assert values[1] == real or math.isnan(real)


@pytest.mark.parametrize(("number", "char"), [(65, "A"), (0, "\0"), (-1, "\xff"), (0x141, "A")])
def test_chars_are_a_byte(number: int, char: str) -> None:
    assert shown("%c", (INT,), number) == [char]


@pytest.mark.parametrize(
    ("format_", "args"), [("%s", (CHARS,)), ("%.*s", (INT, CHARS)), ("%.8s", (CHARS,))]
)
@pytest.mark.parametrize(
    ("content", "state", "value"),
    [
        (b"", TextState.WHOLE, ""),
        (b"plain", TextState.WHOLE, "plain"),
        ("größe €".encode(), TextState.WHOLE, "größe €"),
        (b"", TextState.NULL, None),
        (b"left over", TextState.NULL, None),
        (b"", TextState.UNREADABLE, "<unreadable>"),
    ],
)
def test_texts_are_strings(
    format_: str, args: tuple[CType, ...], content: bytes, state: TextState, value: Value
) -> None:
    assert shown(format_, args, (content, state)) == [value]


def test_a_cut_text_says_so_if_not_the_format_itself_cuts_it() -> None:
    cut = (b"abc", TextState.CUT)

    assert shown("%s", (CHARS,), cut) == ["abc…"]
    assert shown("%.*s", (INT, CHARS), cut) == ["abc…"]
    assert shown("%.3s", (CHARS,), cut) == ["abc"]


def test_a_string_that_is_no_utf8_shows_its_bytes() -> None:
    assert shown("%s", (CHARS,), (b"\xe9t\xc3\xa9", 0)) == ["\\xe9té"]


@pytest.mark.parametrize("content", [b"\xff\0\1", b"a\nb", b"\0"])
@pytest.mark.parametrize("state", [TextState.WHOLE, TextState.CUT])
def test_bytes_that_are_no_text_stay_bytes(content: bytes, state: TextState) -> None:
    assert shown("%.*s", (INT, CHARS), (content, state)) == [content]
    assert shown("%s", (CHARS,), (content, 0)) == [content.decode("utf-8", "backslashreplace")]


@pytest.mark.parametrize(
    ("state", "value"),
    [(0, b"abc"), (TextState.CUT, b"abc"), (TextState.NULL, None), (3, "<unreadable>")],
)
def test_bytes_in_hexadecimal_stay_bytes_although_they_are_text(state: int, value: Value) -> None:
    field = Field("data", FieldType.BYTES, CHARS, 1, "ph")
    type_ = RecordType(1, "m", "", [field])
    (columns,) = columns_of([walked([Record(type_, 0, 0, ((b"abc", state),))])], {1: type_}).columns

    (event,) = events([columns], NANOSECONDS)

    assert event.fields == {"data": value}


@given(st.lists(st.tuples(st.text(max_size=9), st.booleans()), min_size=1, max_size=9))
def test_each_event_has_its_own_text(some: list[tuple[str, bool]]) -> None:
    type_ = kv()
    records = [
        Record(type_, time, 0, ((text.encode(), int(cut)), 0))
        for time, (text, cut) in enumerate(some)
    ]
    (columns,) = columns_of([walked(records)], {1: type_}).columns

    for low in range(len(some)):  # also where the column does not begin with its data
        part = columns.fields["key"]
        assert isinstance(part, Texts)
        rest = Texts(part.offsets[low:], part.data, part.states[low:])
        decoded = events(
            [take(columns, low)[1]._replace(fields={**take(columns, low)[1].fields, "key": rest})],
            NANOSECONDS,
        )
        assert [event.fields["key"] for event in decoded] == [
            text + "…" * cut for text, cut in some[low:]
        ]


@given(rings())
def test_events_of_all_types_are_in_order_of_time(
    made: tuple[list[RecordType], list[list[Record]]],
) -> None:
    types, rings = by_id(*made[0]), made[1]
    least = least_words(types)
    walks = [walk(write(records), 0, least, cpu=c, ring=c) for c, records in enumerate(rings)]
    clock = Calibration(Time.TSC, 1 << 63, 1 << 62, 2 * NS, 0)

    made_events = events(columns_of(walks, types).columns, clock)

    right = [
        (expected(record, cpu, number)[:3], record.type.marker)
        for cpu, records in enumerate(rings)
        for number, record in enumerate(records)
    ]
    if made[0][0].time is not Time.NONE:
        right = [((clock.monotonic(time), *more), name) for (time, *more), name in right]
    assert sorted((event[:3], event.name) for event in made_events) == sorted(right)
    if made[0][0].time is Time.NONE:
        keys = [(event.cpu, event.time) for event in made_events]
    else:
        keys = [(0, event.time) for event in made_events]
    assert keys == sorted(keys)
    assert all(isinstance(event, Event) for event in made_events)
    assert len({type(event) for event in made_events}) <= 1  # of one origin


def test_an_event_without_fields_has_none() -> None:
    (type_,) = types_of(Time.TSC, True, [[]])
    (columns,) = columns_of([walked([Record(type_, 9, 7, ())] * 2, cpu=1)], {0: type_}).columns

    assert events([columns], NANOSECONDS) == [Event(9, 1, 7, "m0", {})] * 2
    assert events([], NANOSECONDS) == []
