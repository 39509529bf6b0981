"""How a marker is recorded: what of its arguments, in which record, and by which code.

The codes are MJ_OP_* of abi.h. They follow from the C types and the format: a `char *` is copied as
text only where the format says %s; with %p its value is recorded.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import markerjit.abi as abi
from markerjit.elf import parse_format
from markerjit.errors import BadNote
from markerjit.model import CType, Field, FieldType, Signature, TypeClass
from markerjit.ring.brakes import NO_BRAKES, Brakes
from markerjit.ring.types import TEXTS, Options, RecordType, Strings, Time, number_code
from markerjit.tuples import NamedTuple

_TIMES = {
    Time.NONE: abi.TIME_NONE,
    Time.TSC: abi.TIME_TSC,
    Time.MONOTONIC: abi.TIME_MONOTONIC,
    Time.COARSE: abi.TIME_COARSE,
}

_ROOM_OF_HEAD, _ROOM_OF_RSP, _ROOM_OF_ARG = 16, 8, 24
_WAYS = 1 << 10
"""A program has thousands of functions, and a few hundred lists of types."""
_MOST_TEXTS = 4
"""That code is made for: each takes some 150 bytes of it."""


DURATION = "dur"
"""The field of an exit with the time since the entry."""
RSP = Field("rsp", FieldType.POINTER, CType(TypeClass.POINTER, 8), -1, "p")
"""The program's stack pointer at an entry or exit of a function, which no argument is. It stands
before the other fields."""
WORDS_FOR_KEPT = 4
"""Words that stand between what an exit's stub saves and the operands, where an entry has kept
some of these (stub.py)."""
_WORDS_OF_STUB = 2 + abi.RED_ZONE // 8
"""Behind the words that are an event's arguments: what a stub saves, and the red zone."""


class Recording(NamedTuple):
    """The way in which a marker is recorded: struct mj_marker for the runtime, and for the reader
    the type of the records (its `id` is not known yet: -1)."""

    ops: bytes
    limits: tuple[int, ...]
    time: int
    tid: int
    counted: int
    careful: int
    waits: int
    to_stack: int
    type: RecordType

    def entry(self) -> abi.MarkerEntry:
        """The same as a marker's entry in the arena, without its name and id."""
        entry = abi.MarkerEntry(
            argc=len(self.ops),
            size=self.type.size,
            time=self.time,
            tid=self.tid,
            counted=self.counted,
            careful=self.careful,
            waits=self.waits,
            to_stack=self.to_stack,
        )
        first, more = self.ops[: abi.MAX_ARGS], self.ops[abi.MAX_ARGS :]
        entry.ops[: len(first)], entry.more_ops[: len(more)] = first, more
        limits = self.limits[: abi.MAX_ARGS]  # behind those no word is a text
        entry.limits[: len(limits)] = limits
        return entry


def recording(signature: Signature, options: Options, *, is_selected: bool = False) -> Recording:
    """How an event is recorded, or what is selected of one. Raises BadNote for too many
    arguments."""
    name, format_, args = signature
    at_return = _is_return(signature)
    made = _recorded(format_, args, options, at_return=at_return, is_selected=is_selected)
    kind = made.type
    own = RecordType(-1, name, format_, kind.fields, time=kind.time, tid=kind.tid)
    return made._replace(type=own)


def recording_alike(signature: Signature, options: Options) -> Recording:
    """The same, but for the name of the event: one value for all that are recorded alike."""
    _, format_, args = signature
    return _recorded(format_, args, options, at_return=_is_return(signature), is_selected=False)


@lru_cache(_WAYS)
def _recorded(
    format_: str,
    args: tuple[CType, ...],
    options: Options,
    *,
    at_return: bool,
    is_selected: bool,
) -> Recording:
    """How all events with this format and these types are recorded, whose name is left out."""
    if len(args) > abi.MAX_WORDS:
        raise BadNote(f"{len(args)} arguments; the recorder takes {abi.MAX_WORDS}")
    every = parse_format(format_, args)
    if any(field.type in TEXTS and field.arg >= abi.MAX_ARGS for field in every):
        raise BadNote(f"a text behind {abi.MAX_ARGS} arguments; the recorder takes none there")
    fields = tuple(
        field for field in every if options.fields is None or field.name in options.fields
    )
    ops = [abi.OP_SKIP_FP if arg.type_class is TypeClass.FLOAT else abi.OP_SKIP for arg in args]
    limits = [0] * len(args)
    own = (RSP,) if options.rsp else ()
    type_ = RecordType(-1, "", format_, own + fields, time=options.time, tid=options.thread_id)
    texts = sum(field.type in TEXTS for field in fields)
    most = min(options.text, _room_for_a_text(len(args), texts, rsp=options.rsp))
    for field in fields:
        ops[field.arg] = _op(field, most)
        if field.name == DURATION and at_return and not is_selected:
            ops[field.arg] = abi.OP_SINCE | ops[field.arg] >> abi.OP_SIZE_SHIFT << abi.OP_SIZE_SHIFT
        if field.type in TEXTS:
            limits[field.arg] = most if field.limit is None else min(field.limit, most)
    time = _TIMES[options.time]
    careful = type_.has_text and options.strings is Strings.CAREFUL
    return Recording(
        bytes(ops), tuple(limits), time, int(options.thread_id), int(options.counted),
        int(careful), int(options.waits),
        _words_to_stack(every, len(args), at_return=at_return) if options.rsp else 0, type_,
    )  # fmt: skip


def words_to_stack(signature: Signature) -> int:
    """Words from the first argument of a stub's call to the program's stack pointer, where the
    return address is when a function is entered and left."""
    _, format_, args = signature
    fields = parse_format(format_, args)
    return _words_to_stack(fields, len(args), at_return=_is_return(signature))


def _words_to_stack(fields: Sequence[Field], args: int, *, at_return: bool) -> int:
    has_kept = at_return and any(field.name == DURATION for field in fields)
    return args + _WORDS_OF_STUB + (WORDS_FOR_KEPT if has_kept else 0)


def _is_return(signature: Signature) -> bool:
    """Whether the event is an exit of a function, whose stub has the time of the entry."""
    return signature.name.startswith("func:") and signature.name.endswith(":return")


def _room_for_a_text(args: int, texts: int, *, rsp: bool) -> int:
    """So that a record with texts of this length fits. The runtime counts as much for each argument
    (ROOM_OF_ARG in record.c), and would cut longer ones."""
    head = _ROOM_OF_HEAD + (_ROOM_OF_RSP if rsp else 0)
    room = abi.MAX_RECORD - head - args * _ROOM_OF_ARG
    return room // texts if texts else 0


def _op(field: Field, most: int) -> int:
    match field.type:
        case FieldType.STRING:
            bounded = field.limit is not None and field.limit <= most
            return abi.OP_PREFIX if bounded else abi.OP_STRING
        case FieldType.BYTES:
            return abi.OP_RAW if field.conversion == "ph" else abi.OP_BYTES
    code = number_code(field)
    size_bits = int(code[1]).bit_length() - 1
    op = abi.OP_FP if code[0] == "f" else abi.OP_GP
    return op | size_bits << abi.OP_SIZE_SHIFT


def recorded_type(
    signature: Signature, entry: abi.MarkerEntry, brakes: Brakes = NO_BRAKES
) -> RecordType:
    """The type of the records that the runtime makes of a marker, by its entry, behind brakes."""
    skipped = (abi.OP_SKIP, abi.OP_SKIP_FP)
    ops = abi.ops_of(entry)
    fields = [
        field
        for field in parse_format(signature.format, signature.args)
        if ops[field.arg] & (1 << abi.OP_SIZE_SHIFT) - 1 not in skipped
    ]
    if entry.to_stack:
        fields.insert(0, RSP)
    times = {number: time for time, number in _TIMES.items()}
    time = times.get(entry.time, Time.TSC)
    return RecordType(
        int(entry.id), signature.name, signature.format, fields, time=time, tid=bool(entry.tid),
        brakes=brakes,
    )  # fmt: skip


def takes_a_recorder(made: Recording, control: abi.Control) -> bool:
    """Whether code is made for it; otherwise mj_record does it."""
    if not control.rseq_offset or made.time not in (0, abi.TIME_TSC):
        return False
    texts = [
        (op, limit)
        for op, limit in zip(made.ops, made.limits, strict=True)
        if abi.OP_STRING <= op <= abi.OP_RAW
    ]
    known_pages = bool(control.cpu_flags & abi.CPU_TSC)
    simple = len(texts) <= _MOST_TEXTS and all(op == abi.OP_STRING and limit for op, limit in texts)
    return not texts or (known_pages and simple and not made.careful)
