"""A second opinion on dormant sites: capstone's view of what a processor would do with their bytes.

Only the text that capstone makes of an instruction is used (listing.py).

What this does not do: decode anything else. `markerjit.x86.decode` has capstone with all details.
"""

from __future__ import annotations

import re

from markerjit.model import Form
from markerjit.x86.listing import Line, lines_of

_ADDRESSES = 1 << 64
_SLOT_AND_ZERO = re.compile(r"qword ptr \[rip( [+-] (0x)?[0-9a-f]+)?\], 0")
_BYTE_AND_ZERO = re.compile(r"([abcd][lh]|(si|di|bp|sp)l|r(8|9|1[0-5])b), 0")


def disagreement(form: Form, code: bytes, address: int, body: int, end: int) -> str | None:
    """Why these bytes are not a dormant site of this form, or None when they are.

    `code` starts at `address`, with the `lead` of the form, and reaches to `end`. Independent of
    the bytes of the form: it asks capstone what the processor would do, and compares that with what
    a form of this name promises.
    """
    promised = _PROMISES.get(form.name)
    if promised is None:
        return None
    return promised(lines_of(code, address), address, body, end)


def _jump(lines: list[Line], start: int, body: int, end: int) -> str | None:
    return (
        _branch(lines, 0, "jmp", end)
        or _branch(lines, 1, "jmp", body)
        or _length(lines, 2, start, end)
    )


def _nop(lines: list[Line], start: int, body: int, end: int) -> str | None:
    return _test(lines, body, end) or _length(lines, 1, start, end)


def _symbol(lines: list[Line], start: int, body: int, end: int) -> str | None:
    return _is(lines, 0, "nop") or _length(lines, 1, start, end)


def _immediate(lines: list[Line], start: int, body: int, end: int) -> str | None:
    return _move_of_zero(lines) or _length(lines, 1, start, end)


def _pointer(lines: list[Line], start: int, body: int, end: int) -> str | None:
    return (
        _compare_with_zero(lines) or _branch(lines, 1, "jne", body) or _length(lines, 2, start, end)
    )


_PROMISES = {
    "jump": _jump,
    "nop": _nop,
    "symbol": _symbol,
    "immediate": _immediate,
    "pointer": _pointer,
}
"""The checks by the names of forms. The other forms, whose code a compiler wrote, promise
nothing."""


def _is(lines: list[Line], index: int, mnemonic: str) -> str | None:
    if len(lines) <= index:
        return f"instruction {index + 1} cannot be decoded"
    if lines[index].mnemonic != mnemonic:
        return f"{lines[index].mnemonic} {lines[index].operands} where {mnemonic} should be"
    return None


def _branch(lines: list[Line], index: int, mnemonic: str, target: int) -> str | None:
    wrong = _is(lines, index, mnemonic)
    if wrong:
        return wrong
    number = _number(lines[index].operands)
    if number is None or number % _ADDRESSES != target % _ADDRESSES:
        return f"{mnemonic} {lines[index].operands} does not reach {target:#x}"
    return None


def _compare_with_zero(lines: list[Line]) -> str | None:
    wrong = _is(lines, 0, "cmp")
    if wrong:
        return wrong
    if not _SLOT_AND_ZERO.fullmatch(lines[0].operands):
        return f"cmp {lines[0].operands} does not compare the slot with 0"
    return None


def _test(lines: list[Line], body: int, end: int) -> str | None:
    wrong = _is(lines, 0, "test")
    if wrong:
        return wrong
    register, _, immediate = lines[0].operands.partition(", ")
    number = _number(immediate)
    displacement = (body - end) & 0xFFFFFFFF
    if register != "eax" or number is None or number & 0xFFFFFFFF != displacement:
        return f"test {lines[0].operands} does not hold the way to {body:#x}"
    return None


def _length(lines: list[Line], count: int, start: int, end: int) -> str | None:
    length = sum(line.size for line in lines[:count])
    return None if start + length == end else f"{length} bytes long, the note says {end - start}"


def _move_of_zero(lines: list[Line]) -> str | None:
    wrong = _is(lines, 0, "mov")
    if wrong:
        return wrong
    if not _BYTE_AND_ZERO.fullmatch(lines[0].operands):
        return f"mov {lines[0].operands} does not move 0 into a byte register"
    return None


def _number(operand: str) -> int | None:
    """The number that an operand is; None where it is something else."""
    try:
        return int(operand, 0)
    except ValueError:
        return None
