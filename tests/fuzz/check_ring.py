"""Checks of what reads the arena: its control block, its rings, and the records in them.

An input of `control` is the mapped size (8 bytes) and the control block. One of `ring` is
`reserved`, `consumed`, eight changes of eight and a half words that the target makes while it is
read, and the ring. One of `record` is a byte that chooses the marker, and the payload.
"""

from __future__ import annotations

import ctypes
import struct
from itertools import pairwise

from markerjit.elf import parse_format
from markerjit.errors import Unsupported
from markerjit.model import FieldType
from markerjit.ring.decode import BadRecord, decode
from markerjit.ring.layout import (
    CONTROL,
    FILLER,
    MAGIC,
    PAGE,
    RECORD_SIZE,
    STRING_CUT,
    STRING_NULL,
    VERSION,
    Control,
    Count,
    EditEntry,
    Geometry,
    MarkerEntry,
    TrapSite,
    checked_control,
)
from markerjit.ring.reader import RingReader
from tests.fuzz.check_text import FORMATS, check_shown
from tests.fuzz.edits import Place
from tests.fuzz.harness import ACCEPTED, Harness, Seed
from tests.fuzz.stores import Change, HostileRing

# ---- the control block ---------------------------------------------------------------------------


def check_control(data: bytes) -> str:
    """checked_control raises Unsupported; what it accepts lies inside the mapping, part by part."""
    mapped_size = int.from_bytes(data[:8], "little")
    block = data[8 : 8 + PAGE].ljust(ctypes.sizeof(Control), b"\0")
    try:
        control, geometry = checked_control(block, mapped_size)
    except Unsupported as error:
        assert str(error).isprintable()
        return "Unsupported"
    assert (control.magic, control.version) == (MAGIC, VERSION)
    last, markers = geometry.rings - 1, geometry.max_markers
    ends = (
        CONTROL + PAGE,
        geometry.markers,
        geometry.marker_offset(markers),
        geometry.counts,
        geometry.count_offset(last, markers),
        geometry.sites,
        geometry.sites + geometry.max_sites * ctypes.sizeof(TrapSite),
        geometry.journal_edits,
        geometry.journal_edits + geometry.max_edits * ctypes.sizeof(EditEntry),
        geometry.ring,
        geometry.ring_offset(last) + PAGE + geometry.ring_size,
        mapped_size,
    )
    assert all(one <= next_ for one, next_ in pairwise(ends)), "the parts overlap"
    assert geometry.count_offset(1, 0) - geometry.counts == markers * ctypes.sizeof(Count)
    assert geometry.marker_offset(1) - geometry.markers == ctypes.sizeof(MarkerEntry)
    assert geometry.ring_size % 8 == 0, "a ring that holds no whole word"
    return ACCEPTED


def _control_seeds() -> list[Seed]:
    places = [Place(0, 8), *numbers_of(Control, 8)]
    return [
        Seed(struct.pack("<Q", geometry.size) + control_block(geometry), places)
        for geometry in (geometry_of(2, 1 << 20, 4096), geometry_of(1, 4096, 1))
    ]


def numbers_of(structure: type[ctypes.Structure], at: int) -> list[Place]:
    """Where the numbers of a structure stand that begins at `at`, and those of the ones inside."""
    places: list[Place] = []
    for name, type_ in structure._fields_:
        field = getattr(structure, name)
        if issubclass(type_, ctypes.Structure):
            places += numbers_of(type_, at + field.offset)
        else:
            width = 1 if hasattr(type_, "_length_") else field.size
            places += [Place(at + field.offset + i, width) for i in range(0, field.size, width)]
    return places


def geometry_of(rings: int, ring_size: int, rest: int) -> Geometry:
    """Of all tables the same number of entries."""
    return Geometry(rings, ring_size, *[rest] * (len(Geometry._fields) - 2))


def control_block(geometry: Geometry) -> bytes:
    """As the controller makes one: every number that is checked, and none besides."""
    parts = {
        name: getattr(geometry, name) for name, _ in Control._fields_ if hasattr(geometry, name)
    }
    return bytes(Control(magic=MAGIC, version=VERSION, arena_size=geometry.size, **parts))


# ---- a ring --------------------------------------------------------------------------------------

_GEOMETRY = geometry_of(3, 512, 4)
_RING = 1
_CHANGES = 8
_CHANGE = struct.Struct("<BBQ")
_PREFIX = 16 + _CHANGES * _CHANGE.size
_POLLS = 3
_READS_A_POLL = 6
"""`reserved`, `consumed`, and two copies in two pieces each."""


def check_ring(data: bytes) -> str:
    """Nothing is raised, a poll is a few reads and one write, and `consumed` goes only forwards.

    The store refuses what is outside of the ring, and a write that goes back or too far.
    """
    data = data.ljust(_PREFIX, b"\0")
    head = struct.unpack_from("<QQ", data)
    changes = [Change._make(fields) for fields in _CHANGE.iter_unpack(data[16:_PREFIX])]
    content = data[_PREFIX : _PREFIX + _GEOMETRY.ring_size].ljust(_GEOMETRY.ring_size, b"\0")
    store = HostileRing(_GEOMETRY, _RING, head, content, changes)
    reader = RingReader(store, _GEOMETRY, _RING)
    found = 0
    for poll in range(1, _POLLS + 1):
        records = list(reader.poll())
        found += len(records)
        assert store.reads <= poll * _READS_A_POLL, "the reader stays in the ring"
        assert len(store.given_back) <= poll
        assert reader.damaged <= poll
        room = sum(RECORD_SIZE + len(record.payload) for record in records)
        assert room <= _GEOMETRY.ring_size, "more records than the ring has room for"
        assert all(record.cpu == _RING and record.marker != FILLER for record in records)
    return "damaged" if reader.damaged else ACCEPTED if found else "nothing committed"


def _ring_seeds() -> list[Seed]:
    """Rings in their first lap, in a later one, across the end, and with one record missing."""
    return [
        _ring_seed(*case) for case in ((0, 9, -1), (7 * 512, 4, -1), (1000, 12, -1), (4000, 9, 5))
    ]


def _ring_seed(start: int, count: int, uncommitted: int) -> Seed:
    size = _GEOMETRY.ring_size
    ring, places, position = bytearray(size), [Place(0, 8), Place(8, 8)], start & -8
    first = position
    for index in range(count):
        payload = bytes(range(8 * (index % 5)))
        length = RECORD_SIZE + len(payload)
        left = size - position % size
        filler = left if left < length else 0
        if position + filler + length - first > size:
            break
        for at, words, marker in ((position, filler, FILLER), (position + filler, length, index)):
            if words and index != uncommitted:
                record = struct.pack("<QQIHH", at << 16 | words // 8, index, 99, marker, 0)
                whole = (record if marker == FILLER else record + payload)[:words]
                ring[at % size : at % size + len(whole)] = whole
                places.append(Place(_PREFIX + at % size, 8))
                places.append(Place(_PREFIX + at % size, 2))
        position += filler + length
    places += [Place(16 + index, 1) for index in range(2 * _CHANGE.size)]
    quiet = _CHANGE.pack(0, 0, 0) * _CHANGES
    return Seed(struct.pack("<QQ", position, first) + quiet + bytes(ring), places)


# ---- a record ------------------------------------------------------------------------------------

_TEXTS = (FieldType.STRING, FieldType.BYTES)


def check_record(data: bytes) -> str:
    """decode raises BadRecord; what it returns has every field, and can be shown."""
    format_, args = FORMATS[data[0] % len(FORMATS)] if data else FORMATS[0]
    fields = parse_format(format_, args)
    payload = data[1:]
    fits = _fits(payload, len(args), {field.arg for field in fields if field.type in _TEXTS})
    try:
        values = decode(payload, args, fields)
    except BadRecord as error:
        assert str(error).isprintable()
        assert not fits, "a good record was refused"
        return "BadRecord"
    assert fits, "a bad record was taken"
    assert list(values) == [field.name for field in fields]
    for field in fields:
        check_shown(field, values[field.name])
    return ACCEPTED


def _fits(payload: bytes, args: int, texts: set[int]) -> bool:
    """Whether the payload is as long as its words say, told one argument at a time."""
    at = 0
    for index in range(args):
        length = int.from_bytes(payload[at : at + 4], "little") if index in texts else 0
        at += 8 + -(-length // 8) * 8
        if at > len(payload):
            return False
    return at == len(payload)


def _record_seeds() -> list[Seed]:
    return [
        Seed(bytes([index]) + payload, [Place(1 + at, 8) for at in range(0, len(payload), 8)])
        for index, (format_, _) in enumerate(FORMATS)
        for payload in _payloads(format_)
    ]


def _payloads(format_: str) -> list[bytes]:
    """What the recorder makes of short, cut and NULL strings, and of small numbers."""
    args = next(args for known, args in FORMATS if known == format_)
    texts = {field.arg for field in parse_format(format_, args) if field.type in _TEXTS}
    return [
        b"".join(text if index in texts else struct.pack("<d", index) for index in range(len(args)))
        for text in (
            _word(5) + b"valu\xff\0\0\0",
            _word(16 | STRING_CUT) + b"sixteen letters!",
            _word(STRING_NULL),
        )
    ]


def _word(number: int) -> bytes:
    return number.to_bytes(8, "little")


HARNESSES = (
    Harness("control", _control_seeds, check_control),
    Harness("ring", _ring_seeds, check_ring),
    Harness("record", _record_seeds, check_record),
)
