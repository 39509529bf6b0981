"""Which instructions of decoded functions can certainly be moved, and what is executed next.

An instruction can be moved if `relocate` can do it, to any place nearby. That is asked for one
example of a class, where all of a class are moved alike:

    number of capstone              copied as they are: without prefixes but for that of %fs, and
                                    without an operand relative to rip
    all up to the ModRM byte, size  with an operand relative to rip, a page away or more
    opcode, size                    direct jumps and calls without prefixes, and the plain return

Only what is certain counts; of all others there is no word.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from markerjit.x86.flow import DIRECT, RET, Addresses, Flows, are_no_ops
from markerjit.x86.forms import CONDITION_LENGTH, JMP_NEAR, JMP_SHORT, NEAR_LENGTH, SHORT_LENGTH
from markerjit.x86.relocate import Relocated, is_plain, relocate
from markerjit.x86.windows import CALL_NEAR, TWO_BYTES, words_at

UNKNOWN, GOES_ON, ENDS = range(3)
"""What is known of an instruction: nothing; that it can be moved, and whether the next one may
follow. A call ends, because its return address has to stay where it is."""
Kinds = NDArray[np.uint8]
Mask = NDArray[np.bool_]

NEAR = 1 << 30
"""The distance of a target that a jump or an operand reaches from anywhere near, too."""
_FAR = 1 << 12
"""The distance of an operand that is certainly none of the instructions that move with it."""
_NEARBY = 1 << 24
"""How far an example is moved."""
_LONGEST = 16
_FS = 0x64
_PREFIXES = np.isin(np.arange(256), list(b"\x26\x2e\x36\x3e\x64\x65\x67\xf0\xf2\xf3"))
_RELATIVE, _MODE_AND_BASE = 0x05, 0xC7
"""A ModRM byte with these bits says that a displacement from rip follows."""
_DISPLACEMENT = 4


class Moves:
    """Instructions of one executable segment, which stands at `base`."""

    def __init__(self, flows: Flows, base: int, code: bytes) -> None:
        self._insns = flows.insns
        self._base = base
        self._code = code
        padded = np.frombuffer(code + bytes(_LONGEST), np.uint8)
        self._windows = sliding_window_view(padded, _LONGEST)
        self._examples: dict[bytes, int] = {}

    def kinds(self, rows: Addresses) -> Kinds:
        """What is known of the instructions in these rows."""
        insns = self._insns
        starts, sizes = insns.starts[rows], insns.sizes[rows].astype(np.int64)
        at = starts - self._base
        kinds = np.zeros(len(rows), np.uint8)
        (inside,) = ((at >= 0) & (at + sizes <= len(self._code))).nonzero()
        at, sizes, starts = at[inside], sizes[inside], starts[inside]
        code, numbers = self._windows[at], insns.numbers[rows[inside]]
        within = np.arange(_LONGEST) < sizes[:, np.newaxis]
        relative = (code & _MODE_AND_BASE == _RELATIVE) & within
        relative[:, 0] = False
        has_relative = relative.any(1)
        first, second = code[:, 0], code[:, 1]
        by_fs = (first == _FS) & ~_PREFIXES[second]
        plain = ~has_relative & (~_PREFIXES[first] | by_fs)
        known = np.zeros(len(at), np.uint8)
        self._ask(known, plain, at, sizes, [numbers.view(np.uint8).reshape(-1, 2), by_fs], _plain)
        modrm = relative.argmax(1)
        distance = words_at(code.reshape(-1), np.arange(len(at)) * _LONGEST + (modrm + 1) % 12)
        target = starts + sizes + distance
        fits = has_relative & ~_PREFIXES[first] & (modrm + 1 + _DISPLACEMENT <= sizes)
        fits &= ~are_no_ops(numbers)
        fits &= (np.abs(target - starts) >= _FAR) & (np.abs(target - starts) < NEAR)
        up_to_modrm = np.where(np.arange(_LONGEST) <= modrm[:, np.newaxis], code, 0)
        alike = [numbers.view(np.uint8).reshape(-1, 2), sizes, modrm, up_to_modrm]
        self._ask(known, fits, at, sizes, alike, _by_rip)
        direct = self._are_direct(rows[inside], starts)
        short = (first & 0xF0 == 0x70) | (first == JMP_SHORT)
        opcodes = short & (sizes == SHORT_LENGTH)
        opcodes |= ((first == JMP_NEAR) | (first == CALL_NEAR)) & (sizes == NEAR_LENGTH)
        two = (first == TWO_BYTES) & (second & 0xF0 == 0x80) & (sizes == CONDITION_LENGTH)
        is_return = (numbers == RET) & (sizes == 1)
        chosen = (direct & (opcodes | two)) | is_return
        self._ask(known, chosen, at, sizes, [sizes, first, np.where(two, second, 0)], _transfer)
        kinds[inside] = known
        return kinds

    def _are_direct(self, rows: Addresses, starts: Addresses) -> Mask:
        """Whether they are direct branches whose targets are not too far."""
        insns = self._insns
        leading = np.minimum(np.searchsorted(insns.leading, rows), max(len(insns.leading) - 1, 0))
        if not len(insns.leading):
            return np.zeros(len(rows), bool)
        direct: Mask = (insns.leading[leading] == rows) & (insns.kinds[leading] & DIRECT > 0)
        direct &= np.abs(insns.targets[leading].view(np.int64) - starts) < NEAR
        return direct

    def _ask(
        self,
        known: Kinds,
        chosen: Mask,
        at: Addresses,
        sizes: Addresses,
        alike: list[NDArray[np.generic]],
        ask: Callable[[bytes, int], int],
    ) -> None:
        """Write down what an example says, of those that are chosen. Those with the same values of
        `alike` are one class."""
        (rows,) = chosen.nonzero()
        if not len(rows):
            return
        columns = [np.asarray(each)[rows] for each in alike]
        wide = [each.astype(np.uint8).reshape(len(rows), -1) for each in columns]
        keys = np.ascontiguousarray(np.concatenate(wide, 1))
        classes = keys.view(np.dtype((np.void, keys.shape[1]))).reshape(-1)
        _, examples, of = np.unique(classes, return_index=True, return_inverse=True)
        answers = []
        for example in rows[examples].tolist():
            start = int(at[example])
            code = self._code[start : start + int(sizes[example])]
            answers.append(ask(code, self._base + start))
        known[rows] = np.array(answers, np.uint8)[of.reshape(-1)]


def _plain(code: bytes, _address: int) -> int:
    return GOES_ON if is_plain(code) else UNKNOWN


def _by_rip(code: bytes, address: int) -> int:
    moved = relocate(code, address, address + _NEARBY)
    if not isinstance(moved, Relocated) or not moved.falls_through:
        return UNKNOWN
    modrm = next(at for at in range(1, len(code)) if code[at] & _MODE_AND_BASE == _RELATIVE)
    # So far that the last byte of the displacement changes, and no other one.
    changed = [at for at, (old, new) in enumerate(zip(code, moved.code, strict=True)) if old != new]
    return GOES_ON if changed == [modrm + _DISPLACEMENT] else UNKNOWN


def _transfer(code: bytes, address: int) -> int:
    moved = relocate(code, address, address + _NEARBY)
    if not isinstance(moved, Relocated):
        return UNKNOWN
    return GOES_ON if moved.falls_through else ENDS
