"""A marker's printf format: the names and types of its fields, and showing their values.

    "key %s len %zu"  →  key: STRING, len: INT
    "%d of 0x%x"      →  arg1: INT, of: INT, shown as "#x"
    "body %.*s"       →  body: BYTES, of two arguments
    "stack %pB"       →  stack: STACK, of the number of a stack, which no marker has but a recorder
                         writes; as in printk
    "body %*ph"       →  body: BYTES, of two arguments, raw, as in printk. To printf it is a
                         pointer with a width and an h, so compilers accept it

The compiler has checked the format against the arguments, so a conflict here means a damaged note.
Positional arguments (`%2$d`) are the exception: they compile, and are refused here.

Authority: printf(3); ISO C 7.21.6.1; Documentation/core-api/printk-formats.rst, "Raw buffer as a
hex string".
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache

from markerjit.errors import BadNote
from markerjit.model import CType, Field, FieldType, TypeClass, Value
from markerjit.tuples import NamedTuple

_INTEGERS = (TypeClass.SIGNED, TypeClass.UNSIGNED, TypeClass.BOOL)
_POINTERS = (TypeClass.POINTER, TypeClass.CHARS)
_RAW = "ph"
"""The conversion of bytes that are not text: %*ph."""
# `%n` takes a pointer, stores nothing here, and is shown as one.
_ACCEPTS = {
    **dict.fromkeys("diuxXobBcC", _INTEGERS),
    **dict.fromkeys("eEfFgGaA", (TypeClass.FLOAT,)),
    **dict.fromkeys(("p", "n", "S", _RAW), _POINTERS),
    "s": (TypeClass.CHARS,),
}
_STACK = CType(TypeClass.UNSIGNED, 8)
"""The C type of the argument of %pB. No other %p has it."""
_MAX_PRECISION = (1 << 31) - 1  # printf takes an int
_MAX_PLACES = 1074  # after the point; no double has more
_SHOWN_OF_FORMAT = 60
_SEPARATORS = {code: " " for code in range(128) if not (chr(code).isalnum() or code == ord("_"))}
_ESCAPES = {"\n": "\\n", "\t": "\\t", "\r": "\\r", "\\": "\\\\"}


class _Conversion(NamedTuple):
    """A conversion of a format; `literal` is the text between the previous one and this one."""

    literal: str
    flags: str
    width: str
    precision: str | None
    letter: str
    text: str


_MOST_KEPT = 4096
"""Sites of one marker share format and types; this bounds what a hostile image makes us keep."""
_parsed_before: dict[tuple[str, tuple[CType, ...]], tuple[Field, ...]] = {}
"""Of formats, until they are asked for."""


def tell_fields(format_: str, args: tuple[CType, ...], fields: tuple[Field, ...]) -> None:
    """Say what `parse_format` has once made of this: it need not parse that again."""
    if len(_parsed_before) < _MOST_KEPT:
        _parsed_before[format_, args] = fields


@lru_cache(_MOST_KEPT)
def parse_format(format_: str, args: tuple[CType, ...]) -> tuple[Field, ...]:
    """The fields of a format with arguments of these types.

    A field is named after the word before its conversion, or `arg` and its number, from 1. A
    repeated name gets `_2`, `_3` … A width or a precision taken from an argument is not a field.
    Raises BadNote where the format does not fit the arguments.
    """
    fields_before = _parsed_before.pop((format_, args), None)
    if fields_before is not None:
        return fields_before
    fields: list[Field] = []
    names: set[str] = set()
    next_arg = 0
    for conversion in _scan(format_):
        for star in (conversion.width, conversion.precision):
            if star == "*":
                _check_integer(_argument(format_, args, next_arg), format_)
                next_arg += 1
        ctype = _argument(format_, args, next_arg)
        name = _unique(_last_word(conversion.literal) or f"arg{len(fields) + 1}", names)
        type_ = _field_type(conversion, ctype)
        shown, limit = _shown_as(conversion, type_), _limit(conversion, type_)
        fields.append(Field(name, type_, ctype, next_arg, shown, limit))
        next_arg += 1
    if next_arg != len(args):
        raise BadNote(f"has {len(args)} arguments; its format {_cut(format_)} takes {next_arg}")
    return tuple(fields)


def show(field: Field, value: Value) -> str:
    """A decoded value as text, formatted as its conversion says but without the width.

    Strings are quoted, with the escapes of C. Bytes that are not printable text are shown in
    hexadecimal, between angle brackets. Raw bytes are shown as the kernel shows them, `00 1f ff`.
    """
    if field.type is FieldType.STACK and isinstance(value, str):
        return _show_stack(value)
    match value:
        case None:
            return "(null)"
        case bytes():
            return value.hex(" ") if field.conversion == _RAW else _show_bytes(value)
        case str():
            return _quote(value, "'" if field.type is FieldType.CHAR else '"')
        case float():
            return value.hex() if field.conversion[-1] in "aA" else format(value, field.conversion)
    match field.type:
        case FieldType.BOOL:
            return "true" if value else "false"
        case FieldType.POINTER:
            return f"{value:#x}"
        case FieldType.CHAR:
            return _show_char(value & 0xFF)
        case FieldType.FLOAT:
            return format(float(value), field.conversion)
        case _:
            return _show_int(field, value)


def _scan(format_: str) -> Iterator[_Conversion]:
    """The conversions that take an argument: all but %% and %m."""
    after_last, at = 0, format_.find("%")
    while at >= 0:
        start = at
        flags, at = _take(format_, at + 1, "-+ #0'I")
        width, at = _take(format_, at, "*0123456789")
        precision = None
        if format_.startswith(".", at):
            precision, at = _take(format_, at + 1, "*-0123456789")
        length, at = _take(format_, at, "hlqLjzZt")
        letter, at = format_[at : at + 1], at + 1
        if letter == "s" and "l" in length:
            letter = "S"  # %ls and %S are the same: wide characters, not decoded
        if format_.startswith("%*ph", start):
            letter, at = _RAW, start + len("%*ph")
        if letter not in ("%", "m"):
            literal = format_[after_last:start]
            if letter in "xXp" and _ends_with_0x(literal):
                literal, flags = literal[:-2], f"#{flags}"
            yield _Conversion(literal, flags, width, precision, letter, format_[start:at])
        if letter != "%":
            after_last = at
        at = format_.find("%", at)


def _take(text: str, start: int, letters: str) -> tuple[str, int]:
    """The run of these letters at `start`, and where it ends."""
    end = start
    while end < len(text) and text[end] in letters:
        end += 1
    return text[start:end], end


def _argument(format_: str, args: Sequence[CType], index: int) -> CType:
    if index >= len(args):
        raise BadNote(f"has {len(args)} arguments; its format {_cut(format_)} takes more")
    return args[index]


def _check_integer(ctype: CType, format_: str) -> None:
    if ctype.type_class not in _INTEGERS:
        raise BadNote(f"has a width or precision of type {ctype} in its format {_cut(format_)}")


def _field_type(conversion: _Conversion, ctype: CType) -> FieldType:
    accepted = ctype.type_class in _ACCEPTS.get(conversion.letter, ())
    if not accepted and not (conversion.letter == "p" and ctype == _STACK):
        raise BadNote(f"has an argument of type {ctype} for {_cut(conversion.text)}")
    match conversion.letter:
        case "p" if ctype == _STACK:
            return FieldType.STACK
        case "p" | "n" | "S":
            return FieldType.POINTER
        case "ph":
            return FieldType.BYTES
        case "s":
            return FieldType.BYTES if conversion.precision == "*" else FieldType.STRING
        case "c" | "C":
            return FieldType.CHAR
        case _ if ctype.type_class is TypeClass.BOOL:
            return FieldType.BOOL
        case _:
            return FieldType.FLOAT if ctype.type_class is TypeClass.FLOAT else FieldType.INT


def _shown_as(conversion: _Conversion, type_: FieldType) -> str:
    """The conversion without width and length; with `#`, and for floats the precision."""
    letter = conversion.letter
    match type_:
        case FieldType.POINTER:
            return "p"
        case FieldType.STACK:
            return "pB"
        case FieldType.CHAR:
            return "c"
        case FieldType.FLOAT if (precision := _precision(conversion)) is not None:
            return f".{min(precision, _MAX_PLACES)}{letter}"
        case FieldType.INT if letter in "xXobB" and "#" in conversion.flags:
            return f"#{letter}"
        case _:
            return "d" if letter == "i" else letter


def _limit(conversion: _Conversion, type_: FieldType) -> int | None:
    """A precision in the format itself bounds a string, which then needs no NUL."""
    return _precision(conversion) if type_ is FieldType.STRING else None


def _precision(conversion: _Conversion) -> int | None:
    """The precision where it is a number. A point alone means 0; a negative number means none."""
    digits = conversion.precision
    if digits == "":
        return 0
    if digits is None or not digits.isdecimal():
        return None
    # The length is checked first: Python refuses to convert thousands of digits.
    digits = digits.lstrip("0") or "0"
    if len(digits) > 10 or int(digits) > _MAX_PRECISION:
        raise BadNote(f"has a precision that is too large in {_cut(conversion.text)}")
    return int(digits)


def _cut(text: str) -> str:
    """A part of a format, for a message: an image may claim 64 KiB of it."""
    return repr(text if len(text) <= _SHOWN_OF_FORMAT else text[:_SHOWN_OF_FORMAT] + "…")


def _ends_with_0x(literal: str) -> bool:
    """Whether the text ends with "0x", which then belongs to the number and not to a name."""
    before = literal[-3:-2]
    return literal.endswith(("0x", "0X")) and not (before.isalnum() or before == "_")


def _last_word(literal: str) -> str:
    words = literal.translate(_SEPARATORS).split()
    return next((word for word in reversed(words) if word.isidentifier()), "")


def _unique(name: str, taken: set[str]) -> str:
    """`name`, with the first number that makes it unique where it is taken. Adds it to `taken`."""
    unique, number = name, 1
    while unique in taken:
        number += 1
        unique = f"{name}_{number}"
    taken.add(unique)
    return unique


def _show_int(field: Field, value: int) -> str:
    letter = field.conversion[-1]
    if letter == "d":
        return str(value)
    value &= (1 << field.ctype.size * 8) - 1  # as printf does: the bits, without a sign
    if letter == "u":
        return str(value)
    if field.conversion == "#o":
        return f"0{value:o}" if value else "0"
    if field.conversion[0] == "#" and not value:
        return "0"
    return format(value, field.conversion.replace("B", "b"))


def _show_stack(text: str) -> str:
    """The names of its functions, the innermost first."""
    from markerjit.elf.demangle import demangled
    from markerjit.frames import StackText, shown

    stack = StackText(text)
    if not stack.frames:
        return _quote(text, '"')
    return _quote(shown([demangled(frame.label) for frame in stack.frames], stack.end), '"')


def _show_char(code: int) -> str:
    """A byte as a character constant. Above ASCII its encoding is unknown, so it is escaped."""
    return _quote(chr(code), "'") if code < 0x80 else f"'\\{code:03o}'"


def _show_bytes(value: bytes) -> str:
    try:
        text = value.decode()
    except UnicodeDecodeError:
        return f"<{value.hex(' ')}>"
    if all(char.isprintable() or char in _ESCAPES for char in text):
        return _quote(text, '"')
    return f"<{value.hex(' ')}>"


def _quote(text: str, mark: str) -> str:
    return mark + "".join(_escape(char, mark) for char in text) + mark


def _escape(char: str, mark: str) -> str:
    """The character as C source escapes it: octal, because C's hexadecimal has no fixed length."""
    if char == mark:
        return f"\\{mark}"
    if char in _ESCAPES:
        return _ESCAPES[char]
    if char.isprintable():
        return char
    code = ord(char)
    if 0xDC80 <= code <= 0xDCFF:  # a byte that was not UTF-8, from surrogateescape
        code -= 0xDC00
    if code < 0x100:
        return f"\\{code:03o}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
