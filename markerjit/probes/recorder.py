"""The recorder of one marker: code assembled for its arguments, its id, and this arena.

It is called by the body of the marker, as a function with the marker's arguments. In a restartable
sequence on the ring of its CPU (restart.S says what that promises) it

     1  names the sequence to the kernel
     2  reads the CPU's number; in the child of a fork, and in a thread without such sequences, it
        leaves the event to mj_record_event
     3  finds the ring, and whether there is room in its page; if not, mj_turn makes some, and it
        begins again, or the ring is full and mj_lose counts that
     4  reads the clock
     5  writes the record
     6  stores the new head: from now on the record is there
     7  counts it, in a second sequence, if no reader takes records out and counts them

Interrupted before 6 it leaves the event to mj_record_event, before the end of 7 the count to
mj_pass. Those functions need the arguments, so until 6 only %rax, %rdi, %r10, %r11, %xmm14 and
%xmm15 are changed, and %rdx by the clock, which is kept elsewhere: in %r9 where that is free.

A text is read in the same sequence, if it takes no thought (texts.py); else the event is left to
mj_record_event. The registers that this takes are saved in the red zone.
"""

from __future__ import annotations

import struct
from collections.abc import Generator, Iterator, Sequence
from typing import NamedTuple

from markerjit.abi import (
    ALIVE,
    COUNT_SIZE,
    MAX_RECORD,
    OP_FP,
    OP_GP,
    OP_SIZE_SHIFT,
    OP_SKIP_FP,
    OP_STRING,
    PART_READABLE,
    RING_DATA,
    RING_HEAD_SIZE,
    RING_MASK,
    RING_ROOM,
    RSEQ_CPU,
    RSEQ_SEQUENCE,
    RSEQ_SIGNATURE,
    TURN_FULL,
    WORDS_SHIFT,
    Control,
    Geometry,
)
from markerjit.errors import MarkerError
from markerjit.probes.texts import BEHIND, SAVED, put_text, window
from markerjit.ring.types import HEAD, WORD
from markerjit.x86.assemble import assemble, number

# System V ABI for x86-64, 3.2.3: the first argument is the slot.
_GENERAL = (
    ("sil", "si", "esi", "rsi"),
    ("dl", "dx", "edx", "rdx"),
    ("cl", "cx", "ecx", "rcx"),
    ("r8b", "r8w", "r8d", "r8"),
    ("r9b", "r9w", "r9d", "r9"),
)
_ACCUMULATOR = ("al", "ax", "eax", "rax")
_VECTORS = 8
_SIZES = ("byte", "word", "dword", "qword")
_SEQUENCE = struct.Struct("<IIQQQ")  # struct mj_restartable
_SIGNATURE = struct.pack("<I", RSEQ_SIGNATURE)
_ALIGN = 32
_FALL_BACK = (
    "lea rdi, [rip + entry]",
    "mov eax, 8",  # vector registers may hold arguments
    "jmp record_event",
)

_AHEAD = 512
"""Distance in bytes of the prefetch for writing: a ring is larger than a cache, so a write would
wait for its line (bench/recording.py; 256 to 2048 are alike)."""

LARGEST = 2048
"""More bytes than any recorder takes."""


class Setting(NamedTuple):
    """Where a recorder will run: what of an arena it has to know."""

    base: int
    control: Control
    geometry: Geometry
    record_event: int
    pass_: int
    turn: int
    lose: int


class Shape(NamedTuple):
    """The record that a recorder writes: the id of its marker, how each argument is taken
    (MJ_OP_*), the size of the record with its texts empty, whether it has a time and a thread id,
    whether each is counted too, and the most bytes of each argument that is a text."""

    marker: int
    entry: int
    ops: bytes
    size: int
    timed: bool
    tid: bool
    counted: bool = True
    limits: tuple[int, ...] = ()

    @property
    def has_text(self) -> bool:
        """Whether an argument is a text; then the size of a record is not known before."""
        return OP_STRING in self.ops

    @property
    def reads_clock(self) -> bool:
        """Whether it reads the time stamp counter, into rax and rdx."""
        return self.timed or self.has_text


class Recorder(NamedTuple):
    """Code to be put at the address that it was made for; the probe's own is `entry`."""

    code: bytes
    entry: int


def make_recorder(shape: Shape, setting: Setting, address: int) -> Recorder:
    """Assemble a recorder for `address`, a multiple of 32. Raises WronglyAssembled, and MarkerError
    for a record that a page has no room for: the code would write behind it."""
    if shape.size > MAX_RECORD:
        raise MarkerError(f"no page has room for a record of {shape.size} bytes")
    names = _names(shape, setting)
    spans = [("start", "end"), ("count", "counted")][: 1 + shape.counted]
    descriptors = [address + number * _SEQUENCE.size for number in range(len(spans))]
    names |= dict(zip(("record_sequence", "count_sequence"), descriptors, strict=False))
    handlers = []
    at = descriptors[-1] + _SEQUENCE.size
    for source in (_interrupted(shape), _uncounted())[: len(spans)]:
        at = _aligned(at + len(_SIGNATURE))
        handlers.append((at, assemble(source, at, names).code))
        at += len(handlers[-1][1])
    entry = _aligned(at)
    main = assemble(list(_source(shape, setting)), entry, names)
    code = bytearray(_aligned(entry + len(main.code) - address))
    for descriptor, (start, end), (handler, made) in zip(descriptors, spans, handlers, strict=True):
        first, behind = main.labels[start], main.labels[end]
        _put(code, descriptor - address, _SEQUENCE.pack(0, 0, first, behind - first, handler))
        _put(code, handler - address - len(_SIGNATURE), _SIGNATURE + made)
    _put(code, entry - address, main.code)
    return Recorder(bytes(code), entry)


def _names(shape: Shape, setting: Setting) -> dict[str, int]:
    base, geometry = setting.base, setting.geometry
    return {
        "entry": shape.entry,
        "record_event": setting.record_event,
        "pass": setting.pass_,
        "make_room": setting.turn,
        "lose": setting.lose,
        "heads": base + geometry.head_offset(0),
        "alive": base + ALIVE,
        "counts": base + geometry.count_offset(0, shape.marker),
        "readable": base + geometry.parts[PART_READABLE].offset,
    }


def _interrupted(shape: Shape) -> list[str]:
    """Where the kernel goes on when the first sequence was interrupted."""
    restored = [f"mov rdx, {_keep(shape)}"] if shape.reads_clock else []
    return [*restored, *_restored(shape), *_FALL_BACK]


def _uncounted() -> list[str]:
    """The same for the second: the record is there."""
    return ["lea rdi, [rip + entry]", "jmp pass"]


def _keep(shape: Shape) -> str:
    """Where %rdx is while the clock is in it: in a register where no argument is, else in the red
    zone, below what a call of mj_turn pushes."""
    general = sum(not _is_float(op) for op in shape.ops)
    return "r9" if general < len(_GENERAL) else "qword ptr [rsp - 0x18]"


def _saved(shape: Shape) -> list[str]:
    """The registers that texts take, into the red zone below what `_keep` may have there."""
    places = enumerate(SAVED if shape.has_text else (), start=4)
    return [f"mov qword ptr [rsp - {number(8 * place)}], {name}" for place, name in places]


def _restored(shape: Shape) -> list[str]:
    places = enumerate(SAVED if shape.has_text else (), start=4)
    return [f"mov {name}, qword ptr [rsp - {number(8 * place)}]" for place, name in places]


def _source(shape: Shape, setting: Setting) -> Iterator[str]:
    control = setting.control
    sequence = f"qword ptr fs:[{_offset(control.rseq_offset + RSEQ_SEQUENCE)}]"
    cpu = f"dword ptr fs:[{_offset(control.rseq_offset + RSEQ_CPU)}]"
    if shape.reads_clock:
        yield f"mov {_keep(shape)}, rdx"
    yield from _saved(shape)
    yield "again:"
    yield "lea r10, [rip + record_sequence]"  # 1
    yield f"mov {sequence}, r10"
    yield "start:"
    yield f"mov r10d, {cpu}"  # 2
    yield "cmp r10d, dword ptr [rip + alive]"
    yield "jae slow"
    yield "lea r11, [rip + heads]"  # 3
    yield f"shl r10, {number(_log2(RING_HEAD_SIZE))}"
    yield "add r10, r11"
    yield "mov rdi, qword ptr [r10]"
    yield f"lea r11, [rdi + {number(shape.size)}]"
    yield f"cmp r11, qword ptr [r10 + {number(RING_ROOM)}]"
    yield "ja turn"
    if shape.has_text:  # the room behind the head, and below the end of that
        yield f"mov r11, qword ptr [r10 + {number(RING_ROOM)}]"
        yield "sub r11, rdi"
    yield f"and rdi, qword ptr [r10 + {number(RING_MASK)}]"
    yield f"add rdi, qword ptr [r10 + {number(RING_DATA)}]"
    yield f"prefetchw byte ptr [rdi + {number(_AHEAD)}]"
    if shape.has_text:
        yield f"lea r11, [rdi + r11 - {number(shape.size + BEHIND)}]"
        yield "mov r12, rdi"
    if shape.reads_clock:  # 4
        yield "rdtsc"
        yield "shl rdx, 0x20"
        yield "or rax, rdx"
        if shape.timed:
            yield "mov qword ptr [rdi + 8], rax"
        yield f"mov rdx, {_keep(shape)}"
    if shape.has_text:
        yield from window()
    else:
        yield f"mov dword ptr [rdi], {number(HEAD.pack(shape.marker, shape.size // WORD))}"  # 5
    if shape.tid and control.tid_offset >= 0:
        yield f"movabs eax, dword ptr fs:[{_offset(control.tid_offset)}]"
        yield "mov dword ptr [rdi + 4], eax"
    else:
        yield "mov dword ptr [rdi + 4], 0"
    behind = yield from _stores(shape.ops, shape.limits, 16 if shape.timed else 8)
    if shape.has_text:
        yield from _head_of_texts(shape.marker, behind)
    yield "mov qword ptr [r10], r11"  # 6
    yield "end:"
    yield from _restored(shape)
    if shape.counted:  # 7
        yield "lea r10, [rip + count_sequence]"
        yield f"mov {sequence}, r10"
        yield "count:"
        yield f"mov r10d, {cpu}"
        yield "cmp r10d, dword ptr [rip + alive]"  # a signal handler may have forked just now
        yield "jae counted"
        yield "lea r11, [rip + counts]"
        yield f"shl r10, {number(_log2(setting.geometry.max_markers * COUNT_SIZE))}"
        yield "inc qword ptr [r10 + r11]"
        yield "counted:"
    yield "ret"
    yield "turn:"
    yield "call make_room"
    yield "test eax, eax"
    yield "je again"
    yield f"cmp eax, {number(TURN_FULL)}"
    yield "je full"
    yield "slow:"
    yield from _restored(shape)
    yield from _FALL_BACK
    yield "full:"
    yield "lea rdi, [rip + entry]"
    yield "jmp lose"


def _head_of_texts(marker: int, behind: int) -> Iterator[str]:
    """The head of the record at r12, whose last field ends `behind` bytes behind rdi; and the new
    head of the ring in r11."""
    padded = -(-behind // WORD) * WORD
    yield f"lea r11, [rdi{_plus(padded)}]"
    yield "sub r11, r12"
    yield "mov eax, r11d"
    yield f"shl eax, {number(WORDS_SHIFT - _log2(WORD))}"
    yield f"or eax, {number(marker)}"
    yield "mov dword ptr [r12], eax"
    yield "add r11, qword ptr [r10]"


def _stores(ops: Sequence[int], limits: Sequence[int], at: int) -> Generator[str, None, int]:
    """The fields, at multiples of their sizes, from where a call has the arguments, and from `at`
    on behind rdi. Returns where the last one ends behind rdi, which texts move."""
    general, vectors, stack = iter(_GENERAL), iter(range(_VECTORS)), 8
    for index, op in enumerate(ops):
        kind, size_bits = op & (1 << OP_SIZE_SHIFT) - 1, op >> OP_SIZE_SHIFT
        register = next(vectors, None) if _is_float(op) else next(general, None)
        if register is None:
            stack += 8
        if kind == OP_STRING:
            in_memory = f"qword ptr [rsp + {number(stack - 8)}]"
            yield f"mov r13, {register[-1] if isinstance(register, tuple) else in_memory}"
            yield from put_text(index, -(-at // WORD) * WORD, limits[index])
            at = 0
        if kind not in (OP_GP, OP_FP):
            continue
        size = 1 << size_bits
        at = -(-at // size) * size
        place = f"{_SIZES[size_bits]} ptr [rdi{_plus(at)}]"
        if register is None:
            yield f"mov rax, qword ptr [rsp + {number(stack - 8)}]"
            yield f"mov {place}, {_ACCUMULATOR[size_bits]}"
        elif isinstance(register, int):
            yield f"movsd {place}, xmm{register}"
        else:
            yield f"mov {place}, {register[size_bits]}"
        at += size
    return at


def _is_float(op: int) -> bool:
    return op & (1 << OP_SIZE_SHIFT) - 1 in (OP_FP, OP_SKIP_FP)


def _plus(offset: int) -> str:
    """An offset from a register, as capstone writes it also where there is none."""
    return f" + {number(offset)}" if offset else ""


def _offset(value: int) -> str:
    """From the fs base, as capstone writes it also where it is negative."""
    return number(value & (1 << 64) - 1)


def _put(code: bytearray, at: int, data: bytes) -> None:
    code[at : at + len(data)] = data


def _aligned(address: int) -> int:
    return -(-address // _ALIGN) * _ALIGN


def _log2(value: int) -> int:
    return value.bit_length() - 1
