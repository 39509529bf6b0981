"""The fast path of a stub: the stub counts and records by itself where its probe would do just
that.

A stub calls what its slot holds (stub.py). The call, and what the probe has to save, take several
times as long as counting does. So before that the stub looks which probe it is.

The one that only counts: it names a restartable sequence to the kernel (restart.S says what that
promises), finds the counter of its CPU, and counts.

A recorder that writes records of the layout that the stub knows: a tag before the code of a
recorder says its layout, and the head of its records (recorder.py). In a sequence of its own the
stub does what the recorder would do.

Any other probe is called as without a fast path. So is any probe where a sequence was interrupted
before its end, where the ring has no room in its page, and in a fork's child. Nothing was done
then, and the registers are as they were. So what a switch writes into a slot holds at once, as it
does for stubs without a fast path, and no stub is made anew for another probe.

An entry whose operands are kept for the exits keeps them in its fast path. The fast path of an exit
finds the kept operands in its sequence, and takes the token when the record is written.

Counting stands in the straight line of a stub. All else stands behind the way back into the
program: the tail. Registers are put below the stack pointer of the stub, so nothing may be pushed
meanwhile.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Sequence

from markerjit.abi import (
    ALIVE,
    COUNT_SIZE,
    OP_FP,
    OP_GP,
    OP_SINCE,
    RING_DATA,
    RING_HEAD_SIZE,
    RING_MASK,
    RING_ROOM,
    RSEQ_CPU,
    RSEQ_SEQUENCE,
    RSEQ_SIGNATURE,
    STASH_ARGS,
    STASH_BITS,
    STASH_KEPT,
    STASH_SPREAD,
    STASH_STRIDE_BITS,
    STASH_TABLE,
    MarkerEntry,
    Stash,
)
from markerjit.abi import Kept as Place
from markerjit.arena.arena import Arena
from markerjit.elf import parse_format
from markerjit.model import (
    CType,
    Duration,
    General,
    HighByte,
    Kept,
    Memory,
    Operand,
    Signature,
    TypeClass,
)
from markerjit.patch.slots import SLOT_DATA, SLOT_STASH, SLOT_TOKEN
from markerjit.probes.before import BEFORE, SEQUENCE
from markerjit.probes.parts import Name, part
from markerjit.probes.record import Recording, recording_alike, takes_a_recorder
from markerjit.probes.recorder import (
    ACCUMULATOR,
    AHEAD,
    HEAD_BEFORE,
    SIZES,
    TAG_BEFORE,
    Layout,
    fields_of,
    layout_of,
    log2,
    offset_of_thread,
    shape_of,
    tag_of,
)
from markerjit.ring.types import Options, Time
from markerjit.tuples import NamedTuple
from markerjit.x86.assemble import number, plus

USUAL = Options(counted=False)
"""The options of records that `trace` and `record` use by default."""
OF_CALLS = USUAL._replace(rsp=True)
"""The options of records that `calls` uses."""
OF_COUNT, OF_RECORD = "sequence_that_counts", "sequence_that_records"
"""The names of the descriptors of the two sequences."""
DESCRIPTORS = {OF_COUNT: 0, OF_RECORD: SEQUENCE.size}
"""Where each is, from where the descriptors begin."""

_ANY = 0x5AFE_5107_5AFF_0000
WORDS_OF_ARENA = tuple(_ANY + 8 * at for at in range(5))
"""Placeholders, which the addresses of an arena replace."""
_ANY_ALIVE, _ANY_HEADS, _ANY_COUNTS, _ANY_COUNT, _ANY_TAG = WORDS_OF_ARENA
_WORD = 8
_WAY = struct.Struct("<Q")
_ENDS_OF_COUNT = ("start", "end", "slow")
_ENDS_OF_BOTH = (*_ENDS_OF_COUNT, "start_of_record", "end_of_record", "unrecorded")
_FLAGS = 8
_R10_AT = 0x8
_SAVED_AT = {"rdi": 0x10, "rdx": 0x18, "rcx": 0x20, "r11": 0x28}
_HEAD_AT, _DURATION_AT = 0x30, 0x38
"""Below the stack pointer: the registers, the head of the record, the duration of a call."""
_OF_RECORD = ("rdi", "rdx")
_OF_STASH = ("rdi", "rdx", "rcx", "r11")
_DEPTH_OF_CALL = 0x40
_IN_PAGE = 0xFF8

Word = Callable[[Operand, CType], Iterator[str]]
"""The lines that load an operand into rax, and change nothing else."""


class Machine(NamedTuple):
    """The facts of an arena that are the same for all stubs, and for similar processes: the offsets
    of a thread's own words from its fs base, the shift from the number of a CPU to the offset of
    its counters, and the mask of a marker's number."""

    rseq: int
    tid: int
    counters: int
    markers: int


class Fast(NamedTuple):
    """A fast path: for which machine, with which layout of a record, None: it only counts; the
    words that stand for what is where in the arena; and the way in which records are made, in a
    number (`number_of`)."""

    machine: Machine
    layout: Layout | None
    words: tuple[tuple[int, int], ...]
    way: int = 0


def number_of(way: Options, signature: Signature) -> int:
    """A way of recording an event, as it is written down before its stub: whether there are a time,
    a thread id and the stack pointer, and which arguments are recorded."""
    fields = parse_format(signature.format, signature.args)
    recorded = sum(
        1 << field.arg for field in fields if way.fields is None or field.name in way.fields
    )
    flags = (way.time is Time.TSC) | way.thread_id << 1 | way.rsp << 2
    return int(flags | recorded << _FLAGS)


def way_of(word: int, signature: Signature) -> Options:
    """The way of recording that this number stands for."""
    fields = parse_format(signature.format, signature.args)
    names = tuple(field.name for field in fields if word >> _FLAGS + field.arg & 1)
    return USUAL._replace(
        time=Time.TSC if word & 1 else Time.NONE,
        thread_id=bool(word & 2),
        rsp=bool(word & 4),
        fields=None if len(names) == len(fields) else names,
    )


def known_path(arena: Arena | None, signature: Signature, word: int) -> Fast | None:
    """The fast path of a stub before which this number stands."""
    if arena is None or not arena.is_current:
        return None
    return FastPaths(arena, way_of(word, signature)).of(signature)


class FastPaths:
    """The fast paths of stubs in a process with this arena, whose records are made in this way, if
    that is one that a stub can know."""

    def __init__(self, arena: Arena, way: Options = USUAL) -> None:
        self._arena = arena
        self._way = USUAL._replace(
            thread_id=way.thread_id, rsp=way.rsp, fields=way.fields,
            time=way.time if way.time is Time.NONE else Time.TSC,
        )  # fmt: skip
        self._known: dict[int, tuple[Recording, Fast]] = {}
        control, geometry = arena.facts, arena.geometry
        markers = geometry.max_markers
        self._machine = Machine(
            int(control.rseq_offset), int(control.tid_offset), log2(markers * COUNT_SIZE),
            markers - 1,
        )  # fmt: skip
        self._words: tuple[tuple[int, int], ...] = (
            (_ANY_ALIVE, arena.base + ALIVE),
            (_ANY_HEADS, arena.base + geometry.head_offset(0)),
            (_ANY_COUNTS, arena.base + geometry.count_offset(0, 0)),
            (_ANY_COUNT, int(arena.count_probe(preserving=True))),
        )

    def of(self, signature: Signature) -> Fast | None:
        """The fast path of an event's stub; None where threads have no restartable sequences."""
        if not self._machine.rseq:
            return None
        made = recording_alike(signature, self._way)  # the same value for all that are alike
        known = self._known.get(id(made))
        if known is None:
            layout, words = self._layout_of(made), self._words
            if layout:
                words = (*words, (_ANY_TAG, int.from_bytes(tag_of(layout), "little")))
            fast = Fast(self._machine, layout, words, number_of(self._way, signature))
            known = self._known[id(made)] = made, fast
        return known[1]

    def _layout_of(self, made: Recording) -> Layout | None:
        """Of an event's records; None where no code of its own is made for them, or a text is
        among them."""
        if not takes_a_recorder(made, self._arena.facts):
            return None
        shape = shape_of(0, 0, made.entry(), preserving=True)
        return None if shape.has_text else layout_of(shape)


def can_be_fast(args: Sequence[CType], operands: Sequence[Operand]) -> bool:
    """Whether a fast path can load these operands while the stub's registers are in use."""
    used = {"r10", *_OF_STASH}
    for operand, ctype in zip(operands, args, strict=True):
        if isinstance(operand, Memory) and {operand.base, operand.scaled} & used:
            return False
        if ctype.type_class is TypeClass.FLOAT and ctype.size != _WORD:
            return False  # it is made a double on the stack
    return True


class Slot(NamedTuple):
    """The slot of a stub, whether that is of an entry that keeps its operands, the slot of the
    entry where the operands of an exit are kept, and from rsp to what it was at the site."""

    address: int
    keeps: bool
    entry: int
    depth: int


class FastPath:
    """The lines of a fast path. `load` loads an operand where nothing is pushed."""

    def __init__(
        self, fast: Fast, args: Sequence[CType], operands: Sequence[Operand], slot: Slot, load: Word
    ) -> None:
        self._machine = fast.machine
        self._layout = fast.layout
        self._arguments = list(zip(operands, args, strict=True))
        self._takes = any(isinstance(operand, Kept | Duration) for operand in operands)
        self._slot = slot
        self._load = load

    def straight(self) -> Iterator[str]:
        """What stands in the straight line: counting. It comes to where the stub gives back what
        it has saved, which is `none`."""
        slot, machine = self._slot, self._machine
        yield part(Name.ASKED)
        yield f"movabs rax, {_at(slot.address)}"
        yield "test rax, rax"
        yield f"je {'unasked' if slot.keeps else 'none'}"
        yield part(Name.IS_COUNT)
        yield f"mov {_below(_R10_AT)}, r10"
        yield f"movabs r10, {number(_ANY_COUNT)}"
        yield "cmp rax, r10"
        yield "jne other"
        yield from self._named(OF_COUNT)
        yield part(Name.CPU)
        yield "start:"
        yield from self._cpu("slow")
        yield part(Name.COUNT_CPU)
        yield f"shl r10, {number(machine.counters)}"
        yield f"movabs rax, {_at(slot.address + SLOT_DATA)}"
        # Whatever stands in the entry by now, a place of the table.
        yield f"mov eax, dword ptr [rax + {number(MarkerEntry.id.offset)}]"
        yield f"and eax, {number(machine.markers)}"
        yield f"shl rax, {number(log2(COUNT_SIZE))}"
        yield "add r10, rax"
        yield f"movabs rax, {number(_ANY_COUNTS)}"
        yield part(Name.COUNT)
        yield "inc qword ptr [r10 + rax]"
        yield "end:"
        yield part(Name.BACK)
        yield "back:"
        yield f"mov r10, {_below(_R10_AT)}"
        if slot.keeps:
            yield part(Name.KEEPS_ASKED)
            yield "unasked:"
            yield f"movabs rax, {_at(slot.address + SLOT_TOKEN)}"
            yield "test rax, rax"
            yield "jne keep"

    def tail(self) -> Iterator[str]:
        """What stands behind the way back into the program. It comes to where the slot is asked as
        without a fast path."""
        if self._layout:
            yield from self._record(self._layout)
        if self._slot.keeps:
            yield from self._keep()
        used = self._used_by_record
        if self._layout:
            yield part(Name.SIGNATURE)
            yield f"test eax, {number(RSEQ_SIGNATURE)}"
            yield part(Name.INTERRUPTED)
            yield "unrecorded:"
            yield from _restored(used)
            yield "jmp slow"
        yield part(Name.SIGNATURE)
        yield f"test eax, {number(RSEQ_SIGNATURE)}"
        yield part(Name.SLOW)
        if not self._layout:
            yield "other:"
        yield "slow:"
        yield f"mov r10, {_below(_R10_AT)}"

    @property
    def _used_by_record(self) -> tuple[str, ...]:
        return _OF_STASH if self._takes else _OF_RECORD

    def _named(self, sequence: str) -> Iterator[str]:
        yield part(Name.NAMED)
        yield f"lea r10, [rip + {sequence}]"
        yield f"mov {_of_thread('qword', self._machine.rseq + RSEQ_SEQUENCE)}, r10"

    def _cpu(self, otherwise: str) -> Iterator[str]:
        yield f"mov r10d, {_of_thread('dword', self._machine.rseq + RSEQ_CPU)}"
        yield f"movabs rax, {number(_ANY_ALIVE)}"
        yield "cmp r10d, dword ptr [rax]"
        yield f"jae {otherwise}"

    def _record(self, layout: Layout) -> Iterator[str]:
        yield part(Name.IS_RECORD)
        yield "other:"
        yield f"movabs r10, {number(_ANY_TAG)}"
        yield f"cmp qword ptr [rax - {number(TAG_BEFORE)}], r10"
        yield "jne slow"
        yield part(Name.SAVED)
        yield from _saved(self._used_by_record)
        yield f"mov edi, dword ptr [rax - {number(HEAD_BEFORE)}]"
        yield f"mov {_below(_HEAD_AT)}, rdi"
        yield from self._named(OF_RECORD)
        yield part(Name.CPU)
        yield "start_of_record:"
        yield from self._cpu("unrecorded")
        if self._takes:
            yield from self._find()
        yield part(Name.CLAIM)
        yield f"movabs rax, {number(_ANY_HEADS)}"
        yield f"shl r10, {number(log2(RING_HEAD_SIZE))}"
        yield "add r10, rax"
        yield "mov rdi, qword ptr [r10]"
        yield f"lea rax, [rdi + {number(layout.size)}]"
        yield f"cmp rax, qword ptr [r10 + {number(RING_ROOM)}]"
        yield "ja unrecorded"
        yield f"and rdi, qword ptr [r10 + {number(RING_MASK)}]"
        yield f"add rdi, qword ptr [r10 + {number(RING_DATA)}]"
        yield f"prefetchw byte ptr [rdi + {number(AHEAD)}]"
        lasts = any(isinstance(operand, Duration) for operand, _ in self._arguments)
        if layout.timed or lasts:
            yield part(Name.CLOCK)
            yield from _clock()
        if layout.timed:
            yield "mov qword ptr [rdi + 8], rax"
        if lasts:
            yield part(Name.SINCE)
            yield from _duration()
        yield part(Name.RECORD)
        yield from self._head(layout)
        yield from self._fields(layout)
        yield part(Name.COMMIT)
        yield f"add qword ptr [r10], {number(layout.size)}"
        yield "end_of_record:"
        if self._takes:
            yield part(Name.TAKEN)
            yield f"mov qword ptr [rcx{plus(Place.token.offset)}], 0"
        yield part(Name.BACK)
        yield from _restored(self._used_by_record)
        yield "jmp back"

    def _head(self, layout: Layout) -> Iterator[str]:
        if layout.tid and self._machine.tid >= 0:
            yield f"movabs eax, {_of_thread('dword', self._machine.tid)}"
            yield "shl rax, 0x20"
            yield f"or rax, {_below(_HEAD_AT)}"
        else:
            yield f"mov rax, {_below(_HEAD_AT)}"
        yield "mov qword ptr [rdi], rax"

    def _fields(self, layout: Layout) -> Iterator[str]:
        if layout.rsp:
            yield f"lea rax, [rsp + {number(self._slot.depth)}]"
            yield f"mov qword ptr [rdi + {number(layout.rsp_at)}], rax"
        for field in fields_of(layout):
            if field.kind not in (OP_GP, OP_FP, OP_SINCE):
                continue
            yield from self._loaded(*self._arguments[field.arg], self._used_by_record)
            place = f"{SIZES[field.size_bits]} ptr [rdi + {number(field.offset)}]"
            yield f"mov {place}, {ACCUMULATOR[field.size_bits]}"

    def _loaded(self, operand: Operand, ctype: CType, saved: Sequence[str]) -> Iterator[str]:
        """An operand in rax, where these registers have other values by now."""
        match operand:
            case Duration():
                yield f"mov rax, {_below(_DURATION_AT)}"
            case Kept(argument):
                yield f"mov rax, qword ptr [rcx + {number(_argument_at(argument))}]"
            case _:
                yield from self._load(self._as_saved(operand, saved), ctype)

    def _as_saved(self, operand: Operand, saved: Sequence[str]) -> Operand:
        """Where the stub has put what the program has in a register."""
        match operand:
            case General((*_, name)) if name in saved:
                return self._in_memory(_SAVED_AT[name])
            case General((*_, "r10")) if saved is not _OF_STASH or self._takes:
                return self._in_memory(_R10_AT)
            case HighByte(name) if f"r{name[0]}x" in saved:
                return self._in_memory(_SAVED_AT[f"r{name[0]}x"] - 1)
        return operand

    def _in_memory(self, below: int) -> Memory:
        return Memory("rsp", -below - self._slot.depth)

    def _find(self) -> Iterator[str]:
        """rcx = the place where the entry has kept what is recorded; r11 = the stash."""
        yield part(Name.KEPT)
        yield f"movabs rax, {_at(self._slot.entry + SLOT_TOKEN)}"
        yield "test rax, rax"
        yield "je unrecorded"
        yield from _stash(self._slot.entry, "unrecorded")
        yield from self._place("unrecorded")
        yield f"cmp qword ptr [rcx{plus(Place.token.offset)}], r11"
        yield "jne unrecorded"
        yield "mov r11, rdx"

    def _place(self, otherwise: str) -> Iterator[str]:
        """rcx = the place for the stack pointer in the stash at rdx, as stash.S finds it at its
        first try. Changes rax and rdi."""
        yield f"lea rax, [rsp + {number(self._slot.depth)}]"
        yield "mov rcx, rax"
        yield "shr rcx, 0xc"
        yield f"movabs rdi, {number(STASH_SPREAD)}"
        yield "imul rdi, rcx"
        yield f"shr rdi, {number(64 - STASH_BITS)}"
        yield f"cmp qword ptr [rdx + rdi*8 + {number(STASH_TABLE)}], rcx"
        yield f"jne {otherwise}"
        yield f"and eax, {number(_IN_PAGE)}"
        yield f"shl eax, {number(STASH_STRIDE_BITS - 3)}"
        yield f"shl rdi, {number(12 - 3 + STASH_STRIDE_BITS)}"
        yield f"lea rcx, [rdx + rdi + {number(STASH_KEPT)}]"
        yield "add rcx, rax"

    def _keep(self) -> Iterator[str]:
        """The entry's token is in rax."""
        yield part(Name.KEEPS)
        yield "keep:"
        yield from _saved(_OF_STASH)
        yield from _stash(self._slot.address, "unkept")
        yield from self._place("claim")
        yield "found:"
        yield f"mov qword ptr [rcx{plus(Place.token.offset)}], 0"
        for index, (operand, ctype) in enumerate(self._arguments[:STASH_ARGS]):
            yield from self._loaded(operand, ctype, _OF_STASH)
            yield f"mov qword ptr [rcx + {number(_argument_at(index))}], rax"
        yield from _clock()
        yield f"mov qword ptr [rcx + {number(Place.time.offset)}], rax"
        yield f"mov qword ptr [rcx{plus(Place.token.offset)}], r11"
        yield "unkept:"
        yield from _restored(_OF_STASH)
        yield "jmp none"
        yield part(Name.CLAIMED)
        yield "claim:"
        yield f"lea rsp, [rsp - {number(_DEPTH_OF_CALL)}]"
        yield f"lea rax, [rsp + {number(self._slot.depth + _DEPTH_OF_CALL)}]"
        yield f"call qword ptr [rdx{plus(Stash.claim.offset)}]"
        yield f"lea rsp, [rsp + {number(_DEPTH_OF_CALL)}]"
        yield "test rax, rax"
        yield "je unkept"
        yield "mov rcx, rax"
        yield "jmp found"


def _stash(slot: int, otherwise: str) -> Iterator[str]:
    """r11 = the token in rax, which is that of a slot; rdx = its stash."""
    yield "mov r11, rax"
    yield f"movabs rax, {_at(slot + SLOT_STASH)}"
    yield "test rax, rax"  # 0 in a child, as in stub_lines.py
    yield f"je {otherwise}"
    yield "mov rdx, rax"


def _saved(registers: Sequence[str]) -> Iterator[str]:
    return (f"mov {_below(_SAVED_AT[register])}, {register}" for register in registers)


def _restored(registers: Sequence[str]) -> Iterator[str]:
    return (f"mov {register}, {_below(_SAVED_AT[register])}" for register in registers)


def _clock() -> Iterator[str]:
    yield "rdtsc"
    yield "shl rdx, 0x20"
    yield "or rax, rdx"


def _duration() -> Iterator[str]:
    """Of the time in rax, since the time that is kept at rcx, with the stash at r11."""
    yield f"sub rax, qword ptr [rcx + {number(Place.time.offset)}]"
    yield "jae since"
    yield "xor eax, eax"  # another CPU's counter is some ticks behind
    yield "since:"
    yield f"mul qword ptr [r11 + {number(Stash.ns_per_tick.offset)}]"
    yield "shrd rax, rdx, 0x20"
    yield f"mov {_below(_DURATION_AT)}, rax"


def ends_of(fast: Fast) -> tuple[str, ...]:
    """The labels where the sequences of a stub begin and end."""
    return _ENDS_OF_BOTH if fast.layout else _ENDS_OF_COUNT


def before_stub(fast: Fast, ends: Sequence[int]) -> bytes:
    """What stands before a stub whose `ends_of` are at these addresses: what the kernel is told of
    its sequences, and which records it knows."""
    count = _descriptor(*ends[:3])
    record = _descriptor(*ends[3:]) if fast.layout else bytes(SEQUENCE.size)
    return (count + record + _WAY.pack(fast.way)).ljust(BEFORE, b"\0")


def _descriptor(start: int, end: int, otherwise: int) -> bytes:
    return SEQUENCE.pack(0, 0, start, end - start, otherwise)


def _at(address: int) -> str:
    return f"qword ptr [{number(address)}]"


def _below(distance: int) -> str:
    return f"qword ptr [rsp - {number(distance)}]"


def _of_thread(size: str, offset: int) -> str:
    return f"{size} ptr fs:[{offset_of_thread(offset)}]"


def _argument_at(index: int) -> int:
    return Place.args.offset + _WORD * index
