"""From a payload to values, and how the recorder is told to make one."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from markerjit.elf import parse_format
from markerjit.errors import BadNote, MarkerError
from markerjit.model import CType, Field, FieldType, Kind, Note, TypeClass, Value
from markerjit.probes.record import MAX_STRING, recorder_taking, signature
from markerjit.ring.decode import BadRecord, decode
from markerjit.ring.layout import (
    OP_BYTES,
    OP_FP,
    OP_GP,
    OP_PREFIX,
    OP_STRING,
    STRING_CUT,
    STRING_NULL,
)

CHARS = CType(TypeClass.CHARS, 8)
POINTER = CType(TypeClass.POINTER, 8)
INT = CType(TypeClass.SIGNED, 4)
DOUBLE = CType(TypeClass.FLOAT, 8)
BOOL = CType(TypeClass.BOOL, 1)


def word(number: int) -> bytes:
    return (number & (1 << 64) - 1).to_bytes(8, "little")


def text(content: bytes, flags: int = 0) -> bytes:
    return word(len(content) | flags) + content + bytes(-len(content) % 8)


def values(payload: bytes, format_: str, *args: CType) -> list[Value]:
    return list(decode(payload, args, parse_format(format_, args)).values())


# ---- numbers -------------------------------------------------------------------------------------


@given(
    size=st.sampled_from([1, 2, 4, 8]), garbage=st.binary(min_size=8, max_size=8), data=st.data()
)
def test_integers_are_defined_in_their_own_bytes_only(
    size: int, garbage: bytes, data: st.DataObject
) -> None:
    number = data.draw(st.integers(-(1 << 8 * size - 1), (1 << 8 * size - 1) - 1))
    unsigned = number & (1 << 8 * size) - 1
    payload = unsigned.to_bytes(size, "little") + garbage[size:]

    assert values(payload, "%d", CType(TypeClass.SIGNED, size)) == [number]
    assert values(payload, "%u", CType(TypeClass.UNSIGNED, size)) == [unsigned]


@given(st.floats(allow_nan=False))
def test_floats_of_both_sizes_come_as_doubles(number: float) -> None:
    payload = struct.pack("<d", number)

    assert values(payload, "%g", DOUBLE) == [number]
    assert values(payload, "%g", CType(TypeClass.FLOAT, 4)) == [number]


@pytest.mark.parametrize(
    ("byte", "truth"), [(0, False), (1, True), (0x80, True)]
)  # whatever is in the rest of the register
def test_bools_are_true_or_false(byte: int, truth: bool) -> None:
    (found,) = values(word(byte | 0xFFFFFF00), "%d", BOOL)

    assert found is truth


@pytest.mark.parametrize(("number", "char"), [(65, "A"), (0, "\0"), (-1, "\xff"), (0x141, "A")])
def test_chars_are_a_byte(number: int, char: str) -> None:
    assert values(word(number), "%c", INT) == [char]


@pytest.mark.parametrize("ctype", [POINTER, CHARS])
def test_pointers_are_numbers(ctype: CType) -> None:
    assert values(word((1 << 64) - 16), "%p", ctype) == [(1 << 64) - 16]


# ---- text ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("length", [0, 1, 7, 8, 9, 256])
def test_strings_of_every_padding(length: int) -> None:
    assert values(text(b"x" * length) + word(7), "%s %d", CHARS, INT) == ["x" * length, 7]


def test_a_null_string_is_none() -> None:
    assert values(word(STRING_NULL) + word(7), "%s %d", CHARS, INT) == [None, 7]


def test_a_null_string_of_a_length_is_none() -> None:
    payload = word(3) + word(STRING_NULL | STRING_CUT)

    assert values(payload, "%.*s", INT, CHARS) == [None]


def test_a_cut_string_says_so() -> None:
    assert values(text(b"abc", STRING_CUT), "%s", CHARS) == ["abc…"]
    assert values(word(9) + text(b"abc", STRING_CUT), "%.*s", INT, CHARS) == ["abc…"]


def test_what_the_format_itself_cuts_is_whole() -> None:
    assert values(text(b"abc", STRING_CUT), "%.3s", CHARS) == ["abc"]


def test_a_string_that_is_no_utf8_shows_its_bytes() -> None:
    assert values(text(b"\xe9t\xc3\xa9"), "%s", CHARS) == ["\\xe9té"]


@pytest.mark.parametrize("content", [b"\xff\0\1", b"a\nb", b"\0"])
def test_bytes_that_are_no_text_stay_bytes(content: bytes) -> None:
    assert values(word(len(content)) + text(content), "%.*s", INT, CHARS) == [content]


@pytest.mark.parametrize("content", ["", "plain", "é"])
def test_bytes_that_are_text_become_a_string(content: str) -> None:
    data = content.encode()

    assert values(word(len(data)) + text(data), "%.*s", INT, CHARS) == [content]


def test_fields_are_named_and_a_length_is_no_field() -> None:
    args = (CHARS, INT, CHARS, DOUBLE)
    fields = parse_format("key %s body %.*s took %f", args)
    payload = text(b"k") + word(3) + text(b"abc") + struct.pack("<d", 0.5)

    found = decode(payload, args, fields)

    assert found == {"key": "k", "body": "abc", "took": 0.5}
    assert list(found) == ["key", "body", "took"]


# ---- what does not fit ---------------------------------------------------------------------------


@pytest.mark.parametrize("change", [-8, -1, 1, 8])
def test_a_payload_of_another_length_is_a_bad_record(change: int) -> None:
    payload = (word(1) + text(b"abc") + bytes(8))[: 24 + change]

    with pytest.raises(BadRecord, match=f"a record of {24 + change} bytes"):
        values(payload, "%d %s", INT, CHARS)


@pytest.mark.parametrize("length", [9, 17, 0xFFFFFFFF])
def test_a_string_that_claims_to_be_longer_than_its_record_is_a_bad_record(length: int) -> None:
    with pytest.raises(BadRecord):
        values(word(length) + bytes(8), "%s", CHARS)


def test_a_payload_for_a_marker_without_fields_is_empty() -> None:
    assert values(b"", "hello") == []
    with pytest.raises(BadRecord):
        values(bytes(8), "hello")


def test_a_bad_record_is_an_error_of_the_house() -> None:
    assert issubclass(BadRecord, MarkerError)


formats = st.sampled_from(
    [
        ("%d", (INT,)),
        ("%s", (CHARS,)),
        ("%s %s", (CHARS, CHARS)),
        ("%.*s %c", (INT, CHARS, INT)),
        ("%g %p %d", (DOUBLE, POINTER, BOOL)),
    ]
)


@given(format_=formats, payload=st.one_of(st.binary(max_size=64), st.lists(
    st.integers(0, 40), max_size=8).map(lambda words: b"".join(map(word, words)))))  # fmt: skip
def test_any_payload_decodes_or_is_a_bad_record(
    format_: tuple[str, tuple[CType, ...]], payload: bytes
) -> None:
    fields = parse_format(*format_)
    try:
        found = decode(payload, format_[1], fields)
    except BadRecord:
        return
    assert list(found) == [field.name for field in fields]


# ---- how the recorder takes arguments ------------------------------------------------------------


@pytest.mark.parametrize(
    ("format_", "args", "ops", "limits"),
    [
        ("hello", (), [], ()),
        ("%d %u %c", (INT,) * 3, [OP_GP] * 3, (0, 0, 0)),
        ("%g %f", (DOUBLE, CType(TypeClass.FLOAT, 4)), [OP_FP] * 2, (0, 0)),
        ("%s", (CHARS,), [OP_STRING], (MAX_STRING,)),
        ("%p", (CHARS,), [OP_GP], (0,)),
        ("%p %d", (POINTER, BOOL), [OP_GP] * 2, (0, 0)),
        ("%.*s", (INT, CHARS), [OP_GP, OP_BYTES], (0, MAX_STRING)),
        ("%.8s", (CHARS,), [OP_PREFIX], (8,)),
        ("%.0s %.s", (CHARS, CHARS), [OP_PREFIX] * 2, (0, 0)),
        ("%.100000s", (CHARS,), [OP_STRING], (MAX_STRING,)),
        ("%*d %*.*s", (INT,) * 4 + (CHARS,), [OP_GP] * 4 + [OP_BYTES], (0, 0, 0, 0, MAX_STRING)),
        ("%d %s " * 6, (INT, CHARS) * 6, [OP_GP, OP_STRING] * 6, (0, MAX_STRING) * 6),
    ],
)
def test_operations_follow_from_types_and_format(
    format_: str, args: tuple[CType, ...], ops: list[int], limits: tuple[int, ...]
) -> None:
    taking = recorder_taking(args, parse_format(format_, args))

    assert list(taking.ops) == ops
    assert taking.limits == limits


def test_thirteen_arguments_are_refused() -> None:
    args = (INT,) * 13

    with pytest.raises(BadNote, match="13 arguments; the recorder takes 12"):
        recorder_taking(args, parse_format("%d " * 13, args))


def note(name: str = "m", format_: str = "%d", args: tuple[CType, ...] = (INT,)) -> Note:
    return Note(name, Kind.JUMP, False, format_, args, "a.c", 1, 1, 2, 3, 4)


def test_markers_share_a_signature_when_their_records_are_read_alike() -> None:
    other_place = note()._replace(file="b.c", line=9, site=77, kind=Kind.NOP)

    assert signature(note()) == signature(other_place)


@pytest.mark.parametrize(
    "other",
    [note(name="n"), note(format_="%u"), note(args=(CType(TypeClass.SIGNED, 8),))],
)
def test_markers_with_another_name_format_or_type_have_another_signature(other: Note) -> None:
    assert signature(note()) != signature(other)


def test_every_field_type_is_decoded_by_some_test_here() -> None:
    shown = {
        field.type
        for format_, args in [
            ("%d %g %c %p %s %.*s", (INT, DOUBLE, INT, POINTER, CHARS, INT, CHARS)),
            ("%d", (BOOL,)),
        ]
        for field in parse_format(format_, args)
    }

    assert shown == set(FieldType)
    assert Field._fields[:4] == ("name", "type", "ctype", "arg")
