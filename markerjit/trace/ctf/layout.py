"""The layout of a record as CTF describes it. The bytes of a record are a CTF event, except that
its first two words are exchanged where there is a time:

    a record             marker words tid | time              | fields …
    in the file          time             | marker words tid  | fields …
    described as         timestamp        | id    …     tid   | fields …

Viewers show an event's context but nothing of its header, and a header that has the time must end
before the context begins. `words` is not a member. The alignment of the next member skips it. The
bytes that fill up a record are skipped, too, because the next one begins at a multiple of eight.

Both versions of CTF have the same members, in different notations (tsdl.py, ctf2.py). Names are
made fit for both here, so that both show the same ones.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator
from enum import Enum

from markerjit.model import Field, FieldType, TypeClass
from markerjit.ring.types import HEAD, WORD, RecordType, TextState, Time
from markerjit.tuples import NamedTuple

MAGIC = 0xC1FC1FC1
PACKET_ALIGN = 128
"""Packets begin at multiples of this, so that no header lies on two pages of the file."""
STATES = {state.name.lower(): int(state) for state in TextState}


class Kind(Enum):
    """The type of a member."""

    UNSIGNED = "unsigned"
    SIGNED = "signed"
    BOOL = "bool"
    FLOAT = "float"
    STATE = "state"  # a TextState
    CHARS = "chars"  # a text of a fixed size, up to its first NUL
    TEXT = "text"  # as long as another member says
    RAW = "raw"  # bytes, as long as another member says


class Member(NamedTuple):
    """A member of a CTF structure.

    bits, align   size and alignment in bits; of a text its element's
    base          in which numbers are shown
    chars         bytes of CHARS
    length        which member has the length of a TEXT or RAW
    role          what a viewer is to take it for: the name that CTF 1.8 gives such a member
    """

    name: str
    kind: Kind = Kind.UNSIGNED
    bits: int = 8
    align: int = 8
    base: int = 10
    chars: int = 0
    length: str = ""
    role: str = ""


def packet_header() -> tuple[Member, ...]:
    """Before every packet. The trace's UUID stands after `magic`, and is not a member here."""
    return (
        Member("magic", bits=32, align=32, role="magic"),
        Member("stream_id", bits=32, align=32, role="stream_id"),
        Member("stream_instance_id", bits=64, align=64, role="stream_instance_id"),
    )


def packet_context(time: Time) -> tuple[Member, ...]:
    """The members behind the packet's header."""
    words = ["packet_size", "content_size", "packet_seq_num", "events_discarded"]
    if time is not Time.NONE:
        words += ["timestamp_begin", "timestamp_end"]
    return (
        *(Member(name, bits=64, align=64, role=name) for name in words),
        Member("cpu_id", bits=32, align=32),
    )


class PacketHead(NamedTuple):
    """Header and context of a packet as they stand in the file. Sizes are in bytes here.

    instance    which data stream of the trace
    size        all of the packet; `content` is up to where its last record has its last bit
    discarded   events lost in this stream since the beginning
    batch       with which batch it was written: in the place that no member has, so for us alone
    """

    instance: int
    size: int
    content: int
    sequence: int
    discarded: int
    begin: int
    end: int
    cpu: int
    batch: int


class HeadFormat:
    """Packing and unpacking what stands before the records of a packet."""

    def __init__(self, uuid: bytes, time: Time) -> None:
        self._uuid = uuid
        self._times = time is not Time.NONE
        self._struct = struct.Struct(f"<I16sIQQQQQ{'QQ' if self._times else ''}II")
        self.size = self._struct.size
        self.content = self.size - 4  # of a packet without records; its batch does not count

    def pack(self, head: PacketHead) -> bytes:
        return self._struct.pack(
            MAGIC,
            self._uuid,
            0,
            head.instance,
            head.size * 8,
            head.content * 8,
            head.sequence,
            head.discarded,
            *((head.begin, head.end) if self._times else ()),
            head.cpu,
            head.batch & 0xFFFFFFFF,
        )

    def unpack(self, data: bytes) -> PacketHead | None:
        """The head; None where the data is not the head of a packet of this trace."""
        magic, uuid, stream, instance, size, content, *rest, cpu, batch = self._struct.unpack(data)
        sequence, discarded, begin, end = (*rest, 0, 0)[:4]
        is_ours = (magic, uuid, stream) == (MAGIC, self._uuid, 0)
        fits = self.content * 8 <= content <= size and not size % 64
        if not is_ours or not fits:
            return None
        content = -(-content // 8)
        return PacketHead(instance, size // 8, content, sequence, discarded, begin, end, cpu, batch)


def event_header(time: Time) -> tuple[Member, ...]:
    """At the start of an event, at a multiple of eight."""
    marker = Member("id", bits=HEAD.marker_bits, align=32, role="id")
    if time is Time.NONE:
        return (marker,)
    return Member("timestamp", bits=64, align=64, role="timestamp"), marker


def event_context(tid: bool) -> tuple[Member, ...]:
    """The members of all events behind their header, which viewers show."""
    return (Member("tid", bits=32, align=32),) if tid else ()


def payload(type_: RecordType) -> tuple[Member, ...]:
    """The fields of a record; the structure of them begins at a multiple of eight."""
    return tuple(_Payload(type_).members())


def content_end(type_: RecordType, record: bytes) -> int:
    """How many bytes of a record mean something: all but those at its end that fill it up."""
    at = end = type_.head_size
    for place in type_.places:
        size = int(place.code[1]) if place.code else WORD
        at = -(-at // size) * size
        end = at + size
        if not place.code:
            end += int.from_bytes(record[at : at + 4], "little")
        at = end if place.code else -(-end // WORD) * WORD
    return end


class _Payload:
    """Names and places of one record's members."""

    def __init__(self, type_: RecordType) -> None:
        self._type = type_
        self._names: set[str] = set()

    def members(self) -> Iterator[Member]:
        fields = [self._name(field.name) for field in self._type.fields]
        at = self._type.head_size  # from the start, or from a text's end as if that were a start
        after_text = False
        for name, place in zip(fields, self._type.places, strict=True):
            if not place.code:
                yield from self._text(name, place.field)
                at, after_text = 0, True
                continue
            size = int(place.code[1])
            aligned = not after_text and at % size == 0
            yield _number(name, place.field, size, 64 if after_text else size * 8, aligned)
            at, after_text = -(-at // size) * size + size, False

    def _text(self, name: str, field: Field) -> Iterator[Member]:
        length = self._name(f"_{name}_length")
        yield Member(length, bits=32, align=64)
        yield Member(self._name(f"_{name}_state"), Kind.STATE, bits=32, align=32)
        kind = Kind.RAW if field.conversion == "ph" else Kind.TEXT
        yield Member(name, kind, base=16 if kind is Kind.RAW else 10, length=length)

    def _name(self, preferred: str) -> str:
        """CTF 1.8 has ASCII letters, digits and underscores only."""
        name = re.sub(r"[^A-Za-z0-9_]", "_", preferred)
        while name in self._names:
            name += "_"
        self._names.add(name)
        return name


def _number(name: str, field: Field, size: int, align: int, aligned: bool) -> Member:
    bits = size * 8
    match field.type:
        case FieldType.FLOAT:
            return Member(name, Kind.FLOAT, bits, align)
        case FieldType.BOOL:
            return Member(name, Kind.BOOL, bits, align)
        case FieldType.POINTER:
            return Member(name, Kind.UNSIGNED, bits, align, base=16)
        case FieldType.STACK:  # its number in the file of stacks
            return Member(name, Kind.UNSIGNED, bits, align)
        case FieldType.CHAR if aligned:
            # A text has the alignment of a byte, so it can stand only where nothing is skipped.
            return Member(name, Kind.CHARS, chars=size)
    letter = field.conversion[-1:]
    # As printf shows it: the bits, without a sign, where the conversion is not of a signed number.
    signed = field.ctype.type_class is TypeClass.SIGNED and letter not in "uxXobB"
    base = {"x": 16, "X": 16, "o": 8, "b": 2, "B": 2}.get(letter, 10)
    return Member(name, Kind.SIGNED if signed else Kind.UNSIGNED, bits, align, base=base)
