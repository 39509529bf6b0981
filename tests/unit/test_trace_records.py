"""Records from one shape to another: pieces, events to columns, columns to the runtime's bytes."""

from __future__ import annotations

from itertools import chain, pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from markerjit.errors import BadTrace
from markerjit.model import Event, FieldType
from markerjit.ring.columns import rows_between
from markerjit.ring.decode import decode
from markerjit.ring.to_events import events
from markerjit.ring.types import Time
from markerjit.trace import records
from markerjit.trace.collect import Collector, make_texts
from markerjit.trace.encode import packets_of
from markerjit.trace.guess import Guess
from markerjit.trace.records import pieces
from tests.support.made_traces import EVENTS, START_NS, make_batch, make_info


def many(count: int) -> list[Event]:
    """Events of several markers, in the order of their times."""
    return [
        EVENTS[n * n % len(EVENTS)]._replace(time=START_NS + 3 * n, cpu=n % 3) for n in range(count)
    ]


def test_columns_of_events_are_those_events() -> None:
    info = make_info()

    assert events(make_batch(info).columns, info.clock) == list(EVENTS)


@pytest.mark.parametrize("time", [Time.MONOTONIC, Time.TSC, Time.NONE])
@pytest.mark.parametrize("size", [1, 7, 100, 1000])
def test_pieces_are_the_whole_and_in_order(time: Time, size: int) -> None:
    info = make_info(time)
    batch = make_batch(info, many(500))
    whole = events(batch.columns, info.clock)

    parts = [events(piece, info.clock) for piece in pieces(batch.columns, info.clock, size)]

    assert all(len(some) <= size for some in parts)
    assert len(parts) == -(-500 // size)
    assert list(chain(*parts)) == whole


def test_nothing_has_no_pieces() -> None:
    info = make_info()

    assert list(pieces([], info.clock)) == []
    assert list(pieces(make_batch(info, []).columns, info.clock)) == []


@pytest.mark.parametrize("time", [Time.MONOTONIC, Time.NONE])
def test_packets_of_columns_are_decoded_to_the_same(time: Time) -> None:
    info = make_info(time)
    numbers: dict[int, int] = {}
    some = []
    for event in many(300):
        number = numbers[event.cpu] = numbers.get(event.cpu, -1) + 1
        some.append(event._replace(time=number) if time is Time.NONE else event)
    batch = make_batch(info, some)

    packets = list(packets_of(batch.columns))
    columns = decode(packets, {kind.id: kind for kind in info.types})

    assert [packet.cpu for packet in packets] == [0, 1, 2]
    assert sorted(events(columns, info.clock), key=repr) == sorted(some, key=repr)


def test_a_text_too_long_for_a_record_is_cut_and_says_so() -> None:
    info = make_info()
    event = EVENTS[1]._replace(fields={**EVENTS[1].fields, "key": "x" * 100_000})

    (packet,) = packets_of(make_batch(info, [event]).columns)
    (cut,) = events(decode([packet], {kind.id: kind for kind in info.types}), info.clock)

    room = 1023 * 8 - {kind.marker: kind for kind in info.types}[event.name].size
    assert cut.fields["key"] == "x" * room + "…"


@pytest.mark.parametrize(
    "fields",
    [
        {"id": 1},
        {"id": 1, "rows": 2, "more": 3},
        {"id": "one", "rows": 2},
        {"id": 1 << 40, "rows": 2},
        {"id": 1, "rows": -2},
        {"id": None, "rows": 2},
        {"id": [1], "rows": 2},
        {"id": 1.5, "rows": 2},
        {"id": True, "rows": 2},
        {"id": "5", "rows": 2},
    ],
)
def test_an_event_that_does_not_fit_its_marker_is_a_bad_trace(fields: dict[str, object]) -> None:
    event = Event(START_NS, 0, 1, "query_done", fields)  # type: ignore[arg-type]

    with pytest.raises(BadTrace, match="query_done"):
        Collector(make_info().types).columns([event])


@pytest.mark.parametrize(
    ("values", "sort", "ctype"),
    [
        ([1, -2], FieldType.INT, "i64"),
        ([1, 1 << 63], FieldType.INT, "u64"),
        ([1, 0.5], FieldType.FLOAT, "f64"),
        ([True, False], FieldType.BOOL, "bool"),
        (["a", None], FieldType.STRING, "chars"),
        ([None], FieldType.STRING, "chars"),
        ([b"a", "b"], FieldType.BYTES, "chars"),
    ],
)
def test_types_are_guessed_from_values(values: list[object], sort: FieldType, ctype: str) -> None:
    guess = Guess()
    some = [Event(n, 0, 1, "a", {"x": value}) for n, value in enumerate(values)]  # type: ignore[dict-item]
    for event in some:
        guess.look_at(event)

    (kind,) = guess.types()
    (field,) = kind.fields

    assert (field.type, str(field.ctype)) == (sort, ctype)
    Collector([kind]).columns(some)


@given(st.lists(st.none() | st.binary(max_size=9) | st.text(max_size=9)))
def test_texts_are_one_behind_the_other(values: list[str | bytes | None]) -> None:
    texts = make_texts(values)

    data = texts.data.tobytes()
    ends = texts.offsets.tolist()
    encoded = [data[start:end] for start, end in pairwise(ends)]
    assert encoded == [
        (value or b"") if not isinstance(value, str) else value.encode(errors="backslashreplace")
        for value in values
    ]
    assert [state == 2 for state in texts.states] == [value is None for value in values]


@given(st.lists(st.binary(max_size=4), min_size=1))
def test_texts_are_utf8_when_each_of_them_is(values: list[bytes]) -> None:
    def is_utf8(text: bytes) -> bool:
        try:
            text.decode()
        except UnicodeDecodeError:
            return False
        return True

    assert records.is_utf8(make_texts(values)) == all(map(is_utf8, values))


def test_part_is_a_view() -> None:
    info = make_info()
    columns = next(column for column in make_batch(info).columns if column.type.marker == "kv_get")

    half = rows_between(columns, 1, 2)

    assert events([half], info.clock) == [EVENTS[-1]]
    assert np.shares_memory(half.time, columns.time)
