"""Assembling with keystone, each instruction of it checked.

Instructions are encoded and decoded again one by one (encoding.py), each once, since a question has
most of its instructions from the one before. Here they get their places, and what leads to another
place its displacement. Then capstone has to read that as it was meant.

    "start:"                         a label, for jumps and for the caller that asks for its address
    "# the clock"                    a heading: the name of the part that begins here
    "ja full"                        a jump to a label, or to an address by name
    "lea rax, [rip + heads]"         an operand at an address by name
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import accumulate

from markerjit.tuples import NamedTuple
from markerjit.x86.encoding import FAR, HERE, WronglyAssembled, encoded
from markerjit.x86.forms import REACH
from markerjit.x86.listing import Listing

_RELATIVE = re.compile(r"\[rip \+ ([A-Za-z_]\w*)\]")
_CALL = "call"
_HEADING = "# "
_SOMEWHERE = 0x11111111
"""A displacement of four bytes, until the right one is put in its place."""
_SOMEWHERE_BYTES = _SOMEWHERE.to_bytes(4, "little")
_STAND_IN = f"[rip + {_SOMEWHERE:#x}]"
_DISPLACEMENT, _BYTE = 4, 1
_MOST = 1 << 13
_KNOWN: dict[tuple[str, bool], _Instruction] = {}
"""Instructions by their lines, and by whether they are jumps or calls to a name."""


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


class _Source(NamedTuple):
    """Lines taken apart: those of instructions, and by how many of these each label and each part
    is preceded."""

    lines: list[str]
    labels: dict[str, int]
    headings: list[tuple[str, int]]


class _Instruction(NamedTuple):
    """An instruction without a place.

    name   what it leads to, "" for nothing
    code   with a stand-in for a displacement of four bytes, which is `at` there
    short  of a jump, with a displacement of one byte at its end; b"" where that is not possible
    """

    line: str
    name: str
    code: bytes
    at: int
    short: bytes = b""


class _Laid(NamedTuple):
    """The code of instructions, in which displacements are to be put, where each begins and the
    last one ends, and the addresses of labels and names."""

    codes: list[bytes]
    places: list[int]
    labels: dict[str, int]


def assemble(source: Sequence[str], address: int, names: Mapping[str, int]) -> Assembled:
    """The code of these lines at an address, checked.

    `names` are addresses that lines may refer to; labels have other names. A jump or a call may
    also be to a number, such as 0x401000. Raises WronglyAssembled.
    """
    return _placed(source, address, {**names, **_numbers(source)})[0]


def assemble_anywhere(source: Sequence[str], names: Collection[str]) -> Movable:
    """The code of these lines for any address that is within reach of all names, wherever they are.

    Raises WronglyAssembled.
    """
    made, references = _placed(source, HERE, dict.fromkeys(names, FAR))
    outside = [each for each in references if each.name in names]
    labels = {name: at - HERE for name, at in made.labels.items() if name not in names}
    return Movable(made.code, labels, _offsets(made.parts), tuple(outside))


def _placed(
    source: Sequence[str], address: int, names: Mapping[str, int]
) -> tuple[Assembled, list[Reference]]:
    """The code as `assemble` makes it, and where it leads to labels and names."""
    taken = _taken_apart(source)
    instructions = _instructions(taken.lines, {*names, *taken.labels})
    laid = _laid_out(instructions, taken.labels, address, names)
    code = bytearray().join(laid.codes)
    references = []
    for each, start, end in zip(instructions, laid.places, laid.places[1:], strict=False):
        if each.name:
            if each.name not in laid.labels:
                raise WronglyAssembled(f"`{each.line}`: nothing is called {each.name}")
            is_short = end - start == len(each.short)
            size, at = (_BYTE, len(each.short) - _BYTE) if is_short else (_DISPLACEMENT, each.at)
            reference = Reference(start - address + at, end - address, each.name)
            code[reference.at : reference.at + size] = displacement(
                reference, address, laid.labels, size
            )
            references.append(reference)
    whole = bytes(code)
    _check(instructions, whole, address, laid)
    return Assembled(whole, laid.labels, _parts(taken.headings, laid.places)), references


def _numbers(source: Sequence[str]) -> dict[str, int]:
    """The numbers that jumps and calls are to, by their texts."""
    transfers = (line.partition(" ")[2] for line in source if line[0] in "jc")
    return {target: int(target, 16) for target in transfers if target.startswith("0x")}


def _taken_apart(source: Sequence[str]) -> _Source:
    lines: list[str] = []
    labels = {}
    headings = []
    for line in source:
        if line[-1] == ":":
            labels[line[:-1]] = len(lines)
        elif line.startswith(_HEADING):
            headings.append((line[len(_HEADING) :], len(lines)))
        else:
            lines.append(line)
    return _Source(lines, labels, headings)


def _instructions(lines: Sequence[str], names: Collection[str]) -> list[_Instruction]:
    """The instructions of these lines, with jumps and calls to names. Raises WronglyAssembled."""
    keys = [(line, line.partition(" ")[2] in names) for line in lines]
    known = [_KNOWN.get(key) for key in keys]
    new = [*dict.fromkeys(key for key, each in zip(keys, known, strict=True) if each is None)]
    made = dict(zip(new, _encoded(new), strict=True))
    if len(_KNOWN) + len(made) > _MOST:
        _KNOWN.clear()
    _KNOWN.update(made)
    return [each or made[key] for key, each in zip(keys, known, strict=True)]


def _encoded(keys: Sequence[tuple[str, bool]]) -> Iterator[_Instruction]:
    """The instructions of lines, each with whether it is a jump or a call to a name."""
    if not keys:
        return
    texts = dict.fromkeys(text for line, leads in keys for text in _texts(line, leads=leads))
    codes = dict(zip(texts, encoded([*texts]), strict=True))
    for line, leads in keys:
        code, *short = (codes[text] for text in _texts(line, leads=leads))
        relative = _RELATIVE.search(line)
        if leads:
            name = line.partition(" ")[2]
            yield _Instruction(line, name, code, len(code) - _DISPLACEMENT, b"".join(short))
        elif relative:
            if code.count(_SOMEWHERE_BYTES) != 1:
                raise WronglyAssembled(f"`{line}` became {code.hex(' ')}")
            yield _Instruction(line, relative[1], code, code.index(_SOMEWHERE_BYTES))
        else:
            yield _Instruction(line, "", code, 0)


def _texts(line: str, *, leads: bool) -> Sequence[str]:
    """A line for keystone, with a stand-in for a name. For a jump there are two: one that needs
    four bytes, and one that needs one."""
    mnemonic = line.partition(" ")[0]
    if not leads:
        return (_RELATIVE.sub(_STAND_IN, line),)
    far = f"{mnemonic} {FAR:#x}"
    return (far,) if mnemonic == _CALL else (far, f"{mnemonic} .")


def _laid_out(
    instructions: Sequence[_Instruction],
    labels: Mapping[str, int],
    address: int,
    names: Mapping[str, int],
) -> _Laid:
    """The code of each, one behind the other: a jump is short where its target is near enough."""
    codes = [each.short or each.code for each in instructions]
    short = {at: each for at, each in enumerate(instructions) if each.short}
    while True:
        places = list(accumulate(map(len, codes), initial=address))
        targets = {**names, **{name: places[index] for name, index in labels.items()}}
        far = [
            at for at, each in short.items() if not _is_near(targets[each.name] - places[at + 1])
        ]
        if not far:
            return _Laid(codes, places, targets)
        for at in far:
            codes[at] = short.pop(at).code


def _is_near(distance: int) -> bool:
    return -128 <= distance < 128


def _offsets(parts: Sequence[Part]) -> tuple[Part, ...]:
    return tuple(Part(name, start - HERE, end - HERE) for name, start, end in parts)


def displacement(
    reference: Reference, address: int, names: Mapping[str, int], size: int = _DISPLACEMENT
) -> bytes:
    """The bytes of a reference in code that is at an address, so many. Raises WronglyAssembled
    where it does not reach as far."""
    distance = names[reference.name] - address - reference.end
    if distance not in REACH:
        raise WronglyAssembled(f"{reference.name} is out of reach, {distance:#x} away")
    return distance.to_bytes(size, "little", signed=True)


def heading(name: str) -> str:
    """The line with which a part of this name begins."""
    return f"{_HEADING}{name}"


def _parts(headings: Sequence[tuple[str, int]], places: Sequence[int]) -> tuple[Part, ...]:
    """The parts of code whose instructions are at these places; the last of them is the end."""
    starts = [places[index] for _, index in headings] + [places[-1]]
    parts = zip((name for name, _ in headings), starts, starts[1:], strict=False)
    return tuple(Part(*part) for part in parts if part[1] < part[2])


def _check(instructions: Sequence[_Instruction], code: bytes, address: int, laid: _Laid) -> None:
    """Raise WronglyAssembled where capstone reads something else. What leads nowhere has the bytes
    that were decoded when it was encoded, so it is only counted."""
    listing = Listing(code, address)
    if len(listing) != len(instructions):
        raise WronglyAssembled(f"{len(instructions)} instructions became {len(listing)}")
    for index, each in enumerate(instructions):
        if each.name:
            text = listing.text(index)
            expected = _expected(each, laid.places[index + 1], laid.labels)
            if text != expected:
                raise WronglyAssembled(
                    f"`{each.line}` became `{text}` where it should be `{expected}`"
                )


def _expected(instruction: _Instruction, end: int, labels: Mapping[str, int]) -> str:
    """As capstone writes it: with displacements and addresses for names."""
    mnemonic, _, operands = instruction.line.partition(" ")
    name = instruction.name
    if operands == name:
        return f"{mnemonic} {labels[name]:#x}"
    distance = labels[name] - end
    sign = "-" if distance < 0 else "+"
    return instruction.line.replace(f"[rip + {name}]", f"[rip {sign} {number(abs(distance))}]")


def number(value: int) -> str:
    """As capstone writes it: small ones in decimal."""
    return str(value) if 0 <= value < 10 else f"{value:#x}"


def plus(offset: int) -> str:
    """An offset from a register, as capstone writes it also where there is none."""
    return f" + {number(offset)}" if offset else ""
