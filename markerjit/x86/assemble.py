"""Assembling with keystone, whose output is not trusted: every instruction is decoded again.

Source is in the syntax in which capstone writes instructions, so that what was meant and what was
made can be compared as text. keystone 0.9.2 silently makes wrong code of some forms, such as `sub
reg, fs:[disp]`. Code that capstone does not read as it was meant is refused.

    "start:"                         a label, for jumps and for the caller that asks for its address
    "# the clock"                    a heading: the name of the part that begins here
    "ja full"                        a jump to a label, or to an address by name
    "lea rax, [rip + heads]"         an operand at an address by name

Importing this takes some 50 ms, so it is imported where something is assembled.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from functools import cache
from itertools import accumulate

import keystone

from markerjit.errors import MarkerError
from markerjit.tuples import NamedTuple
from markerjit.x86.decode import plain_decoder, sizes

_RELATIVE = re.compile(r"\[rip \+ ([A-Za-z_]\w*)\]")
_HEADING = "# "
_SOMEWHERE = 0x11111111
"""A displacement of four bytes, until the right one is put in its place."""
_SOMEWHERE_BYTES = _SOMEWHERE.to_bytes(4, "little")
_DISPLACEMENT = 4
_HERE, _FAR = 1 << 40, (1 << 40) + (1 << 24)
"""Stand-in addresses for position-independent code, and for its targets, which are out of reach of
a displacement of one byte. Both are far from every offset in a segment, which keystone would
otherwise make relative to rip."""


class Part(NamedTuple):
    """Code from `start` up to `end`, with a name for people."""

    name: str
    start: int
    end: int


class Assembled(NamedTuple):
    """Machine code, the addresses of its labels, and its parts: each byte behind the first heading
    belongs to one of them. A heading without an instruction makes none."""

    code: bytes
    labels: dict[str, int]
    parts: tuple[Part, ...] = ()


class Reference(NamedTuple):
    """A displacement of four bytes in code: where it is, where its instruction ends, and the name
    of what it leads to."""

    at: int
    end: int
    name: str


class Movable(NamedTuple):
    """Code for any address: the offsets of its labels and parts, and what has to be put into it."""

    code: bytes
    labels: dict[str, int]
    parts: tuple[Part, ...]
    references: tuple[Reference, ...]


class WronglyAssembled(MarkerError):
    """keystone's code is not what was asked for."""


@cache
def _keystone() -> keystone.Ks:
    return keystone.Ks(keystone.KS_ARCH_X86, keystone.KS_MODE_64)


class _Placed(NamedTuple):
    """The line of an instruction, and where that ends; the name that it has relative to rip, "" for
    none, and where in the code the four bytes of the displacement are."""

    line: str
    end: int
    name: str
    displacement: int


def assemble(source: Sequence[str], address: int, names: Mapping[str, int]) -> Assembled:
    """The code of these lines at an address, checked.

    `names` are addresses that lines may refer to; labels have other names. Raises WronglyAssembled.
    """
    return _placed(source, address, names)[0]


def _placed(
    source: Sequence[str], address: int, names: Mapping[str, int]
) -> tuple[Assembled, list[_Placed]]:
    """The code as `assemble` makes it, and where its instructions are."""
    source, headings = _without_headings(source)
    lines = [line for line in source if not line.endswith(":")]
    labels = dict(names)
    code = bytearray(_make(source, address, labels))
    lengths = [size for size, _ in sizes(bytes(code))]
    if len(lengths) != len(lines) or sum(lengths) != len(code):
        raise WronglyAssembled(f"{len(lines)} instructions became {len(lengths)}")
    ends = list(accumulate(lengths, initial=address))
    placed = [
        _place(line, end, code[start - address : end - address], start - address)
        for line, start, end in zip(lines, ends[:-1], ends[1:], strict=True)
    ]
    labels.update(_labels(source, ends))
    for each in placed:
        if each.name:
            at = each.displacement
            code[at : at + _DISPLACEMENT] = _displacement(each, labels)
    encoded = bytes(code)
    _check(placed, encoded, address, labels)
    return Assembled(encoded, labels, _parts(headings, ends)), placed


def _place(line: str, end: int, code: bytearray, start: int) -> _Placed:
    """The place of a line of which this is the code, from `start` on. Raises WronglyAssembled where
    that does not have the displacement once."""
    relative = _RELATIVE.search(line)
    if not relative:
        return _Placed(line, end, "", 0)
    if code.count(_SOMEWHERE_BYTES) != 1:
        raise WronglyAssembled(f"`{line}` became {code.hex(' ')}")
    return _Placed(line, end, relative[1], start + code.index(_SOMEWHERE_BYTES))


def assemble_anywhere(source: Sequence[str], names: Collection[str]) -> Movable:
    """The code of these lines for any address that is within reach of all names, wherever they are.

    Raises WronglyAssembled.
    """
    made, placed = _placed(source, _HERE, dict.fromkeys(names, _FAR))
    references = []
    for each in placed:
        name = each.name or each.line.partition(" ")[2]
        if name in names:
            end = each.end - _HERE
            at = each.displacement if each.name else end - _DISPLACEMENT
            references.append(Reference(at, end, name))
    labels = {name: at - _HERE for name, at in made.labels.items() if name not in names}
    return Movable(made.code, labels, _offsets(made.parts), tuple(references))


def _offsets(parts: Sequence[Part]) -> tuple[Part, ...]:
    return tuple(Part(name, start - _HERE, end - _HERE) for name, start, end in parts)


def displacement(reference: Reference, address: int, names: Mapping[str, int]) -> bytes:
    """The bytes of a reference in code that is at an address. Raises WronglyAssembled where it does
    not reach as far."""
    distance = names[reference.name] - address - reference.end
    if not -(1 << 31) <= distance < 1 << 31:
        raise WronglyAssembled(f"{reference.name} is out of reach, {distance:#x} away")
    return distance.to_bytes(_DISPLACEMENT, "little", signed=True)


def heading(name: str) -> str:
    """The line with which a part of this name begins."""
    return f"{_HEADING}{name}"


def _without_headings(source: Sequence[str]) -> tuple[list[str], list[tuple[str, int]]]:
    """The other lines, and the name of each part with the number of its first instruction."""
    others: list[str] = []
    headings = []
    count = 0
    for line in source:
        if line.startswith(_HEADING):
            headings.append((line[len(_HEADING) :], count))
            continue
        others.append(line)
        count += not line.endswith(":")
    return others, headings


def _parts(headings: Sequence[tuple[str, int]], places: Sequence[int]) -> tuple[Part, ...]:
    """The parts of code whose instructions are at these places; the last of them is the end."""
    starts = [places[index] for _, index in headings] + [places[-1]]
    parts = zip((name for name, _ in headings), starts, starts[1:], strict=False)
    return tuple(Part(*part) for part in parts if part[1] < part[2])


def _make(source: Sequence[str], address: int, names: Mapping[str, int]) -> bytes:
    lines = [_for_keystone(line, names) for line in source]
    try:
        encoded, _ = _keystone().asm("\n".join(lines), address, as_bytes=True)
    except keystone.KsError as error:
        raise WronglyAssembled(f"keystone: {error}") from None
    return bytes(encoded or b"")


def _displacement(placed: _Placed, labels: Mapping[str, int]) -> bytes:
    if placed.name not in labels:
        raise WronglyAssembled(f"`{placed.line}`: nothing is called {placed.name}")
    distance = labels[placed.name] - placed.end
    if not -(1 << 31) <= distance < 1 << 31:
        raise WronglyAssembled(
            f"`{placed.line}`: {placed.name} is out of reach, {distance:#x} away"
        )
    return distance.to_bytes(_DISPLACEMENT, "little", signed=True)


def _for_keystone(line: str, names: Mapping[str, int]) -> str:
    if line == "endbr64":
        return ".byte 0xf3, 0x0f, 0x1e, 0xfa"  # keystone is older than it
    line = _RELATIVE.sub(f"[rip + {_SOMEWHERE:#x}]", line)
    mnemonic, _, target = line.partition(" ")
    if mnemonic[0] in "jc" and target in names:
        return f"{mnemonic} {names[target]:#x}"
    return line


def _labels(source: Sequence[str], places: Sequence[int]) -> dict[str, int]:
    """The address of each label: that of the next instruction, or the end."""
    labels: dict[str, int] = {}
    index = 0
    for line in source:
        if line.endswith(":"):
            labels[line[:-1]] = places[index]
        else:
            index += 1
    return labels


def _check(placed: Sequence[_Placed], code: bytes, address: int, labels: Mapping[str, int]) -> None:
    instructions = list(plain_decoder().disasm_lite(code, address))
    if len(instructions) != len(placed):
        raise WronglyAssembled(f"{len(placed)} instructions became {len(instructions)}")
    for each, (_, _, mnemonic, operands) in zip(placed, instructions, strict=True):
        expected = _expected(each, labels)
        decoded = f"{mnemonic} {operands}".strip()
        if decoded != expected:
            raise WronglyAssembled(
                f"`{each.line}` became `{decoded}` where it should be `{expected}`"
            )


def _expected(placed: _Placed, labels: Mapping[str, int]) -> str:
    """As capstone writes it: with displacements and addresses for names."""
    line = placed.line
    if placed.name:
        displacement = labels[placed.name] - placed.end
        sign = "-" if displacement < 0 else "+"
        address = f"[rip {sign} {number(abs(displacement))}]"
        return line.replace(f"[rip + {placed.name}]", address)
    mnemonic, _, target = line.partition(" ")
    if mnemonic[0] in "jc" and target in labels:
        return f"{mnemonic} {labels[target]:#x}"
    return line


def number(value: int) -> str:
    """As capstone writes it: small ones in decimal."""
    return str(value) if 0 <= value < 10 else f"{value:#x}"


def plus(offset: int) -> str:
    """An offset from a register, as capstone writes it also where there is none."""
    return f" + {number(offset)}" if offset else ""
