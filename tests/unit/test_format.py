"""Formats: the names and types that fields get, what is refused, and how values are shown."""

from __future__ import annotations

import ctypes
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from markerjit.elf import parse_format, show
from markerjit.errors import BadNote
from markerjit.model import CType, Field, FieldType, TypeClass

INT = CType(TypeClass.SIGNED, 4)
LONG = CType(TypeClass.SIGNED, 8)
CHAR = CType(TypeClass.SIGNED, 1)
UINT = CType(TypeClass.UNSIGNED, 4)
SIZE = CType(TypeClass.UNSIGNED, 8)
DOUBLE = CType(TypeClass.FLOAT, 8)
FLOAT = CType(TypeClass.FLOAT, 4)
POINTER = CType(TypeClass.POINTER, 8)
CHARS = CType(TypeClass.CHARS, 8)
BOOL = CType(TypeClass.BOOL, 1)


def field_of(conversion: str, *types: CType) -> Field:
    (field,) = parse_format(conversion, types)
    return field


@pytest.mark.parametrize(
    ("text", "types", "names"),
    [
        ("key %s len %zu", (CHARS, SIZE), ["key", "len"]),
        ("key=%s, len: %d", (CHARS, INT), ["key", "len"]),
        ("%d %d", (INT, INT), ["arg1", "arg2"]),
        ("", (), []),
        ("nothing to see", (), []),
        ("%d bytes", (INT,), ["arg1"]),
        ("%d bytes to %s", (INT, CHARS), ["arg1", "to"]),
        ("at (%d, %d)", (INT, INT), ["at", "arg2"]),
        ("fd%d", (INT,), ["fd"]),
        ("x %d x %d x %d", (INT,) * 3, ["x", "x_2", "x_3"]),
        ("x %d x_2 %d x %d", (INT,) * 3, ["x", "x_2", "x_3"]),
        ("x_2 %d x %d x %d", (INT,) * 3, ["x_2", "x", "x_3"]),
        ("arg2 %d %d", (INT, INT), ["arg2", "arg2_2"]),
        ("100%% done %d", (INT,), ["done"]),
        ("rate %d%% of %d", (INT, INT), ["rate", "of"]),
        ("%%%d", (INT,), ["arg1"]),
        ("step 1: %d", (INT,), ["step"]),
        ("req.id=%d", (INT,), ["id"]),
        ("größe %d", (INT,), ["größe"]),
        ("flags 0x%x", (UINT,), ["flags"]),
        ("0x%x", (UINT,), ["arg1"]),
        ("max0x%x", (UINT,), ["max0x"]),
        ("error %m code %d", (INT,), ["code"]),
        ("%m %d", (INT,), ["arg1"]),
        ("width %*d next %d", (INT, INT, INT), ["width", "next"]),
        ("%.*s %d", (INT, CHARS, INT), ["arg1", "arg2"]),
        ("%*ph %d", (INT, POINTER, INT), ["arg1", "arg2"]),
        ("to 0x%*ph", (INT, POINTER), ["to"]),
    ],
)
def test_field_is_named_by_the_word_before_it(
    text: str, types: tuple[CType, ...], names: list[str]
) -> None:
    assert [field.name for field in parse_format(text, types)] == names


@pytest.mark.parametrize(
    ("text", "ctype", "type_", "conversion"),
    [
        ("%d", INT, FieldType.INT, "d"),
        ("%i", INT, FieldType.INT, "d"),
        ("%+-5.3ld", LONG, FieldType.INT, "d"),
        ("%hhd", CHAR, FieldType.INT, "d"),
        ("%'d", INT, FieldType.INT, "d"),
        ("%lu", SIZE, FieldType.INT, "u"),
        ("%zu", SIZE, FieldType.INT, "u"),
        ("%jd", LONG, FieldType.INT, "d"),
        ("%td", LONG, FieldType.INT, "d"),
        ("%x", UINT, FieldType.INT, "x"),
        ("%#x", UINT, FieldType.INT, "#x"),
        ("%#018llX", SIZE, FieldType.INT, "#X"),
        ("0x%02x", UINT, FieldType.INT, "#x"),
        ("%o", UINT, FieldType.INT, "o"),
        ("%d", BOOL, FieldType.BOOL, "d"),
        ("%c", INT, FieldType.CHAR, "c"),
        ("%c", CHAR, FieldType.CHAR, "c"),
        ("%f", DOUBLE, FieldType.FLOAT, "f"),
        ("%8.3f", FLOAT, FieldType.FLOAT, ".3f"),
        ("%.0e", DOUBLE, FieldType.FLOAT, ".0e"),
        ("%G", DOUBLE, FieldType.FLOAT, "G"),
        ("%a", DOUBLE, FieldType.FLOAT, "a"),
        ("%s", CHARS, FieldType.STRING, "s"),
        ("%-10.5s", CHARS, FieldType.STRING, "s"),
        ("%p", CHARS, FieldType.POINTER, "p"),
        ("%p", POINTER, FieldType.POINTER, "p"),
        ("0x%p", POINTER, FieldType.POINTER, "p"),
        ("%ls", POINTER, FieldType.POINTER, "p"),
        ("%n", POINTER, FieldType.POINTER, "p"),
    ],
)
def test_type_and_conversion_of_a_field(
    text: str, ctype: CType, type_: FieldType, conversion: str
) -> None:
    field = field_of(text, ctype)

    assert (field.type, field.conversion, field.ctype, field.arg) == (type_, conversion, ctype, 0)


def test_bounded_string_takes_two_arguments_and_is_one_field() -> None:
    fields = parse_format("key %.*s size %zu", (INT, CHARS, SIZE))

    assert [(f.name, f.type, f.arg, f.ctype) for f in fields] == [
        ("key", FieldType.BYTES, 1, CHARS),
        ("size", FieldType.INT, 2, SIZE),
    ]


@pytest.mark.parametrize("ctype", [POINTER, CHARS])
def test_raw_bytes_take_two_arguments_and_are_one_field(ctype: CType) -> None:
    fields = parse_format("body %*phand size %zu", (INT, ctype, SIZE))

    assert [(f.name, f.type, f.arg, f.conversion, f.limit) for f in fields] == [
        ("body", FieldType.BYTES, 1, "ph", None),
        ("size", FieldType.INT, 2, "u", None),
    ]


@pytest.mark.parametrize(
    ("text", "types"),
    [
        ("%ph", (POINTER,)),  # no length
        ("%-*ph", (INT, POINTER)),
        ("%*.*ph", (INT, INT, POINTER)),
        ("%8ph", (POINTER,)),
        ("%*p h", (INT, POINTER)),
        ("%*lph", (INT, POINTER)),
    ],
)
def test_what_only_looks_like_raw_bytes_is_a_pointer(text: str, types: tuple[CType, ...]) -> None:
    field = field_of(text, *types)

    assert (field.type, field.conversion) == (FieldType.POINTER, "p")


def test_star_width_and_precision_are_no_fields() -> None:
    fields = parse_format("n %*d f %*.*f s %*.*s", (INT, LONG, INT, INT, DOUBLE, INT, INT, CHARS))

    assert [(f.name, f.arg, f.conversion) for f in fields] == [
        ("n", 1, "d"),
        ("f", 4, "f"),
        ("s", 7, "s"),
    ]


@pytest.mark.parametrize(
    ("text", "types"),
    [
        ("%d", ()),
        ("", (INT,)),
        ("%d", (INT, INT)),
        ("%d %d", (INT,)),
        ("%*d", (INT,)),
        ("%*d", (DOUBLE, INT)),
        ("%.*s", (CHARS, CHARS)),
        ("%*ph", (POINTER,)),
        ("%*ph", (POINTER, POINTER)),
        ("%*ph", (INT, INT)),
        ("%*ph", (INT, DOUBLE)),
        ("%s", (INT,)),
        ("%s", (POINTER,)),
        ("%d", (DOUBLE,)),
        ("%d", (CHARS,)),
        ("%f", (INT,)),
        ("%p", (INT,)),
        ("%c", (CHARS,)),
        ("%y", (INT,)),
        ("%", (INT,)),
        ("%5", (INT,)),
        ("%.", (INT,)),
        ("100% ", ()),
        ("%1$d", (INT,)),
        ("%2$s %1$d", (INT, CHARS)),
    ],
)
def test_format_that_does_not_fit_its_arguments_is_refused(
    text: str, types: tuple[CType, ...]
) -> None:
    with pytest.raises(BadNote):
        parse_format(text, types)


TYPES = st.sampled_from([INT, LONG, CHAR, UINT, SIZE, DOUBLE, FLOAT, POINTER, CHARS, BOOL])


@given(
    st.text(st.sampled_from("%dsxfphc.*-+#0 lhzab$1é\\\n")),
    st.lists(TYPES, max_size=12).map(tuple),
)
def test_any_format_parses_or_is_refused(text: str, types: tuple[CType, ...]) -> None:
    try:
        fields = parse_format(text, types)
    except BadNote:
        return

    assert len({field.name for field in fields}) == len(fields)
    assert all(field.name.isidentifier() and 0 <= field.arg < len(types) for field in fields)


def printf(conversion: str, value: object) -> str:
    buffer = ctypes.create_string_buffer(500)
    ctypes.CDLL(None).snprintf(buffer, 500, conversion.encode(), value)
    return buffer.value.decode()


@pytest.mark.parametrize("conversion", ["d", "u", "x", "X", "#x", "#X", "o", "#o"])
@pytest.mark.parametrize("value", [0, 1, 8, 255, -1, -128, 1 << 40, (1 << 63) - 1, -(1 << 63)])
def test_integers_are_shown_as_printf_does(conversion: str, value: int) -> None:
    flags, letter = conversion[:-1], conversion[-1]
    field = field_of(f"%{flags}l{letter}", LONG)

    assert show(field, value) == printf(f"%{flags}l{letter}", ctypes.c_long(value))


@pytest.mark.parametrize("conversion", ["f", ".2f", "g", ".0e", "E", ".10G", "F"])
@pytest.mark.parametrize("value", [0.0, 1.5, -2.25, 1e300, 1e-9, math.inf, -math.inf])
def test_floats_are_shown_as_printf_does(conversion: str, value: float) -> None:
    field = field_of(f"%{conversion}", DOUBLE)

    assert show(field, value) == printf(f"%{conversion}", ctypes.c_double(value))


def test_hexadecimal_float_is_exact() -> None:
    assert float.fromhex(show(field_of("%a", DOUBLE), 0.1)) == 0.1


def test_negative_int_shows_the_bits_of_its_own_size() -> None:
    assert show(field_of("%x", INT), -1) == "ffffffff"
    assert show(field_of("%hhx", CHAR), -1) == "ff"


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ("plain", '"plain"'),
        ("", '""'),
        ('say "hi" \\', r'"say \"hi\" \\"'),
        ("it's", '"it\'s"'),
        ("a\nb\tc\r\0\x1b1", r'"a\nb\tc\r\000\0331"'),
        ("größe €", '"größe €"'),
        ("\x85\u2028", r'"\205\u2028"'),
        ("bad \udcff", r'"bad \377"'),
    ],
)
def test_strings_are_quoted_as_in_c(value: str, shown: str) -> None:
    assert show(field_of("%s", CHARS), value) == shown


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (b"key:1", '"key:1"'),
        ("größe\n".encode(), r'"größe\n"'),
        (b"", '""'),
        (b"\xff\xfe", "<ff fe>"),
        (b"a\0b", "<61 00 62>"),
    ],
)
def test_bytes_are_text_where_they_are_printable(value: bytes, shown: str) -> None:
    assert show(field_of("%.*s", INT, CHARS), value) == shown


@pytest.mark.parametrize(
    ("value", "shown"),
    [(b"\0\x1f\xff", "00 1f ff"), (b"abc", "61 62 63"), (b"", ""), (None, "(null)")],
)
def test_raw_bytes_are_shown_as_the_kernel_does(value: bytes | None, shown: str) -> None:
    assert show(field_of("%*ph", INT, POINTER), value) == shown


@pytest.mark.parametrize(
    ("text", "ctype", "value", "shown"),
    [
        ("%d", BOOL, True, "true"),
        ("%d", BOOL, 0, "false"),
        ("%p", POINTER, 0x7FFF1234, "0x7fff1234"),
        ("%p", POINTER, 0, "0x0"),
        ("%c", INT, ord("a"), "'a'"),
        ("%c", CHAR, ord("'"), r"'\''"),
        ("%c", CHAR, 10, r"'\n'"),
        ("%c", CHAR, -1, r"'\377'"),
        ("%c", INT, 0, r"'\000'"),
        ("%c", INT, "x", "'x'"),
        ("%f", DOUBLE, 1, "1.000000"),
        ("%s", CHARS, None, "(null)"),
    ],
)
def test_other_values_are_shown_by_type(
    text: str, ctype: CType, value: int | bool | str | None, shown: str
) -> None:
    assert show(field_of(text, ctype), value) == shown


@given(st.one_of(st.text(), st.binary()))
def test_any_string_is_shown_on_one_printable_line(value: str | bytes) -> None:
    shown = show(field_of("%s", CHARS), value)

    assert shown.isprintable()
    shown.encode()
