"""The instructions of an arena's recorders and runtime, and C that interrupts calls of them."""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Iterator
from pathlib import Path

import capstone
from capstone.x86 import X86_OP_IMM

from markerjit.abi import RUNTIME_SIZE
from tests.support.own_arena import OwnArena, Slot, load_calls


class Calls:
    """calls.c, for one arena. See there."""

    def __init__(self, library: ctypes.CDLL) -> None:
        self._library = library

    def many(self, slot: Slot, start: int, end: int) -> None:
        self._library.call_many(ctypes.byref(slot), ctypes.c_uint64(start), ctypes.c_uint64(end))

    def interrupted(
        self, slot: Slot, inside: Slot, value: int, address: int, *, times: int = 1
    ) -> bool:
        """Hit `slot`, and before the instruction at the address `inside`."""
        slots = ctypes.byref(slot), ctypes.byref(inside)
        number, place = ctypes.c_uint64(value), ctypes.c_void_p(address)
        often = ctypes.c_uint64(times)
        return bool(self._library.call_interrupted(*slots, number, place, often))

    def forking(
        self, slot: Slot, value: int, address: int, *, after: Slot | None = None, times: int = 0
    ) -> bool:
        """Fork there. With `after` the child waits until that was hit so often."""
        came = self._library.call_forking(
            ctypes.byref(slot),
            ctypes.c_uint64(value),
            ctypes.c_void_p(address),
            int(after is not None),
            ctypes.byref(after) if after is not None else None,
            ctypes.c_uint64(times),
        )
        assert came >= 0
        return bool(came)

    def dying(self, slot: Slot, value: int, address: int, *, alive: int, cpus: int) -> bool:
        """In a child that is killed there."""
        number, place = ctypes.c_uint64(value), ctypes.c_void_p(address)
        page, count = ctypes.c_void_p(alive), ctypes.c_uint64(cpus)
        return bool(self._library.call_dying(ctypes.byref(slot), number, place, page, count))

    def stepped(self, slot: Slot, inside: Slot, after: int) -> bool:
        """Step to instruction number `after`, and hit `inside` there."""
        slots = ctypes.byref(slot), ctypes.byref(inside)
        return bool(self._library.call_stepped(*slots, ctypes.c_uint64(after)))


def compile_calls(folder: Path) -> Calls:
    return Calls(load_calls(folder))


def instructions(own: OwnArena, slot: Slot, *more: int) -> list[int]:
    """Where the instructions are that the probe of a slot may come to, abort handlers included.
    `more` are functions that it calls by address."""
    entry = own.arena.entry
    roots = [slot.probe, *more, *(own.base + sequence.abort for sequence in entry.sequences)]
    if slot.probe >= own.base + RUNTIME_SIZE:  # its descriptors stand before it
        roots += _own_handlers(own, slot.probe)
    code = own.store.read(0, own.arena.control.now().code_used)
    decoder = capstone.Cs(capstone.CS_ARCH_X86, capstone.CS_MODE_64)
    decoder.detail = True
    addresses: set[int] = set()
    while roots:
        at = roots.pop()
        while at not in addresses:
            # One at a time: asked for more, capstone decodes to the end of the code first.
            following = code[at - own.base :][:15]
            instruction = next(decoder.disasm(following, at, count=1), None)
            if instruction is None:
                break
            addresses.add(at)
            target = _target(instruction)
            if target is not None:
                roots.append(target)
            if instruction.mnemonic in ("ret", "jmp"):
                break
            at += instruction.size
    return sorted(addresses)


def _own_handlers(own: OwnArena, probe: int) -> Iterator[int]:
    at = (own.arena.control.now().code_used - 1) & -32
    while at > RUNTIME_SIZE:
        version, flags, start, length, abort = struct.unpack("<IIQQQ", own.store.read(at, 32))
        if not version and not flags and own.base + RUNTIME_SIZE < start and length < 1024:
            yield abort
        at -= 32


def _target(instruction: capstone.CsInsn) -> int | None:
    branches = capstone.CS_GRP_JUMP in instruction.groups
    if not branches and capstone.CS_GRP_CALL not in instruction.groups:
        return None
    (operand,) = instruction.operands
    return operand.imm if operand.type == X86_OP_IMM else None
