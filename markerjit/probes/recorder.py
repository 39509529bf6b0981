"""The recorder of one marker: code assembled for its arguments, its id, and this arena.

It is called by the body of the marker, in one of two ways (calls.py says where the arguments are
then, and which registers it saves). In a restartable sequence on the ring of its CPU (restart.S
says what that promises) it

     1  names the sequence to the kernel
     2  reads the CPU's number; in the child of a fork, and in a thread without such sequences, it
        leaves the event to the runtime
     3  finds the ring, and whether there is room in its page; if not, mj_turn makes some, and it
        begins again, or the ring is full and mj_lose counts that; the runtime does both for a
        marker whose events wait
     4  reads the clock, and makes a duration of the time when that began
     5  writes the record
     6  stores the new head: from now on the record is there
     7  counts it, in a second sequence, if no reader takes records out and counts them

Interrupted before 6 it leaves the event to the runtime, before the end of 7 the count. Those
functions need the arguments, so until 6 only %rax, %rdi and %r10 are changed, %rdx by the clock,
and by texts what calls.py says.

A text is read in the same sequence where that is simple (texts.py). Otherwise the event is left to
the runtime.

Recorders of records with one layout differ in the id of the marker and in the distances to what
they lead to. So one is assembled for all of them, which may be tens of thousands.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Generator, Iterator, Sequence
from functools import lru_cache

from markerjit.abi import (
    ALIVE,
    CONTROL,
    COUNT_SIZE,
    MAX_RECORD,
    OP_FP,
    OP_GP,
    OP_SINCE,
    OP_SIZE_SHIFT,
    OP_STRING,
    PART_READABLE,
    RING_DATA,
    RING_HEAD_SIZE,
    RING_MASK,
    RING_ROOM,
    RSEQ_CPU,
    RSEQ_SEQUENCE,
    RSEQ_SIGNATURE,
    SINCE_TICKS,
    TURN_FULL,
    WORDS_SHIFT,
    Control,
    Geometry,
    MarkerEntry,
    ops_of,
)
from markerjit.arena.arena import Arena
from markerjit.errors import MarkerError
from markerjit.model import General, Memory, Vector
from markerjit.probes.before import SEQUENCE
from markerjit.probes.calls import Frame, Operand, c_call, preserving_call
from markerjit.probes.parts import Name, part
from markerjit.probes.texts import BEHIND, put_text, window
from markerjit.ring.types import HEAD, WORD
from markerjit.tuples import NamedTuple
from markerjit.x86.assemble import (
    Part,
    Reference,
    assemble_anywhere,
    displacement,
    number,
    plus,
)
from markerjit.x86.encoding import WronglyAssembled

ACCUMULATOR = ("al", "ax", "eax", "rax")
SIZES = ("byte", "word", "dword", "qword")
"""Parts of rax, and of memory, by log2 of their bytes."""
SEQUENCE_NAMES = ("record_sequence", "count_sequence")
_WORD = struct.Struct("<I")
_SIGNATURE = struct.pack("<I", RSEQ_SIGNATURE)
AHEAD = 512
"""Distance in bytes of the prefetch for writing: a ring is larger than a cache, so a write would
wait for its line (256 to 2048 were measured alike)."""

LARGEST = 2048
"""More bytes than any recorder takes."""
ALIGN = 32
"""A recorder begins at a multiple of this, and so ends at one."""
_TEMPLATES = 256
_NAMES = (
    "entry", "record_event", "pass", "make_room", "lose", "gate_record", "gate_pass", "gate_lose",
    "heads", "alive", "counts", "ns_per_tick", "readable",
)  # fmt: skip
"""What a recorder leads to: `names_of` says where it is."""
_ANY_MARKER = 0x2A5A5A
"""An id whose bytes are nowhere else in a recorder."""
TAG_BEFORE, HEAD_BEFORE = 8, 16
"""Bytes before the code of a recorder, where a stub reads which layout its records have, and their
head (fast.py)."""
TAG_SIZE = 8


class Setting(NamedTuple):
    """Where a recorder will run: what of an arena it has to know."""

    base: int
    control: Control
    geometry: Geometry
    record_event: int
    pass_: int
    turn: int
    lose: int
    gate_record: int
    gate_pass: int
    gate_lose: int


class Shape(NamedTuple):
    """The record that a recorder writes: the id of its marker, how each argument is taken
    (MJ_OP_*), the size of the record with its texts empty, whether it has a time and a thread id,
    whether each is counted too, and the most bytes of each argument that is a text; whether its
    caller makes a preserving call, or an ordinary C call; whether events wait where the ring is
    full; and the words from the first argument to the program's stack pointer, 0 where that is not
    in the record."""

    marker: int
    entry: int
    ops: bytes
    size: int
    timed: bool
    tid: bool
    counted: bool = True
    limits: tuple[int, ...] = ()
    preserving: bool = True
    waits: bool = False
    to_stack: int = 0

    @property
    def has_text(self) -> bool:
        """Whether an argument is a text; then the size of a record is not known before."""
        return OP_STRING in self.ops

    @property
    def reads_clock(self) -> bool:
        """Whether it reads the time stamp counter, into rax and rdx."""
        return self.timed or self.has_text or self.has_duration

    @property
    def has_duration(self) -> bool:
        """Whether an argument is the duration of a call. Only stubs have such, and make a
        preserving call."""
        return self.preserving and any(map(_is_duration, self.ops))

    def frame(self) -> Frame:
        """What stands around its code."""
        if self.preserving:
            return preserving_call(len(self.ops), clock=self.reads_clock, texts=self.has_text)
        return c_call(self.ops, texts=self.has_text)


class Layout(NamedTuple):
    """Where a record without texts has what: how each argument is taken (MJ_OP_*), the size of the
    record, whether it has a time, a thread id and the program's stack pointer, and whether the
    recorder counts it, too. Records of two markers may be alike in all that."""

    ops: bytes
    size: int
    timed: bool
    tid: bool
    rsp: bool
    counted: bool

    @property
    def rsp_at(self) -> int:
        """Where the stack pointer is, and without one the first field."""
        return 16 if self.timed else 8


class Stored(NamedTuple):
    """A field of a record: the number of its argument, how that is taken (MJ_OP_*), log2 of its
    size, and where it is."""

    arg: int
    kind: int
    size_bits: int
    offset: int


def layout_of(shape: Shape) -> Layout:
    """The layout of a recorder's records."""
    return Layout(
        shape.ops, shape.size, shape.timed, shape.tid, bool(shape.to_stack), shape.counted
    )


def tag_of(layout: Layout) -> bytes:
    """What says the layout, in eight bytes."""
    return hashlib.blake2b(repr(tuple(layout)).encode(), digest_size=TAG_SIZE).digest()


def tag_before(recorder: Recorder) -> bytes:
    """The tag before the code of a recorder."""
    at = recorder.entry - recorder.parts[0].start
    return recorder.code[at - TAG_BEFORE : at - TAG_BEFORE + TAG_SIZE]


def fields_of(layout: Layout) -> Iterator[Stored]:
    """The fields of a record without texts, at multiples of their sizes."""
    at = layout.rsp_at + WORD * layout.rsp
    for arg, op in enumerate(layout.ops):
        kind, size_bits = op & (1 << OP_SIZE_SHIFT) - 1, op >> OP_SIZE_SHIFT
        if kind in (OP_GP, OP_FP, OP_SINCE):
            size = 1 << size_bits
            at = -(-at // size) * size
            yield Stored(arg, kind, size_bits, at)
            at += size


def _is_duration(op: int) -> bool:
    return op & (1 << OP_SIZE_SHIFT) - 1 == OP_SINCE


class Place(NamedTuple):
    """What a recorder's instructions have of its setting: offsets from a thread's pointer, and by
    how many bits a ring's number is shifted to be the offset of its counters."""

    rseq: int
    tid: int
    counters: int


class Descriptor(NamedTuple):
    """Of a restartable sequence: offsets of its own place, of where it begins and ends, and of what
    is done where it is interrupted."""

    at: int
    start: int
    end: int
    handler: int


class Template(NamedTuple):
    """A recorder of any marker for any address. All numbers are offsets from its start."""

    code: bytes
    entry: int
    parts: tuple[Part, ...]
    references: tuple[Reference, ...]
    descriptors: tuple[Descriptor, ...]
    head: int


class Recorder(NamedTuple):
    """Code to be put at the address that it was made for; the probe's own is `entry`. Each byte
    belongs to one of the `parts`, which are in the order of their addresses."""

    code: bytes
    entry: int
    parts: tuple[Part, ...]


def setting_of(arena: Arena) -> Setting:
    """Where the recorders of an arena run."""
    entry = arena.entry
    return Setting(
        arena.base,
        arena.facts,
        arena.geometry,
        record_event=arena.base + entry.record_event,
        pass_=arena.base + entry.pass_,
        turn=arena.base + entry.turn,
        lose=arena.base + entry.lose,
        gate_record=arena.base + entry.gate_record,
        gate_pass=arena.base + entry.gate_pass,
        gate_lose=arena.base + entry.gate_lose,
    )


def shape_of(marker: int, address: int, entry: MarkerEntry, *, preserving: bool) -> Shape:
    """The record of a marker that is recorded as its entry says, which is at this address."""
    return Shape(
        marker,
        address,
        ops_of(entry)[: entry.argc],
        int(entry.size),
        timed=bool(entry.time),
        tid=bool(entry.tid),
        counted=bool(entry.counted),
        limits=(*entry.limits, *(0 for _ in entry.more_ops))[: entry.argc],
        preserving=preserving,
        waits=bool(entry.waits),
        to_stack=int(entry.to_stack),
    )


def make_recorder(shape: Shape, setting: Setting, address: int) -> Recorder:
    """A recorder for `address`, a multiple of 32. Raises WronglyAssembled, and MarkerError for a
    record that a page has no room for: the code would write behind it."""
    made = template_of(shape, setting)
    names = names_of(shape, setting)
    code = bytearray(made.code)
    for at, start, end, handler in made.descriptors:
        sequence = SEQUENCE.pack(0, 0, address + start, end - start, address + handler)
        _put(code, at, sequence)
    names |= {
        name: address + descriptor.at
        for name, descriptor in zip(SEQUENCE_NAMES, made.descriptors, strict=False)
    }
    for reference in made.references:
        _put(code, reference.at, displacement(reference, address, names))
    head = _WORD.pack(number_in_head(shape))
    _put(code, made.head, head)
    _put(code, made.entry - HEAD_BEFORE, head)
    parts = tuple(Part(name, address + start, address + end) for name, start, end in made.parts)
    return Recorder(bytes(code), address + made.entry, parts)


def template_of(shape: Shape, setting: Setting) -> Template:
    """The recorder of all markers whose records are alike, whatever their ids. Raises as
    `make_recorder`."""
    if shape.size > MAX_RECORD:
        raise MarkerError(f"no page has room for a record of {shape.size} bytes")
    control, markers = setting.control, setting.geometry.max_markers
    place = Place(control.rseq_offset, control.tid_offset, log2(markers * COUNT_SIZE))
    return _template(shape._replace(marker=_ANY_MARKER, entry=0), place)


@lru_cache(_TEMPLATES)
def _template(shape: Shape, place: Place) -> Template:
    """The recorder of all markers whose records are alike."""
    names = (*_NAMES, *SEQUENCE_NAMES)
    frame = shape.frame()
    spans = [("start", "end"), ("count", "counted")][: 1 + shape.counted]
    starts = [number * SEQUENCE.size for number in range(len(spans))]
    at = starts[-1] + SEQUENCE.size
    interrupted = [*(frame.back if shape.reads_clock else ()), *frame.to_record]
    described = zip((Name.DESCRIPTOR, Name.COUNT_DESCRIPTOR), starts, strict=False)
    parts = [Part(name, start, start + SEQUENCE.size) for name, start in described]
    sources = [part(Name.INTERRUPTED), *interrupted], [part(Name.UNCOUNTED), *frame.to_count]
    pieces: list[tuple[int, bytes]] = []
    references: list[Reference] = []
    for source in (*sources[: len(spans)], list(_source(shape, frame, place))):
        is_handler = len(pieces) < len(spans)
        before = len(_SIGNATURE) if is_handler else HEAD_BEFORE
        at = _aligned(at + before)
        parts.append(Part(Name.SIGNATURE if is_handler else Name.TAG, at - before, at))
        made = assemble_anywhere(source, names)
        code = made.code
        parts += (Part(name, at + start, at + end) for name, start, end in made.parts)
        references += (Reference(at + to, at + end, name) for to, end, name in made.references)
        pieces.append((at, code))
        at += len(code)
    *handlers, (entry, main) = pieces
    whole = bytearray(_aligned(at))
    for start, code in handlers:
        _put(whole, start - len(_SIGNATURE), _SIGNATURE + code)
    _put(whole, entry, main)
    labels = made.labels
    descriptors = tuple(
        Descriptor(start, entry + labels[first], entry + labels[behind], handler)
        for start, (first, behind), (handler, _) in zip(starts, spans, handlers, strict=True)
    )
    head = _WORD.pack(number_in_head(shape))
    if whole.count(head) != 1:
        raise WronglyAssembled("the id of the marker is not where it should be")
    at_head = whole.index(head)
    _put(whole, entry - TAG_BEFORE, tag_of(layout_of(shape)))
    padded = _with_padding(parts, len(whole))
    places = tuple(references)
    return Template(bytes(whole), entry, padded, places, descriptors, at_head)


def number_in_head(shape: Shape) -> int:
    """The number with the id of the marker that a recorder writes."""
    return shape.marker if shape.has_text else HEAD.pack(shape.marker, shape.size // WORD)


def _with_padding(parts: Sequence[Part], end: int) -> tuple[Part, ...]:
    """These parts, and what lies between them and up to the end."""
    padded: list[Part] = []
    for each in (*parts, Part(Name.PADDING, end, end)):
        behind = padded[-1].end if padded else each.start
        if behind < each.start:
            padded.append(Part(Name.PADDING, behind, each.start))
        if each.start < each.end:
            padded.append(each)
    return tuple(padded)


def names_of(shape: Shape, setting: Setting) -> dict[str, int]:
    """What a recorder leads to, besides its own sequences, and where it is."""
    base, geometry = setting.base, setting.geometry
    return {
        "entry": shape.entry,
        "record_event": setting.record_event,
        "pass": setting.pass_,
        "make_room": setting.turn,
        "lose": setting.lose,
        "gate_record": setting.gate_record,
        "gate_pass": setting.gate_pass,
        "gate_lose": setting.gate_lose,
        "heads": base + geometry.head_offset(0),
        "alive": base + ALIVE,
        "counts": base + geometry.count_offset(0, shape.marker),
        "ns_per_tick": base + CONTROL + Control.ns_per_tick.offset,
        "readable": base + geometry.parts[PART_READABLE].offset,
    }


def _source(shape: Shape, frame: Frame, place: Place) -> Iterator[str]:
    sequence = f"qword ptr fs:[{offset_of_thread(place.rseq + RSEQ_SEQUENCE)}]"
    cpu = f"dword ptr fs:[{offset_of_thread(place.rseq + RSEQ_CPU)}]"
    yield part(Name.SAVED)
    yield from frame.begin
    if shape.reads_clock:
        yield from frame.keep
    yield part(Name.NAMED)
    yield "again:"
    yield "lea r10, [rip + record_sequence]"  # 1
    yield f"mov {sequence}, r10"
    yield part(Name.CPU)
    yield "start:"
    yield f"mov r10d, {cpu}"  # 2
    yield "cmp r10d, dword ptr [rip + alive]"
    yield "jae slow"
    yield part(Name.CLAIM)
    yield "lea rax, [rip + heads]"  # 3
    yield f"shl r10, {number(log2(RING_HEAD_SIZE))}"
    yield "add r10, rax"
    yield "mov rdi, qword ptr [r10]"
    yield f"lea rax, [rdi + {number(shape.size)}]"
    yield f"cmp rax, qword ptr [r10 + {number(RING_ROOM)}]"
    yield "ja turn"
    if shape.has_text:  # the room behind the head, and below the end of that
        yield f"mov r11, qword ptr [r10 + {number(RING_ROOM)}]"
        yield "sub r11, rdi"
    yield f"and rdi, qword ptr [r10 + {number(RING_MASK)}]"
    yield f"add rdi, qword ptr [r10 + {number(RING_DATA)}]"
    yield f"prefetchw byte ptr [rdi + {number(AHEAD)}]"
    if shape.has_text:
        yield f"lea r11, [rdi + r11 - {number(shape.size + BEHIND)}]"
        yield "mov r12, rdi"
    if shape.reads_clock:  # 4
        yield part(Name.CLOCK)
        yield "rdtsc"
        yield "shl rdx, 0x20"
        yield "or rax, rdx"
        if shape.timed:
            yield "mov qword ptr [rdi + 8], rax"
        if shape.has_duration:
            yield from _durations(shape, frame.operands)
        yield from frame.back
    if shape.has_text:
        yield from window()
    yield part(Name.RECORD)
    yield from _head(shape, place)  # 5
    behind = yield from _stores(shape, frame.operands, frame.words)
    if shape.has_text:
        yield from _head_of_texts(shape.marker, behind)
    yield part(Name.COMMIT)
    if shape.has_text:
        yield "mov qword ptr [r10], r11"  # 6
    else:
        yield f"add qword ptr [r10], {number(shape.size)}"
    yield "end:"
    if shape.counted:  # 7
        yield part(Name.COUNT_NAMED)
        yield "lea r10, [rip + count_sequence]"
        yield f"mov {sequence}, r10"
        yield part(Name.COUNT_CPU)
        yield "count:"
        yield f"mov r10d, {cpu}"
        yield "cmp r10d, dword ptr [rip + alive]"  # a signal handler may have forked just now
        yield "jae counted"
        yield "lea rax, [rip + counts]"
        yield f"shl r10, {number(place.counters)}"
        yield part(Name.COUNT)
        yield "inc qword ptr [r10 + rax]"
        yield "counted:"
    yield part(Name.BACK)
    yield from frame.end
    yield part(Name.ROOM)
    yield "turn:"
    yield from frame.make_room
    yield "test eax, eax"
    yield "je again"
    if not shape.waits:
        yield f"cmp eax, {number(TURN_FULL)}"
        yield "je full"
    yield part(Name.LEFT)
    yield "slow:"
    yield from frame.to_record
    if not shape.waits:
        yield part(Name.LOST)
        yield "full:"
        yield from frame.to_lose


def _head(shape: Shape, place: Place) -> Iterator[str]:
    """The id of the marker and the size, unless a text makes that unknown, and the thread's id: one
    store for both where they are known."""
    tid = shape.tid and place.tid >= 0
    head = number_in_head(shape)
    if tid:
        yield f"movabs eax, dword ptr fs:[{offset_of_thread(place.tid)}]"
    if shape.has_text:
        yield f"mov dword ptr [rdi + 4], {'eax' if tid else '0'}"
    elif head >> 31:  # would be a negative number as an operand of 64 bits
        yield f"mov dword ptr [rdi], {number(head)}"
        yield f"mov dword ptr [rdi + 4], {'eax' if tid else '0'}"
    elif tid:
        yield "shl rax, 0x20"
        yield f"or rax, {number(head)}"
        yield "mov qword ptr [rdi], rax"
    else:
        yield f"mov qword ptr [rdi], {number(head)}"


def _head_of_texts(marker: int, behind: int) -> Iterator[str]:
    """The head of the record at r12, whose last field ends `behind` bytes behind rdi; and the new
    head of the ring in r11."""
    padded = -(-behind // WORD) * WORD
    yield f"lea r11, [rdi{plus(padded)}]"
    yield "sub r11, r12"
    yield "mov eax, r11d"
    yield f"shl eax, {number(WORDS_SHIFT - log2(WORD))}"
    yield f"or eax, {number(marker)}"
    yield "mov dword ptr [r12], eax"
    yield "add r11, qword ptr [r10]"


def _stores(shape: Shape, operands: Sequence[Operand], words: int) -> Generator[str, None, int]:
    """The stack pointer, and the fields at multiples of their sizes, from where the arguments are;
    in memory the first one is `words` above rsp. A double in memory is a word like any other.
    Returns where the last one ends behind rdi, which texts move."""
    at = 16 if shape.timed else 8
    if shape.to_stack:
        yield f"lea rax, [rsp + {number(words + WORD * shape.to_stack)}]"
        yield f"mov qword ptr [rdi{plus(at)}], rax"
        at += WORD
    for index, (op, operand) in enumerate(zip(shape.ops, operands, strict=True)):
        kind, size_bits = op & (1 << OP_SIZE_SHIFT) - 1, op >> OP_SIZE_SHIFT
        if kind == OP_STRING:
            yield part(Name.TEXT)
            yield f"mov r13, {_word(operand)}"
            yield from put_text(index, -(-at // WORD) * WORD, shape.limits[index])
            yield part(Name.RECORD)
            at = 0
        if kind not in (OP_GP, OP_FP, OP_SINCE):
            continue
        size = 1 << size_bits
        at = -(-at // size) * size
        place = f"{SIZES[size_bits]} ptr [rdi{plus(at)}]"
        match operand:
            case Memory():
                yield f"mov rax, {_word(operand)}"
                yield f"mov {place}, {ACCUMULATOR[size_bits]}"
            case Vector(register):
                yield f"movsd {place}, xmm{register}"
            case General(names):
                yield f"mov {place}, {names[size_bits]}"
        at += size
    return at


def _durations(shape: Shape, operands: Sequence[Operand]) -> Iterator[str]:
    """Of the time in rax: each word with the time when something began becomes the nanoseconds
    since then. A sequence that begins anew, and the runtime where it is interrupted, find a
    duration there."""
    yield part(Name.SINCE)
    for index, (op, operand) in enumerate(zip(shape.ops, operands, strict=True)):
        if _is_duration(op):
            yield f"mov rdx, {_word(operand)}"
            yield f"btr rdx, {number(SINCE_TICKS)}"
            yield f"jae lasted{index}"
            yield "sub rax, rdx"
            yield f"jae later{index}"
            yield "xor eax, eax"  # another CPU's counter is some ticks behind
            yield f"later{index}:"
            yield "mul qword ptr [rip + ns_per_tick]"
            yield "shrd rax, rdx, 0x20"
            yield f"mov {_word(operand)}, rax"
            yield f"lasted{index}:"


def _word(operand: Operand) -> str:
    """All 64 bits of an argument that is no double in a register."""
    if isinstance(operand, General):
        return operand.names[-1]
    assert isinstance(operand, Memory)
    return f"qword ptr [{operand.base} + {number(operand.offset)}]"


def offset_of_thread(value: int) -> str:
    """From the fs base, as capstone writes it also where it is negative."""
    return number(value & (1 << 64) - 1)


def _put(code: bytearray, at: int, data: bytes) -> None:
    code[at : at + len(data)] = data


def _aligned(address: int) -> int:
    return -(-address // ALIGN) * ALIGN


def log2(value: int) -> int:
    """Of a power of two."""
    return value.bit_length() - 1
