"""Protobuf messages of many rows at once: as a plain reader of protobuf finds them."""

from __future__ import annotations

import struct

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from markerjit.trace import wire

U64 = st.integers(0, (1 << 64) - 1)


def read(data: bytes) -> list[tuple[int, int | bytes]]:
    """(field, value) of a message: numbers, eight bytes of a double, or bytes."""
    fields: list[tuple[int, int | bytes]] = []
    at = 0
    while at < len(data):
        head, at = varint(data, at)
        number, kind = head >> 3, head & 7
        if kind == 0:
            value, at = varint(data, at)
            fields.append((number, value))
            continue
        size = 8
        if kind == 2:
            size, at = varint(data, at)
        assert at + size <= len(data)
        fields.append((number, data[at : at + size]))
        at += size
    return fields


def varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        value |= (data[at] & 0x7F) << shift
        shift += 7
        at += 1
        if data[at - 1] < 0x80:
            return value, at


@given(st.lists(U64, min_size=1))
def test_varints_of_all_rows_have_one_width_and_their_values(values: list[int]) -> None:
    table = wire.varints(np.array(values, np.uint64))

    assert [varint(row.tobytes(), 0) for row in table] == [
        (value, table.shape[1]) for value in values
    ]
    assert table.shape[1] == len(wire.one_varint(max(values)))


@given(st.integers(-(1 << 63), (1 << 63) - 1))
def test_a_negative_number_is_its_64_bits(value: int) -> None:
    table = wire.varints(np.array([value], np.int64))

    assert varint(table[0].tobytes(), 0)[0] == value % (1 << 64)
    assert varint(wire.one_varint(value), 0)[0] == value % (1 << 64)


@given(
    st.lists(
        st.tuples(U64, st.none() | st.binary(max_size=300), st.floats(allow_nan=False)), max_size=20
    )
)
def test_a_message_has_its_fields_in_each_row(rows: list[tuple[int, bytes | None, float]]) -> None:
    texts = [text or b"" for _, text, _ in rows]
    lengths = np.array([len(text) for text in texts], np.int64)
    text = wire.Ragged(
        np.frombuffer(b"".join(texts), np.uint8), np.cumsum(lengths) - lengths, lengths
    )
    present = np.array([text is not None for _, text, _ in rows], np.bool_)
    inner = [
        wire.field(1, "same"),
        *wire.numbers(2, np.array([number for number, _, _ in rows], np.uint64)),
        *wire.texts(3, text, present),
        *wire.doubles(4, np.array([number for *_, number in rows], np.float64)),
    ]
    parts = wire.message(9, inner, len(rows))

    encoded = wire.rows_of(parts, len(rows))

    assert b"".join(encoded) == wire.bytes_of(parts, len(rows))
    for data, (number, value, double) in zip(encoded, rows, strict=True):
        ((field, body),) = read(data)
        assert field == 9
        assert isinstance(body, bytes)
        expected: list[tuple[int, int | bytes]] = [(1, b"same"), (2, number)]
        if value is not None:
            expected.append((3, value))
        assert read(body) == [*expected, (4, struct.pack("<d", double))]


def test_numbers_may_be_in_some_rows_only() -> None:
    parts = wire.numbers(5, np.array([1, 300]), np.array([False, True]))

    assert [read(row) for row in wire.rows_of(parts, 2)] == [[], [(5, 300)]]


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (5, 5),
        (-1, (1 << 64) - 1),
        ("ä\udcff", b"\xc3\xa4\\udcff"),
        (b"\0", b"\0"),
        ([b"\x08\x01", b"\x10\x02"], b"\x08\x01\x10\x02"),
        (0.5, struct.pack("<d", 0.5)),
    ],
)
def test_a_field_of_one_row(value: object, expected: int | bytes) -> None:
    assert read(wire.field(17, value)) == [(17, expected)]  # type: ignore[arg-type]
