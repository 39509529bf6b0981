"""The flow of a function, decoded from its start: where instructions begin and where they lead.

A binary has a million instructions, and capstone's binding for Python makes objects of each of
them. So instructions are taken from capstone's own array, as columns. Where many functions are
asked for, their code is decoded as if they stood one behind the other: a call for each would cost
as much as their instructions.
"""

from __future__ import annotations

import ctypes
import re
from collections.abc import Iterator, Sequence
from functools import cache, lru_cache

import capstone
import numpy as np
from capstone.x86_const import (
    X86_INS_CALL,
    X86_INS_ENDBR64,
    X86_INS_INT3,
    X86_INS_NOP,
    X86_INS_RET,
)
from numpy.typing import NDArray

from markerjit.tuples import NamedTuple
from markerjit.x86.decode import plain_decoder, sizes
from markerjit.x86.forms import CONDITION_LENGTH, ENDBR64, JMP_NEAR, NEAR_LENGTH, SHORT_LENGTH
from markerjit.x86.windows import CALL_NEAR, TWO_BYTES, words_at

Addresses = NDArray[np.int64]

_BRANCHES = ("j", "call", "loop", "xbegin")
_BRANCH, _JUMP, _RETURN, _RETURNED_TO, DIRECT, _IMPORT = 1, 2, 4, 8, 16, 32
_TOGETHER = 1 << 15
"""Bytes of functions that are decoded by one call."""
_PADDINGS = 4096
_RELATIVE = re.compile(r"\[rip[^\]]*\]")
_NUMBER = re.compile(r"0x[0-9a-f]+")


class Flow(NamedTuple):
    """A function's instructions.

    starts    the address of each, and its length
    branches  the target of each direct branch or call, by the address behind it
    leaps     address and target of each direct branch that is no call, on a condition or not
    returns   the addresses behind calls and system calls
    jumps     the addresses of indirect jumps that are not through a slot of their own
    imports   the addresses of indirect jumps through a slot of their own, [rip + disp32]
    rets      the addresses of returns
    end       where decoding ended: at the function's end, or at bytes that are no instruction
    """

    starts: dict[int, int]
    branches: dict[int, int]
    leaps: tuple[tuple[int, int], ...]
    returns: frozenset[int]
    jumps: tuple[int, ...]
    imports: tuple[int, ...]
    rets: tuple[int, ...]
    end: int


def flow(code: bytes, address: int) -> Flow:
    """The flow of a function's whole code, which stands at `address`."""
    return _flow(_decoded(code, address), address)


class Flows:
    """The flows of functions, as columns. A flow is made when it is asked for, each time.

    ends   where decoding ended, of each function
    insns  the instructions of all
    rows   where those of each function begin, and where the last ones end
    """

    ends: Addresses
    insns: Instructions
    rows: Addresses

    def __init__(self, bodies: Sequence[tuple[int, bytes]]) -> None:
        """`bodies` are the addresses of functions, one at least, and their whole code."""
        self._addresses = [address for address, _ in bodies]
        pieces = list(_pieces(bodies))
        self.insns = _joined([insns for insns, _ in pieces])
        counts = np.concatenate([counts for _, counts in pieces])
        behind = np.cumsum(counts)
        self.ends = np.array(self._addresses, np.int64)
        last = behind[counts > 0] - 1
        self.ends[counts > 0] = self.insns.starts[last] + self.insns.sizes[last]
        self.rows = np.concatenate([[0], behind])
        self._rows = self.rows.tolist()
        bounds = np.searchsorted(self.insns.leading, self.rows)
        self._leading = bounds.tolist()
        self._of_leading = np.repeat(np.arange(len(bodies)), np.diff(bounds))

    def at(self, place: int) -> Flow:
        """The flow of the function at a place."""
        rows = slice(*self._rows[place : place + 2])
        leading = slice(*self._leading[place : place + 2])
        return _flow(self.insns.part(rows, leading), self._addresses[place])

    def behind_endbr(self) -> Addresses:
        """The bytes of the endbr64 that each function begins with; 0 where it begins otherwise."""
        first = np.minimum(self.rows[:-1], len(self.insns.starts) - 1)
        sizes = self.insns.sizes[first].astype(np.int64)
        begins = (self.rows[:-1] < self.rows[1:]) & (self.insns.numbers[first] == X86_INS_ENDBR64)
        return np.where(begins & (sizes == len(ENDBR64)), sizes, 0)

    def branches(self) -> Transfers:
        """The direct branches."""
        return self._transfers(self.insns.kinds & DIRECT > 0)

    def leaps(self) -> Transfers:
        """Those that are no calls."""
        return self._transfers(self.insns.kinds & (DIRECT | _RETURNED_TO) == DIRECT)

    def returns(self) -> Transfers:
        """The returns, which have no target."""
        return self._transfers(self.insns.kinds & _RETURN > 0)

    def returned_to(self) -> Transfers:
        """The calls, and system calls."""
        return self._transfers(self.insns.kinds & _RETURNED_TO > 0)

    def _transfers(self, chosen: NDArray[np.bool_]) -> Transfers:
        rows = self.insns.leading[chosen]
        starts = self.insns.starts[rows]
        ends = starts + self.insns.sizes[rows]
        targets = self.insns.targets[chosen].view(np.int64)
        return Transfers(self._of_leading[chosen], rows, starts, ends, targets)

    def functions_of(self, rows: Addresses) -> Addresses:
        """The places of the functions that these instructions are in."""
        return np.searchsorted(self.rows, rows, "right") - 1

    def jumps(self, *, through_slots: bool) -> Transfers:
        """The indirect jumps, which have no target: those that are through a slot of their own, or
        the others."""
        kinds = self.insns.kinds & (_JUMP | DIRECT | _IMPORT)
        return self._transfers(kinds == (_JUMP | _IMPORT if through_slots else _JUMP))


class Transfers(NamedTuple):
    """Transfers of control, as columns: the places of the functions that they are in, their rows
    among the instructions, where they start and end, and their targets."""

    functions: Addresses
    rows: Addresses
    starts: Addresses
    ends: Addresses
    targets: Addresses


class Instructions(NamedTuple):
    """Instructions, as columns.

    starts, sizes  of each
    numbers        capstone's number of what each is
    leading        the rows of those after which another one than the next may be executed
    kinds          what these do
    targets        where the direct branches of these lead
    """

    starts: Addresses
    sizes: NDArray[np.uint8]
    numbers: NDArray[np.uint16]
    leading: Addresses
    kinds: NDArray[np.uint8]
    targets: NDArray[np.uint64]

    def part(self, rows: slice, leading: slice) -> Instructions:
        """These rows, and those of the leading ones."""
        return Instructions(
            self.starts[rows], self.sizes[rows], self.numbers[rows],
            self.leading[leading] - rows.start,
            self.kinds[leading], self.targets[leading],
        )  # fmt: skip


def _flow(insns: Instructions, address: int) -> Flow:
    starts, lengths, _, *leading = (column.tolist() for column in insns)
    branches: dict[int, int] = {}
    leaps: list[tuple[int, int]] = []
    returns: list[int] = []
    jumps: list[int] = []
    imports: list[int] = []
    rets: list[int] = []
    for row, kind, target in zip(*leading, strict=True):
        start = starts[row]
        end = start + lengths[row]
        if kind & _RETURNED_TO:
            returns.append(end)
        if kind & _RETURN:
            rets.append(start)
        if kind & DIRECT:
            branches[end] = target
            if not kind & _RETURNED_TO:
                leaps.append((start, target))
        elif kind & _JUMP:
            (imports if kind & _IMPORT else jumps).append(start)
    return Flow(
        dict(zip(starts, lengths, strict=True)), branches, tuple(leaps), frozenset(returns),
        tuple(jumps), tuple(imports), tuple(rets), starts[-1] + lengths[-1] if starts else address,
    )  # fmt: skip


# ---- decoding ------------------------------------------------------------------------------------


def _pieces(bodies: Sequence[tuple[int, bytes]]) -> Iterator[tuple[Instructions, Addresses]]:
    """The instructions of functions that were decoded together, and how many each of them has."""
    first = 0
    while first < len(bodies):
        behind, size = first + 1, len(bodies[first][1])
        while behind < len(bodies) and size < _TOGETHER:
            size += len(bodies[behind][1])
            behind += 1
        insns, counts = _together(bodies[first:behind])
        if len(counts):
            yield insns, counts
        first += len(counts)
        if first < behind:  # this one is not decoded to its end
            address, code = bodies[first]
            insns = _decoded(code, address)
            yield insns, np.array([len(insns.starts)])
            first += 1


def _together(bodies: Sequence[tuple[int, bytes]]) -> tuple[Instructions, Addresses]:
    """The instructions of these functions, up to the first one whose last instruction does not end
    where the function ends; and how many each of them has.

    What an instruction is does not depend on where it stands. Its address, and the target of a
    branch, are moved to where its function is.
    """
    address = bodies[0][0]
    insns = _decoded(b"".join(code for _, code in bodies), address)
    stops = address + np.cumsum([len(code) for _, code in bodies])
    reached = np.isin(stops, insns.starts + insns.sizes)
    whole = len(reached) if reached.all() else int(reached.argmin())
    behind = np.searchsorted(insns.starts, stops[:whole])
    counts = np.diff(behind, prepend=0)
    starts = np.array([at for at, _ in bodies[:whole]], np.int64)
    moves = np.repeat(starts - np.concatenate([[address], stops])[:whole], counts)
    rows = slice(0, len(moves))
    insns = insns.part(rows, slice(0, int(np.searchsorted(insns.leading, rows.stop))))
    targets = insns.targets + moves[insns.leading].view(np.uint64)
    return insns._replace(starts=insns.starts + moves, targets=targets), counts


def _joined(pieces: Sequence[Instructions]) -> Instructions:
    firsts = np.cumsum([0, *(len(piece.starts) for piece in pieces)]).tolist()
    moved = [
        piece._replace(leading=piece.leading + first)
        for piece, first in zip(pieces, firsts, strict=False)
    ]
    return Instructions._make(map(np.concatenate, zip(*moved, strict=True)))


def _decoded(code: bytes, address: int) -> Instructions:
    """The instructions from the first byte on, as far as they can be decoded."""
    array = ctypes.POINTER(capstone._cs_insn)()
    count = capstone._cs.cs_disasm(
        plain_decoder().csh, code, len(code), address, 0, ctypes.byref(array)
    )  # fmt: skip
    if not count:
        return _columns(np.zeros(0, _layout()))
    try:
        size = count * _layout().itemsize
        memory = (ctypes.c_char * size).from_address(ctypes.addressof(array.contents))
        return _columns(np.frombuffer(memory, _layout()))
    finally:
        capstone._cs.cs_free(array, count)


def _columns(insns: NDArray[np.void]) -> Instructions:
    """A copy of what is needed of capstone's array."""
    kinds = _kinds()[insns["id"]]
    (leading,) = kinds.nonzero()
    kinds, letters = kinds[leading], insns["letter"][leading]
    is_branch, is_number = kinds & _BRANCH > 0, (letters >= b"0") & (letters <= b"9")
    (direct,) = (is_branch & is_number).nonzero()
    (others,) = (is_branch & ~is_number).nonzero()
    kinds[direct] |= DIRECT
    targets = np.zeros(len(kinds), np.uint64)
    targets[direct] = _targets(insns, leading[direct])
    operands = insns["op_str"][leading[others]].tolist()
    by_slot = [b"[rip" in text.partition(b"\0")[0] for text in operands]
    kinds[others[np.array(by_slot, bool)]] |= _IMPORT
    starts, lengths = insns["address"].copy(), insns["size"].astype(np.uint8)
    numbers = insns["id"].astype(np.uint16)
    return Instructions(starts, lengths, numbers, leading, kinds, targets)


def _targets(insns: NDArray[np.void], direct: Addresses) -> NDArray[np.uint64]:
    """Where direct branches lead: by their displacement, or of those with prefixes by what capstone
    writes."""
    sizes, code = insns["size"][direct], insns["bytes"][direct]
    ends = insns["address"][direct] + sizes
    first = code[:, 0]
    near = (sizes == NEAR_LENGTH) & ((first == CALL_NEAR) | (first == JMP_NEAR))
    condition = (sizes == CONDITION_LENGTH) & (first == TWO_BYTES)
    targets = ends + code[:, 1].view(np.int8)
    for chosen, at in ((near, 1), (condition, 2)):
        (rows,) = chosen.nonzero()
        targets[rows] = ends[rows] + words_at(code.reshape(-1), rows * code.shape[1] + at)
    (others,) = (~near & ~condition & (sizes != SHORT_LENGTH)).nonzero()
    texts = insns["op_str"][direct[others]].tolist()
    unsigned: NDArray[np.uint64] = targets.view(np.uint64)
    unsigned[others] = [int(text.partition(b"\0")[0], 16) for text in texts]
    return unsigned


@cache
def _layout() -> np.dtype[np.void]:
    """The fields of capstone's `struct cs_insn` that are read, and the first letter of operands."""
    formats = {"id": "u4", "address": "i8", "size": "u2", "bytes": "(24,)u1", "op_str": "S160"}
    fields = [getattr(capstone._cs_insn, name) for name in formats]
    for field, format_ in zip(fields, formats.values(), strict=True):
        assert field.size == np.dtype(format_).itemsize
    return np.dtype(
        {
            "names": [*formats, "letter"],
            "formats": [*formats.values(), "S1"],
            "offsets": [*(field.offset for field in fields), capstone._cs_insn.op_str.offset],
            "itemsize": ctypes.sizeof(capstone._cs_insn),
        }
    )


@cache
def _kinds() -> NDArray[np.uint8]:
    """What an instruction does, by capstone's number of it."""
    kinds = np.zeros(capstone.x86_const.X86_INS_ENDING, np.uint8)
    for number in range(1, len(kinds)):
        name = plain_decoder().insn_name(number) or ""
        if name.startswith(_BRANCHES):
            kinds[number] |= _BRANCH | (_JUMP if name == "jmp" else 0)
        elif "ret" in name:
            kinds[number] |= _RETURN
        if "call" in name or name in ("syscall", "sysenter", "int"):
            kinds[number] |= _RETURNED_TO
    return kinds


def has_operand(code: bytes, value: int) -> bool:
    """Whether the instruction at the start of `code` has this number in an operand.

    Displacements from rip do not count: they are distances.
    """
    return any(
        f"{value:#x}" in _NUMBER.findall(_RELATIVE.sub("", operands))
        for *_, operands in plain_decoder().disasm_lite(code, 0, 1)
    )


def is_padding(code: bytes) -> bool:
    """Whether the bytes are nothing but no-ops and int3, as linkers and compilers fill gaps."""
    return not code or len(code) in padding_ends(code)


_PADDING = (X86_INS_NOP, X86_INS_INT3)
CALL, RET = X86_INS_CALL, X86_INS_RET
"""Capstone's numbers of calls and returns."""


def are_no_ops(numbers: NDArray[np.uint16]) -> NDArray[np.bool_]:
    """Whether instructions with these numbers are what paddings are made of."""
    return np.isin(numbers, _PADDING)


@lru_cache(_PADDINGS)
def padding_ends(code: bytes) -> tuple[int, ...]:
    """Where the no-ops and int3 end with which the bytes begin."""
    ends: list[int] = []
    if not any(number in _PADDING for _, number in sizes(code, 1)):
        return ()
    for start, size, mnemonic, _ in plain_decoder().disasm_lite(code, 0):
        if mnemonic not in ("nop", "int3", "data16 nop"):
            break
        ends.append(start + size)
    return tuple(ends)
