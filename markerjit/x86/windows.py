"""Every place in code that could lead to some address, without decoding the code.

A branch is an opcode with a displacement behind it, so each byte that could be the opcode gives a
candidate. Candidates are a superset of the branches: no branch is missed, whatever else the bytes
are, and a decoder that knows where instructions begin rejects the others (flow.py).
"""

from __future__ import annotations

from array import array
from bisect import bisect_left

import numpy as np
from numpy.typing import NDArray

from markerjit.tuples import NamedTuple
from markerjit.x86.forms import JMP_NEAR, JMP_SHORT

Addresses = NDArray[np.int64]

CALL_NEAR = 0xE8
TWO_BYTES, _JCC_NEAR = 0x0F, 0x80
_JCC_SHORT = 0x70
_LOOPS = range(0xE0, 0xE4)
_XBEGIN = (0xC7, 0xF8)
_LEA = 0x8D
_INDIRECT, _CALL_SLOT, _JUMP_SLOT = 0xFF, 0x15, 0x25


class Candidates(NamedTuple):
    """Places that could lead somewhere, sorted by target.

    `ends` is where the displacement or operand of each ends, and with it most instructions.
    `searched` are the targets as `in_order` has them.
    """

    targets: Addresses
    ends: Addresses
    searched: array[int]

    def into(self, low: int, high: int) -> list[tuple[int, int]]:
        """Target and end of those with low <= target < high."""
        first = bisect_left(self.searched, low)
        last = bisect_left(self.searched, high, first)
        if first == last:
            return []
        return list(zip(self.searched[first:last], self.ends[first:last].tolist(), strict=True))

    def where(self, chosen: NDArray[np.bool_]) -> Candidates:
        """Some of them."""
        targets = self.targets[chosen]
        return Candidates(targets, self.ends[chosen], in_order(targets))


def near_branches(code: bytes, address: int) -> Candidates:
    """jmp, jcc, call and xbegin with 32 bits that stay in the code, which stands at `address`."""
    data = np.frombuffer(code, np.uint8)
    behind = data[1:]
    opcode = (data[:-1] == TWO_BYTES) & (behind & 0xF0 == _JCC_NEAR)
    opcode |= (data[:-1] == _XBEGIN[0]) & (behind == _XBEGIN[1])
    opcode |= (behind == CALL_NEAR) | (behind == JMP_NEAR)
    places = np.flatnonzero(opcode) + 2
    if data[:1].tolist() in ([CALL_NEAR], [JMP_NEAR]):
        places = np.concatenate([[1], places])
    return _reached(data, places, address)


def slot_branches(code: bytes, address: int) -> Candidates:
    """call and jmp by a word of memory, [rip + disp32]. The targets are the addresses of the words,
    anywhere in the object."""
    data = np.frombuffer(code, np.uint8)
    behind = data[1:]
    places = np.flatnonzero(
        (data[:-1] == _INDIRECT) & ((behind == _CALL_SLOT) | (behind == _JUMP_SLOT))
    )
    places = places[places + 6 <= len(data)] + 2
    return _sorted(address + places + 4 + words_at(data, places), address + places + 4)


def loaded_addresses(code: bytes, address: int) -> tuple[Addresses, Addresses]:
    """Each address that a `lea reg, [rip + disp32]` may load, and where that instruction ends."""
    data = np.frombuffer(code, np.uint8)
    places = np.flatnonzero(
        (data[:-2] & 0xFB == 0x48) & (data[1:-1] == _LEA) & (data[2:] & 0xC7 == 0x05)
    )
    places = places[places + 7 <= len(data)] + 3
    return address + places + 4 + words_at(data, places), address + places + 4


def absolute_operands(code: bytes, address: int) -> Candidates:
    """All four bytes that could be an operand with an address of the code."""
    targets, ends = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)]
    for shift in range(4):
        words = np.frombuffer(code[shift : len(code) - (len(code) - shift) % 4], "<u4")
        places = np.flatnonzero((words >= address) & (words < address + len(code)))
        targets.append(words[places].astype(np.int64))
        ends.append(address + shift + 4 * places + 4)
    return _sorted(np.concatenate(targets), np.concatenate(ends))


def short_branches(code: bytes, address: int) -> Candidates:
    """Branches of 8 bits: jmp, jcc, loop and jrcxz."""
    data = np.frombuffer(code, np.uint8)
    opcodes = data[:-1]
    places = np.flatnonzero(
        (opcodes & 0xF0 == _JCC_SHORT)
        | (opcodes == JMP_SHORT)
        | ((opcodes >= _LOOPS.start) & (opcodes < _LOOPS.stop))
    )
    ends = address + places + 2
    return _sorted(ends + data[places + 1].view(np.int8), ends)


def words_at(data: NDArray[np.uint8], places: Addresses) -> Addresses:
    """The signed 32-bit numbers at these offsets, which need not be aligned."""
    words = np.zeros(len(places), np.uint32)
    for byte in range(4):
        words |= data[places + byte].astype(np.uint32) << np.uint32(8 * byte)
    return words.view(np.int32).astype(np.int64)


def _reached(data: NDArray[np.uint8], places: Addresses, address: int) -> Candidates:
    places = places[places + 4 <= len(data)]
    ends = address + places + 4
    targets = ends + words_at(data, places)
    inside = (targets >= address) & (targets < address + len(data))
    return _sorted(targets[inside], ends[inside])


def _sorted(targets: Addresses, ends: Addresses) -> Candidates:
    order = np.argsort(targets, kind="stable")
    targets = targets[order]
    return Candidates(targets, ends[order], in_order(targets))


def in_order(places: Addresses) -> array[int]:
    """Sorted places for `bisect`, which asks numpy for each number three times as long."""
    return array("q", places.astype("<i8").tobytes())
