"""How markers are recorded: operations, limits and sizes follow from types, format and options."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from markerjit.abi import (
    CPU_RTM,
    CPU_TSC,
    MAX_RECORD,
    OP_BYTES,
    OP_FP,
    OP_GP,
    OP_PREFIX,
    OP_RAW,
    OP_SKIP,
    OP_SKIP_FP,
    OP_STRING,
    TIME_COARSE,
    TIME_MONOTONIC,
    TIME_NONE,
    TIME_TSC,
    Control,
)
from markerjit.elf import Note, parse_format
from markerjit.errors import BadNote
from markerjit.model import CType, FieldType, Kind, Signature, TypeClass
from markerjit.probes.record import (
    Recording,
    recorded_type,
    recording,
    takes_a_recorder,
)
from markerjit.ring.types import DEFAULT_TEXT, Options, Strings, Time

CHARS = CType(TypeClass.CHARS, 8)
POINTER = CType(TypeClass.POINTER, 8)
INT = CType(TypeClass.SIGNED, 4)
LONG = CType(TypeClass.SIGNED, 8)
DOUBLE = CType(TypeClass.FLOAT, 8)
FLOAT = CType(TypeClass.FLOAT, 4)
BOOL = CType(TypeClass.BOOL, 1)
GP = {size: OP_GP | bits << 4 for bits, size in enumerate((1, 2, 4, 8))}
FP = OP_FP | 3 << 4
USUAL = Options()


def event(format_: str = "%d", args: tuple[CType, ...] = (INT,), name: str = "m") -> Signature:
    return Signature(name, format_, args)


def made(format_: str, *args: CType, options: Options = USUAL) -> Recording:
    return recording(event(format_, args), options)


# ---- operations ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("format_", "args", "ops", "limits"),
    [
        ("hello", (), [], ()),
        ("%d %u %c", (INT,) * 3, [GP[4]] * 3, (0, 0, 0)),
        ("%ld %hhd", (LONG, CType(TypeClass.SIGNED, 1)), [GP[8], GP[1]], (0, 0)),
        ("%hu", (CType(TypeClass.UNSIGNED, 2),), [GP[2]], (0,)),
        ("%g %f", (DOUBLE, FLOAT), [FP] * 2, (0, 0)),
        ("%s", (CHARS,), [OP_STRING], (DEFAULT_TEXT,)),
        ("%p", (CHARS,), [GP[8]], (0,)),
        ("%p %d", (POINTER, BOOL), [GP[8], GP[1]], (0, 0)),
        ("%.*s", (INT, CHARS), [OP_SKIP, OP_BYTES], (0, DEFAULT_TEXT)),
        ("%*ph", (INT, POINTER), [OP_SKIP, OP_RAW], (0, DEFAULT_TEXT)),
        ("%.8s", (CHARS,), [OP_PREFIX], (8,)),
        ("%.0s %.s", (CHARS, CHARS), [OP_PREFIX] * 2, (0, 0)),
        ("%.100000s", (CHARS,), [OP_STRING], (DEFAULT_TEXT,)),
        (
            "%*d %*.*s",
            (INT,) * 4 + (CHARS,),
            [OP_SKIP, GP[4], OP_SKIP, OP_SKIP, OP_BYTES],
            (0, 0, 0, 0, DEFAULT_TEXT),
        ),
        ("%*f", (INT, DOUBLE), [OP_SKIP, FP], (0, 0)),
        ("%d %s " * 6, (INT, CHARS) * 6, [GP[4], OP_STRING] * 6, (0, DEFAULT_TEXT) * 6),
    ],
)
def test_operations_follow_from_types_and_format(
    format_: str, args: tuple[CType, ...], ops: list[int], limits: tuple[int, ...]
) -> None:
    result = made(format_, *args)

    assert list(result.ops) == ops
    assert result.limits == limits


def test_more_words_than_an_event_has_are_refused() -> None:
    with pytest.raises(BadNote, match="21 arguments; the recorder takes 20"):
        made("%d " * 21, *(INT,) * 21)


def test_words_behind_those_of_markers_are_numbers() -> None:
    entry = made("%d " * 20, *(INT,) * 20).entry()

    assert bytes((*entry.ops, *entry.more_ops)) == bytes([GP[4]]) * 20
    with pytest.raises(BadNote, match="a text behind 12 arguments"):
        made("%d " * 12 + "%s", *(INT,) * 12, CHARS)


def test_what_is_not_asked_for_is_skipped_where_it_is() -> None:
    result = made("a %d b %g c %s d %ld e %*ph", INT, DOUBLE, CHARS, LONG, INT, CHARS,
                 options=Options(fields=("d",)))  # fmt: skip

    assert list(result.ops) == [OP_SKIP, OP_SKIP_FP, OP_SKIP, GP[8], OP_SKIP, OP_SKIP]
    assert result.limits == (0,) * 6
    assert [field.name for field in result.type.fields] == ["d"]
    assert result.type.size == 24


def test_fields_that_another_marker_has_are_not_this_ones_business() -> None:
    assert made("a %d", INT, options=Options(fields=("z",))).type.fields == ()


@pytest.mark.parametrize(
    ("time", "number", "head"),
    [
        (Time.NONE, TIME_NONE, 8),
        (Time.TSC, TIME_TSC, 16),
        (Time.MONOTONIC, TIME_MONOTONIC, 16),
        (Time.COARSE, TIME_COARSE, 16),
    ],
)
@pytest.mark.parametrize("thread_id", [True, False])
@pytest.mark.parametrize("counted", [True, False])
def test_options_are_in_the_entry(
    time: Time, number: int, head: int, thread_id: bool, counted: bool
) -> None:
    result = made("a %d", INT, options=Options(time, thread_id, counted=counted))

    entry = result.entry()
    assert (entry.time, entry.tid, entry.counted) == (number, thread_id, counted)
    assert (entry.argc, entry.size, entry.ops[0]) == (1, head + 8, GP[4])
    assert (result.type.time, result.type.tid, result.type.id) == (time, thread_id, -1)


# ---- sizes ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("format_", "args", "size"),
    [
        ("", (), 16),
        ("%d", (INT,), 24),
        ("%d %d", (INT, INT), 24),
        ("%d %d %d", (INT,) * 3, 32),
        ("%hhd %ld %hhd", (BOOL, LONG, BOOL), 40),  # each at a multiple of its size
        ("%d %s %d", (INT, CHARS, INT), 40),  # a text begins at a multiple of eight, and ends so
        ("%s %s", (CHARS, CHARS), 32),
    ],
)
def test_a_record_is_as_large_as_its_fields_where_they_are(
    format_: str, args: tuple[CType, ...], size: int
) -> None:
    assert made(format_, *args).entry().size == size


@given(
    texts=st.integers(0, 12), others=st.integers(0, 11), text=st.integers(0, 1 << 20),
    time=st.sampled_from(list(Time)),
)  # fmt: skip
def test_no_record_is_larger_than_fits_a_page(
    texts: int, others: int, text: int, time: Time
) -> None:
    others = min(others, 12 - texts)
    options = Options(time, text=text)

    result = made("%s " * texts + "%d " * others, *(CHARS,) * texts, *(INT,) * others,
                 options=options)  # fmt: skip

    largest = result.type.size + sum(-(-limit // 8) * 8 for limit in result.limits)
    assert largest <= MAX_RECORD
    assert result.limits[:texts] == (min(text, result.limits[0]) if texts else 0,) * texts
    if text <= 256:
        assert all(limit == text for limit in result.limits[:texts])


@pytest.mark.parametrize(("asked", "limit"), [(0, 0), (1, 1), (300, 300), (1 << 30, 4040)])
def test_texts_have_the_length_that_is_asked_for_and_fits(asked: int, limit: int) -> None:
    (bound,) = made("s %s", CHARS, options=Options(text=asked)).limits

    assert bound == min(asked, bound)
    assert abs(bound - limit) < 16


def test_a_precision_beyond_the_limit_is_a_cut_that_has_to_be_told() -> None:
    """With OP_PREFIX nobody looks whether there is more."""
    short, long = (made("s %.20s", CHARS, options=Options(text=n)) for n in (20, 19))

    assert (list(short.ops), short.limits) == ([OP_PREFIX], (20,))
    assert (list(long.ops), long.limits) == ([OP_STRING], (19,))


# ---- what a controller finds in an arena ---------------------------------------------------------


@pytest.mark.parametrize("fields", [None, (), ("a",), ("b", "c")])
@pytest.mark.parametrize("time", list(Time))
@pytest.mark.parametrize("thread_id", [True, False])
def test_a_type_is_read_back_from_its_entry(
    fields: tuple[str, ...] | None, time: Time, thread_id: bool
) -> None:
    signature = event("a %d b %.*s c %g", (INT, INT, CHARS, DOUBLE))
    expected = recording(signature, Options(time, thread_id, fields))
    entry = expected.entry()
    entry.id = 77

    kind = recorded_type(signature, entry)

    assert kind.id == 77
    assert (kind.marker, kind.format, kind.fields) == ("m", signature.format, expected.type.fields)
    assert (kind.time, kind.tid, kind.size) == (time, thread_id, expected.type.size)


def test_a_time_that_nobody_knows_is_taken_for_the_usual() -> None:
    entry = made("a %d", INT).entry()
    entry.time = 99

    assert recorded_type(event("a %d"), entry).time is Time.TSC


@pytest.mark.parametrize(
    ("description", "takes"),
    [
        (made("%d %g", INT, DOUBLE), True),
        (made(""), True),
        (made("%d", INT, options=Options(Time.NONE)), True),
        (made("%d", INT, options=Options(Time.MONOTONIC)), False),
        (made("%d", INT, options=Options(Time.COARSE)), False),
        (made("%s %s %s %s", *(CHARS,) * 4), True),
        (made("%s %s %s %s %s", *(CHARS,) * 5), False),
        (made("%s", CHARS, options=Options(strings=Strings.CAREFUL)), False),
        (made("%s", CHARS, options=Options(text=0)), False),
        (made("%.8s", CHARS), False),
        (made("%.*s", INT, CHARS), False),
        (made("%*ph", INT, POINTER), False),
        (made("n %d s %s", INT, CHARS, options=Options(fields=("n",))), True),
    ],
)
def test_code_is_made_for_numbers_and_texts_with_a_time_that_takes_no_call(
    description: Recording, takes: bool
) -> None:
    assert takes_a_recorder(description, Control(rseq_offset=-0x40, cpu_flags=CPU_TSC)) is takes
    assert not takes_a_recorder(description, Control(rseq_offset=0, cpu_flags=CPU_TSC))


@pytest.mark.parametrize("flags", [0, CPU_RTM])
def test_no_code_is_made_for_texts_where_pages_are_not_known(flags: int) -> None:
    control = Control(rseq_offset=-0x40, cpu_flags=flags)

    assert not takes_a_recorder(made("%s", CHARS), control)
    assert takes_a_recorder(made("%d", INT), control)


# ---- signatures ----------------------------------------------------------------------------------


def test_markers_share_a_signature_when_their_records_are_read_alike() -> None:
    note = Note(Signature("m", "%d", (INT,)), Kind.JUMP, False, "a.c", 1, 1, 2, 3, 4, True)
    other_place = note._replace(file="b.c", line=9, site=77, kind=Kind.NOP)

    assert note.signature == other_place.signature == event()
    assert note.signature.text == other_place.signature.text


@pytest.mark.parametrize("other", [event(name="n"), event("%u"), event("%d", (LONG,))])
def test_markers_with_another_name_format_or_type_have_another_signature(other: Signature) -> None:
    assert event() != other
    assert event().text != other.text


def test_every_type_of_field_is_recorded_by_some_test_here() -> None:
    """But for stacks, which no marker has: those are in tests/live/test_event_stacks.py."""
    shown = {
        field.type
        for format_, args in [
            ("%d %g %c %p %s %.*s", (INT, DOUBLE, INT, POINTER, CHARS, INT, CHARS)),
            ("%d", (BOOL,)),
        ]
        for field in parse_format(format_, args)
    }

    assert shown == {*FieldType} - {FieldType.STACK}
