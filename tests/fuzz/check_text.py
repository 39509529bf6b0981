"""Checks of what reads text: /proc/PID/maps, and formats.

An input of `maps` is the file's bytes; one of `format` is the number of arguments, a byte of type
for each, and the format.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence

from markerjit.elf import parse_format, show
from markerjit.elf.notes import MAX_ARGS
from markerjit.errors import BadMaps, BadNote
from markerjit.memory import Mapping, parse_maps
from markerjit.model import CType, Field, FieldType, TypeClass, Value
from tests.fuzz.edits import Place
from tests.fuzz.harness import ACCEPTED, LINE, Harness, Seed

_MOST_DIGITS = 4300
"""Python refuses to read a decimal number that is longer; the kernel writes twenty at the most."""
TYPES = (
    *(CType(TypeClass.SIGNED, size) for size in (1, 2, 4, 8)),
    *(CType(TypeClass.UNSIGNED, size) for size in (1, 2, 4, 8)),
    CType(TypeClass.FLOAT, 4),
    CType(TypeClass.FLOAT, 8),
    CType(TypeClass.POINTER, 8),
    CType(TypeClass.CHARS, 8),
    CType(TypeClass.BOOL, 1),
)  # fmt: skip
"""Every type that a note may have."""

_I32, _U64, _F64, _P, _S = TYPES[2], TYPES[7], TYPES[9], TYPES[10], TYPES[11]
FORMATS: tuple[tuple[str, tuple[CType, ...]], ...] = (
    ("", ()),
    ("i %d evaluated %lu", (_I32, _U64)),
    ("name %.*s args %d client %d", (_I32, _S, _I32, _I32)),
    ("key %s took %.3f at %p", (_S, _F64, _P)),
    ("%5.1e%-8G%a 0x%x %#o %c", (_F64, _F64, _F64, _I32, _I32, _I32)),
    ("%.8s 100%% %m %n %ls", (_S, _P, _P)),
    ("%*.*f %hhd", (_I32, _I32, _F64, TYPES[0])),
    ("on %d off %u", (TYPES[12], TYPES[12])),
    ("body %*ph of %*ph %hd", (_I32, _P, _I32, _S, TYPES[1])),
    (" ".join(["%d"] * MAX_ARGS), (_I32,) * MAX_ARGS),
)


# ---- /proc/PID/maps ------------------------------------------------------------------------------


def check_maps(data: bytes) -> str:
    """parse_maps raises BadMaps for exactly the texts in which a line is not as proc(5) says."""
    text = os.fsdecode(data)
    lines = [line for line in text.split("\n") if line]
    try:
        mappings = parse_maps(text)
    except BadMaps as error:
        assert error.line in lines
        assert not all(map(_as_the_kernel_writes, lines)), "a good line was refused"
        return "BadMaps"
    assert len(mappings) == len(lines)
    for mapping, line in zip(mappings, lines, strict=True):
        assert _as_the_kernel_writes(line), "a bad line was taken"
        _check_mapping(mapping, line)
    return ACCEPTED


def _as_the_kernel_writes(line: str) -> bool:
    """Told letter by letter, and not as the parser does it."""
    words = line.split(" ", 5)
    if len(words) < 5:
        return False
    span, permissions, offset, device, inode = words[:5]
    start, dash, end = span.partition("-")
    major, colon, minor = device.partition(":")
    return (
        all(map(_is_hex, (start, end, offset, major, minor)))
        and bool(dash and colon)
        and 0 < len(inode) == sum(letter in "0123456789" for letter in inode) <= _MOST_DIGITS
        and len(permissions) == 4
        and all(letter in pair for letter, pair in zip(permissions, _PERMISSIONS, strict=True))
        and int(start, 16) < int(end, 16)
    )


_PERMISSIONS = ("r-", "w-", "x-", "sp")


def _is_hex(digits: str) -> bool:
    return bool(digits) and all(letter in "0123456789abcdef" for letter in digits)


def _check_mapping(mapping: Mapping, line: str) -> None:
    letters = (mapping.readable, mapping.writable, mapping.executable, mapping.shared)
    shown = "".join(pair[0 if on else 1] for on, pair in zip(letters, _PERMISSIONS, strict=True))
    span, permissions, offset, device, inode = line.split(" ", 5)[:5]
    assert [int(end, 16) for end in span.split("-")] == [mapping.start, mapping.end]
    assert (permissions, device) == (shown, mapping.device)
    assert (int(offset, 16), int(inode)) == (mapping.offset, mapping.inode)


def _map_seeds() -> list[Seed]:
    with open("/proc/self/maps", "rb") as file:
        own = file.read().splitlines(keepends=True)
    odd = (
        b"7f0000000000-7f0000001000 rw-s 00000000 00:01 9  /memfd:markerjit (deleted)\n"
        b"ffffffffff600000-ffffffffff601000 --xp 00000000 00:00 0  [vsyscall]\n"
        b"1000-2000 r--p 00001000 fe:01 18446744073709551615\n"
        b"1000-2000 ---p 00000000 00:00 0 /a\\012b \xff\n"
    )
    texts = (odd, b"".join(own[:4]), b"".join(own[-4:]))
    return [Seed(text, _words(text)) for text in texts]


def _words(text: bytes) -> list[Place]:
    """The numbers of all lines, so that one comes in another's place."""
    return [Place(match.start(), len(match[0])) for match in re.finditer(rb"[0-9a-f]{2,}", text)]


# ---- formats -------------------------------------------------------------------------------------


def check_format(data: bytes) -> str:
    """parse_format raises BadNote, and what it makes of a format can show any value."""
    count = data[0] % (MAX_ARGS + 1) if data else 0
    args = tuple(TYPES[code % len(TYPES)] for code in data[1 : 1 + count])
    format_ = data[1 + count :].decode(errors="backslashreplace")
    try:
        fields = parse_format(format_, args)
    except BadNote as error:
        assert str(error).isprintable()
        assert len(str(error)) < LINE, "a line that nobody can read"
        return "BadNote"
    check_fields(fields, args)
    for field in fields:
        for value in _VALUES[field.type]:
            check_shown(field, value)
    return ACCEPTED


def check_fields(fields: Sequence[Field], args: Sequence[CType]) -> None:
    names = [field.name for field in fields]
    numbers = [field.arg for field in fields]
    assert len(set(names)) == len(names)
    assert all(name.isidentifier() for name in names)
    assert numbers == sorted(set(numbers))
    assert all(0 <= field.arg < len(args) and field.ctype == args[field.arg] for field in fields)
    assert all(field.limit is None or field.limit >= 0 for field in fields)


def check_shown(field: Field, value: Value) -> None:
    """One line, and not much longer than the value itself."""
    shown = show(field, value)
    assert shown.isprintable()
    size = len(value) if isinstance(value, str | bytes) else 0
    assert len(shown) <= LINE + 12 * size


_INTEGERS: tuple[Value, ...] = (0, 1, -1, 255, -(1 << 63), (1 << 64) - 1)
_VALUES: dict[FieldType, tuple[Value, ...]] = {
    FieldType.INT: _INTEGERS,
    FieldType.FLOAT: (0.0, -1.5, 1e308, 5e-324, float("inf"), float("nan")),
    FieldType.BOOL: (False, True),
    FieldType.CHAR: ("\0", "a", "\xff", "'"),
    FieldType.POINTER: (0, (1 << 64) - 1),
    FieldType.STRING: (None, "", 'a"\\\n\u2028', "x" * 300),
    FieldType.BYTES: (None, b"", b"\xff\0", b"a\nb", "text"),
}


def _format_seeds() -> list[Seed]:
    return [Seed(encoded(format_, args)) for format_, args in FORMATS]


def encoded(format_: str, args: Sequence[CType]) -> bytes:
    """A format and its types as an input."""
    return bytes([len(args), *map(TYPES.index, args)]) + format_.encode()


HARNESSES = (
    Harness("maps", _map_seeds, check_maps),
    Harness("format", _format_seeds, check_format),
)
