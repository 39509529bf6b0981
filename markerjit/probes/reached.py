"""The code that a slot leads to, in parts with names: adapters, recorders, probes of the runtime,
probes in C.

The bytes are those in memory, and the boundaries come from where the code was made. Of a recorder
the assembler says them: it is made once more, from what the arena has of its marker, and its parts
are believed only if each byte is the same. Of the runtime its entry says where its restartable
sequences are, of a probe in C what was written down when it was loaded. Code whose parts are not
known has none here, and a remark.

What this does not do: change anything, or say what stands before the slot (explain/path.py).
"""

from __future__ import annotations

from markerjit.abi import (
    CODE_SIZE,
    PROBE_COUNTED,
    SEQUENCE_COUNT,
    SEQUENCE_ENTER,
    SEQUENCE_ENTER_SAVING,
    SEQUENCE_LEAVE,
    SEQUENCE_LEAVE_SAVING,
)
from markerjit.arena.arena import Arena
from markerjit.elf import Read
from markerjit.errors import MarkerError
from markerjit.model import RemoteAddress, Signature
from markerjit.patch.request import Probe, Record
from markerjit.patch.where import Where
from markerjit.probes.loaded import loaded, replacement_at
from markerjit.probes.parts import Role, role_of
from markerjit.probes.record import recording, takes_a_recorder
from markerjit.probes.recorder import LARGEST, Recorder, make_recorder, setting_of, shape_of
from markerjit.tuples import NamedTuple
from markerjit.x86.decode import disassemble

_RUNTIME = "the runtime"
_RECORDER = "the recorder of this marker"
_QUESTION = "the question of this marker"
_LONGEST = 1024
"""More bytes than an adapter of the runtime has, or one of its probes up to the return."""


class Piece(NamedTuple):
    """Code or data of one part.

    where      the thing that it is a part of
    in_memory  whether the process has it; otherwise it is what a switch would put there
    """

    name: str
    role: Role
    where: str
    address: int
    code: bytes
    in_memory: bool = True


class Content(NamedTuple):
    """What a slot holds, or would: its probe, the probe's data, and the adapter."""

    probe: RemoteAddress
    data: RemoteAddress
    adapter: RemoteAddress = RemoteAddress(0)


class Reached(NamedTuple):
    """The code behind a slot: on the usual way, in the order in which it is executed; the rest of
    it; and what there is to say."""

    usual: tuple[Piece, ...] = ()
    rest: tuple[Piece, ...] = ()
    remarks: tuple[str, ...] = ()


class Planned(NamedTuple):
    """What a switch would put into a slot, and the recorder that it would make for it."""

    content: Content
    recorder: Recorder | None = None


def planned(arena: Arena, signature: Signature, probe: Probe, *, preserving: bool) -> Planned:
    """What switching a marker on would put into its slot, for a probe of the runtime's. Nothing is
    written. Raises BadNote."""
    made = recording(signature, probe.options)
    known = arena.markers.known(signature.text, made.entry())
    marker = arena.markers.used if known is None else known
    data = arena.markers.address(marker)
    if not isinstance(probe, Record):
        return Planned(Content(arena.count_probe(preserving=preserving), data))
    entry = made.entry() if known is None else arena.markers.entry(known)
    place = arena.code.place(LARGEST)
    has_recorder = entry.recorder if preserving else entry.recorder_of_c
    if has_recorder or place is None or not takes_a_recorder(made, arena.facts):
        generic = arena.entry.record_block if preserving else arena.entry.record
        return Planned(Content(RemoteAddress(arena.base + (has_recorder or generic)), data))
    shape = shape_of(marker, data, made.entry(), preserving=preserving)
    recorder = make_recorder(shape, setting_of(arena), place)
    return Planned(Content(RemoteAddress(recorder.entry), data), recorder)


def reached(arena: Arena, read: Read, content: Content, *, preserving: bool) -> Reached:
    """The code that a slot with this content leads to, as it is in memory. Raises MemoryFault,
    TargetGone."""
    try:
        return _reached(arena, read, content, preserving=preserving)
    except _NoSense:
        remark = f"what the runtime says of its code at {content.probe:#x} makes no sense"
        return Reached(remarks=(remark,))


class _NoSense(MarkerError):
    """The process has written over what its arena says."""


def _reached(arena: Arena, read: Read, content: Content, *, preserving: bool) -> Reached:
    probe, data, _ = content
    if probe & PROBE_COUNTED:
        return _function(arena, read, content, preserving=preserving)
    marker = arena.markers.at(data)
    if marker is not None and arena.question(data):
        return _asking(arena, read, marker, content)
    if arena.counts(probe, data):
        return _counting(arena, read, probe)
    if marker is not None and arena.records(probe, data):
        own = arena.markers.entry(marker)
        if probe - arena.base == (own.recorder if preserving else own.recorder_of_c):
            return _recorder(arena, read, marker, probe, preserving=preserving)
        return _generic(read, probe)
    new = replacement_at(arena, probe)
    if new:
        remark = (
            f"{new} replaces the function: at {probe:#x} the stack and the registers become what "
            "they were, and it is jumped to"
        )
        return Reached(remarks=(remark,))
    return Reached(remarks=(f"{probe:#x} is a probe that is not ours: its parts are not known",))


def pieces_of(recorder: Recorder, code: bytes, *, in_memory: bool) -> Reached:
    """A recorder by its parts. `code` is what stands there."""
    start = recorder.parts[0].start
    pieces = [
        Piece(
            part.name, role_of(part.name), _RECORDER, part.start,
            code[part.start - start : part.end - start], in_memory,
        )
        for part in recorder.parts
    ]  # fmt: skip
    unusual = (Role.RARE, Role.DATA)
    return Reached(
        tuple(piece for piece in pieces if piece.role not in unusual),
        tuple(piece for piece in pieces if piece.role in unusual),
    )


def _recorder(
    arena: Arena, read: Read, marker: int, probe: RemoteAddress, *, preserving: bool
) -> Reached:
    address, entry = arena.markers.address(marker), arena.markers.entry(marker)
    unknown = Reached(
        remarks=(f"the recorder at {probe:#x} is not as this markerjit makes it: its parts are not "
                 "known",)
    )  # fmt: skip
    try:
        shape = shape_of(marker, address, entry, preserving=preserving)
        setting = setting_of(arena)
        # The way from its start to its entry is the same at every place.
        trial = make_recorder(shape, setting, probe)
        start = RemoteAddress(2 * probe - trial.entry)
        made = make_recorder(shape, setting, start)
    except (MarkerError, LookupError, ValueError):  # the process can write anything into the entry
        return unknown
    code = read(start, len(made.code))
    return pieces_of(made, code, in_memory=True) if code == made.code else unknown


def _asking(arena: Arena, read: Read, marker: int, content: Content) -> Reached:
    """The code of a question, which ends with a return, and what it goes on to."""
    entry, start = arena.markers.entry(marker), content.probe
    whole = _read(read, start, RemoteAddress(arena.base + int(entry.question_text)), CODE_SIZE)
    code = _through_return(whole, start)
    text = Where.again(arena.question(content.data), 0).shown
    question = Piece(text, Role.WORK, _QUESTION, start, code)
    known = {arena.base + gate for gate in _gates(arena)}
    leaving = [
        int(target, 16)
        for operation, _, target in (line.text.partition(" ") for line in disassemble(code, start))
        if operation in ("jmp", "call")
        and not start <= int(target, 16) < start + len(code)
        and int(target, 16) not in known
    ]
    if len(leaving) != 1:
        raise _NoSense("the code of a question goes on in one place")
    probe = RemoteAddress(leaving[0])
    if probe == arena.count_probe(preserving=True):
        behind = _counting(arena, read, probe)
    elif probe - arena.base == arena.entry.record_block:
        behind = _generic(read, probe)
    else:
        behind = _recorder(arena, read, marker, probe, preserving=True)
    return behind._replace(usual=(question, *behind.usual))


def _gates(arena: Arena) -> tuple[int, ...]:
    """What the code of a question calls of the runtime besides the probe."""
    return arena.entry.gate_ask, arena.entry.gate_load, arena.entry.gate_clock


def _generic(read: Read, probe: RemoteAddress) -> Reached:
    name = "any event is recorded by the runtime, up to the first return"
    return Reached(usual=(_up_to_return(read, name, Role.WORK, probe),))


def _counting(arena: Arena, read: Read, probe: RemoteAddress) -> Reached:
    if probe - arena.base != arena.entry.count_block:
        name = "the execution is counted by the runtime, up to the first return"
        return Reached(usual=(_up_to_return(read, name, Role.WORK, probe),))
    start, end = _sequence(arena, SEQUENCE_COUNT)
    usual = (
        _piece(read, "registers are saved, the restartable sequence is named", Role.SAVE, probe,
               start),
        *_sequence_pieces(read, start, end, "the counter of this CPU is found",
                          "commit: the execution is counted"),
        _up_to_return(read, "the way back", Role.BACK, end),
    )  # fmt: skip
    return Reached(usual=usual)


def _function(arena: Arena, read: Read, content: Content, *, preserving: bool) -> Reached:
    """A probe in C, with the adapter through which a preserving call reaches it."""
    function = _function_piece(arena, read, RemoteAddress(content.probe & ~PROBE_COUNTED))
    if function is None:
        remark = f"{content.probe - 1:#x} is a probe of the program's own: its code is not shown"
        return Reached(remarks=(remark,))
    if not preserving:
        return Reached(usual=(function,))
    plain = content.adapter == arena.adapter(vectors=False)
    if not plain and content.adapter != arena.adapter(vectors=True):
        return Reached(usual=(function,), remarks=(f"the adapter at {content.adapter:#x} is not "
                                                   "the runtime's",))  # fmt: skip
    enter = _sequence(arena, SEQUENCE_ENTER if plain else SEQUENCE_ENTER_SAVING)
    leave = _sequence(arena, SEQUENCE_LEAVE if plain else SEQUENCE_LEAVE_SAVING)
    usual = (
        _piece(read, "registers are saved, the marker's counters are found", Role.SAVE,
               content.adapter, enter[0]),
        *_sequence_pieces(read, *enter, "the counter of this CPU is found",
                          "commit: the call has begun"),
        _piece(read, "arguments are loaded, the function is called", Role.WORK, enter[1], leave[0]),
        function,
        *_sequence_pieces(read, *leave, "the counter of this CPU is found",
                          "commit: the call is over"),
        _up_to_return(read, "the way back", Role.BACK, leave[1]),
    )  # fmt: skip
    return Reached(usual=usual)


def _function_piece(arena: Arena, read: Read, address: RemoteAddress) -> Piece | None:
    """The code of a probe in C: up to the next function of its file, or to the end of that."""
    for file in loaded(arena):
        for name, entry in file.entries.items():
            if entry == address:
                ends = [*file.entries.values(), arena.base + file.unit.code.end]
                end = min((end for end in ends if end > address), default=address)
                code = _read(read, address, RemoteAddress(end), CODE_SIZE)
                return Piece(f"{file.source}:{name}", Role.WORK, "a probe in C", address, code)
    return None


def _sequence(arena: Arena, number: int) -> tuple[RemoteAddress, RemoteAddress]:
    """Where a restartable sequence of the runtime begins and ends."""
    sequence = arena.entry.sequences[number]
    return RemoteAddress(arena.base + sequence.start), RemoteAddress(arena.base + sequence.end)


def _sequence_pieces(
    read: Read, start: RemoteAddress, end: RemoteAddress, before: str, commit: str
) -> tuple[Piece, Piece]:
    """A restartable sequence, and by itself its last instruction, which makes it true."""
    instructions = disassemble(_read(read, start, end), start)
    if not instructions:
        raise _NoSense("the sequence has no instruction")
    last = instructions[-1].address
    return (
        _piece(read, before, Role.SEQUENCE, start, RemoteAddress(last)),
        _piece(read, commit, Role.COMMIT, RemoteAddress(last), end),
    )


def _piece(read: Read, name: str, role: Role, start: RemoteAddress, end: RemoteAddress) -> Piece:
    return Piece(name, role, _RUNTIME, start, _read(read, start, end))


def _read(read: Read, start: RemoteAddress, end: RemoteAddress, most: int = _LONGEST) -> bytes:
    if not start < end <= start + most:
        raise _NoSense(f"code from {start:#x} to {end:#x}")
    return read(start, end - start)


def _up_to_return(read: Read, name: str, role: Role, start: RemoteAddress) -> Piece:
    return Piece(name, role, _RUNTIME, start, _through_return(read(start, _LONGEST), start))


def _through_return(code: bytes, start: RemoteAddress) -> bytes:
    """The code up to its first return, and with it."""
    size = 0
    for instruction in disassemble(code, start):
        size += len(instruction.code)
        if instruction.text == "ret":
            break
    return code[:size]
