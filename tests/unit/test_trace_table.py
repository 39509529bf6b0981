"""Which columns a trace has as a table."""

from __future__ import annotations

from markerjit.ring.types import RecordType, Time
from markerjit.trace.table import Layout, layout
from tests.support.made_traces import CHARS, F64, I32, I64, POINTER, make_type


def types(*described: tuple[object, ...], time: Time = Time.MONOTONIC) -> list[RecordType]:
    return [
        make_type(number, *description, time=time, tid=True)  # type: ignore[arg-type]
        for number, description in enumerate(described)
    ]


def names(table: Layout) -> list[str]:
    return [name for name, _ in table.columns]


def test_a_field_has_a_column_of_its_name_and_type() -> None:
    table = layout(types(("a", "key %s n %d x %f at %p c %c", CHARS, I32, F64, POINTER, I32)))

    assert table.columns == (
        ("key", "string"), ("n", "i4"), ("x", "f8"), ("at", "u8"), ("c", "char"),
    )  # fmt: skip


def test_markers_share_a_column_of_one_name_and_type() -> None:
    table = layout(types(("a", "n %d", I32), ("b", "n %d m %d", I32, I32)))

    assert table.columns == (("n", "i4"), ("m", "i4"))
    assert table.places == (("n",), ("n", "m"))


def test_strings_with_and_without_a_length_share_a_column() -> None:
    table = layout(types(("a", "key %s", CHARS), ("b", "key %.*s", I32, CHARS)))

    assert table.columns == (("key", "string"),)


def test_markers_with_different_types_have_their_own_columns() -> None:
    table = layout(types(("a", "n %d", I32), ("b", "n %ld", I64), ("c", "n %d", I32)))

    assert table.columns == (("n_a", "i4"), ("n_b", "i8"), ("n_c", "i4"))


def test_a_field_does_not_take_the_place_of_what_all_have() -> None:
    table = layout(types(("a", "time %d cpu %d tid %d name %s", I32, I32, I32, CHARS)))

    assert names(table) == ["time_a", "cpu_a", "tid_a", "name_a"]


def test_a_name_that_is_made_takes_no_other_field() -> None:
    table = layout(types(("a", "n %d", I32), ("b", "n %ld", I64), ("c", "n_a %d", I32)))

    assert sorted(names(table)) == ["n_a", "n_a_2", "n_b"]
    assert table.places == (("n_a_2",), ("n_b",), ("n_a",))


def test_markers_of_one_name_are_told_apart_by_a_column() -> None:
    table = layout(types(("a", "n %d", I32), ("a", "n %ld kind %d", I64, I32)))

    assert table.has_kind
    assert table.places == (("n_a",), ("n_a_2", "kind_a"))


def test_a_trace_without_a_clock_has_numbers() -> None:
    assert layout(types(("a", ""), time=Time.NONE)).numbered
    assert not layout(types(("a", ""))).numbered
    assert layout([]) == Layout(False, False, (), ())
