"""Checks of what reads the arena: its control block, its rings, and the records in them.

An input of `control` is the mapped size (8 bytes) and the control block. One of `shared` and of
`drain` is the words of a ring's head, eight changes that the target makes while it is read, where
in the ring the rest of the input stands, and that. One of `record` is a byte that chooses the
marker, and records.
"""

from __future__ import annotations

import ctypes
import struct

from markerjit.abi import (
    COUNT_SIZE,
    FILLER,
    MAGIC,
    MOST_EDITS,
    MOST_PATCHES,
    PAGE,
    TABLES,
    VERSION,
    Control,
    Geometry,
    Sizes,
    checked_geometry,
    lay_out,
)
from markerjit.arena.versions import control_of, layout_of
from markerjit.elf import parse_format
from markerjit.errors import Unsupported
from markerjit.ring.batch import Packet
from markerjit.ring.clock import Calibration
from markerjit.ring.decode import columns_of
from markerjit.ring.drain import RingDrain
from markerjit.ring.reader import SharedRing
from markerjit.ring.to_events import events
from markerjit.ring.types import TEXTS, WORD, RecordType, TextState, Time
from markerjit.ring.walk import Walked, least_words, walk, walk_packet, walk_shared
from tests.fuzz.check_text import FORMATS, check_shown
from tests.fuzz.edits import Place
from tests.fuzz.harness import ACCEPTED, Harness, Seed
from tests.fuzz.stores import Change, HostileRing
from tests.support.heads import head_of, marker_and_words

# ---- the control block ---------------------------------------------------------------------------


def check_control(data: bytes) -> str:
    """A control block of any version is Unsupported; or its parts lie inside the mapping, one
    behind the other, and are no larger than we have room for."""
    mapped_size = int.from_bytes(data[:8], "little")
    block = data[8 : 8 + PAGE].ljust(ctypes.sizeof(Control), b"\0")
    try:
        layout = layout_of(block)
        control = control_of(block, layout)
        geometry = checked_geometry(control, mapped_size)
    except Unsupported as error:
        assert str(error).isprintable()
        return "Unsupported"
    assert control.magic == MAGIC
    last, markers = geometry.rings - 1, geometry.max_markers
    end = TABLES
    for part in sorted(part for part in geometry.parts if part.entries):
        assert end <= part.offset, "the parts overlap"
        end = part.end
    assert end <= mapped_size
    assert geometry.count_offset(last, markers) == geometry.counts.end
    assert geometry.count_offset(1, 0) - geometry.counts.offset == markers * COUNT_SIZE
    assert geometry.ring_offset(last) + geometry.ring_size <= mapped_size
    assert geometry.ring_size % PAGE == 0, "a ring that holds no whole page"
    assert geometry.patches.entries <= MOST_PATCHES
    assert geometry.edits.entries <= MOST_EDITS
    return ACCEPTED


def _control_seeds() -> list[Seed]:
    places = [Place(0, 8), *numbers_of(Control, 8)]
    return [
        Seed(struct.pack("<Q", geometry.size) + control_block(geometry), places)
        for geometry in (geometry_of(2, 1 << 20, 4096), geometry_of(1, PAGE, 1))
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


def geometry_of(cpus: int, ring_size: int, rest: int) -> Geometry:
    """Of all tables the same number of entries."""
    return lay_out(Sizes(cpus, ring_size, rest, rest, rest, ring_stride=ring_size))


def control_block(geometry: Geometry) -> bytes:
    """As the controller makes one: every number that is checked, and none besides."""
    return bytes(
        Control(
            magic=MAGIC, version=VERSION, control_size=ctypes.sizeof(Control),
            arena_size=geometry.size, cpus=geometry.cpus, ring_size=geometry.ring_size,
            parts=geometry.table(),
        )
    )  # fmt: skip


# ---- a ring --------------------------------------------------------------------------------------

_SIZE = 4 * PAGE
_GEOMETRY = geometry_of(3, _SIZE, 4)
_CPU = 1
_CHANGES = 8
_CHANGE = struct.Struct("<BHQ")
_WORDS = struct.Struct("<QQQ")
_PREFIX = _WORDS.size + _CHANGES * _CHANGE.size + 2
_POLLS = 3
_READS_A_POLL = 7
"""Two words, one of them twice, and two copies in two pieces each."""
_READS_A_PICTURE = 15
"""Two words, and each piece of the ring, a word after each; the head each time twice."""


_DRAINED = {
    1: RecordType(1, "n", "n %d", parse_format(*FORMATS[1]), time=Time.TSC),
    2: RecordType(2, "s", "s %s", parse_format(*FORMATS[3]), time=Time.TSC),
}
_LEAST = least_words(_DRAINED)


def check_shared(data: bytes) -> str:
    """Nothing is raised, a poll is a few reads and one write, and gives back only what it saw.

    The store refuses what is outside of the ring. What comes out is whole records of markers that
    are known.
    """
    store = _store(_GEOMETRY.cpus + _CPU, data)
    ring = SharedRing(store, _GEOMETRY, _CPU, _SIZE)
    records = _check_packet(ring.picture()[1])
    assert store.reads <= _READS_A_PICTURE, "the reader stays in the ring"
    ring.resume()
    for poll in range(1, _POLLS + 1):
        reads, damaged = store.reads, ring.damaged
        pieces = [data for _, data in ring.take(last=poll == _POLLS)]
        assert len(pieces) <= 1, "the ring is smaller than a piece"
        records += _check_packet(b"".join(pieces))
        assert store.reads <= reads + _READS_A_POLL, "the reader stays in the ring"
        _check_given_back(store, poll)
        assert ring.damaged - damaged <= _SIZE // WORD
    return ACCEPTED if records else "damaged" if ring.damaged else "nothing committed"


def _check_packet(data: bytes) -> int:
    """Whole records, one behind the other; returns how many are of markers that are known."""
    assert len(data) <= _SIZE, "more records than the ring has room for"
    at = count = known = 0
    while at < len(data):
        marker, words = marker_and_words(int.from_bytes(data[at : at + 4], "little"))
        known += marker in _DRAINED and words * WORD >= _DRAINED[marker].size
        assert words > 0
        at += words * WORD
        count += 1
    assert at == len(data)
    walked = walk_shared(Packet(_CPU, 0, data), _LEAST)
    assert (len(walked.starts), walked.damaged) == (known, count - known)
    _check_columns(walked, _DRAINED)
    return known


def _check_given_back(store: HostileRing, poll: int) -> None:
    assert len(store.limits) <= poll
    if store.limits:
        consumed = (store.limits[-1] - _SIZE) % (1 << 64)
        assert consumed <= store.head_seen, "gave back what it has not seen"


def check_drain(data: bytes) -> str:
    """The same of a CPU's own ring, up to events."""
    store = _store(_CPU, data)
    ring = RingDrain(
        store, _GEOMETRY.head_offset(_CPU), _GEOMETRY.ring_offset(_CPU), _SIZE, _CPU, _CPU
    )
    start, picture = ring.picture()
    assert store.reads <= _READS_A_PICTURE
    records = _check_walked(walk(picture, start, _LEAST))
    ring.resume()
    for poll in range(1, _POLLS + 1):
        reads = store.reads
        pieces = [*ring.take()]
        assert len(pieces) <= 1, "the ring is smaller than a piece"
        walked = ring.walk(*pieces or [(0, b"")], _LEAST)
        assert store.reads <= reads + _READS_A_POLL
        _check_given_back(store, poll)
        records += _check_walked(walked)
    assert ring.damaged <= (_POLLS + 1) * (_SIZE // PAGE + 2)
    return ACCEPTED if records else "damaged" if ring.damaged else "nothing"


def _check_walked(walked: Walked) -> int:
    ends = walked.starts + walked.words
    assert (walked.starts[1:] >= ends[:-1]).all(), "records that overlap"
    assert not len(ends) or ends[-1] * WORD <= len(walked.data) <= _SIZE
    assert set(walked.markers.tolist()) <= set(_DRAINED)
    _check_columns(walked, _DRAINED)
    return len(walked.starts)


def _store(ring: int, data: bytes) -> HostileRing:
    data = data.ljust(_PREFIX, b"\0")
    changes = data[_WORDS.size : _PREFIX - 2]
    window = struct.unpack_from("<H", data, _PREFIX - 2)[0] * WORD % _SIZE
    content = data[_PREFIX : _PREFIX + _SIZE]
    whole = bytearray(_SIZE)
    whole[window : window + len(content)] = content[: _SIZE - window]
    rest = content[_SIZE - window :]
    whole[: len(rest)] = rest
    return HostileRing(
        _GEOMETRY,
        ring,
        _WORDS.unpack_from(data),
        bytes(whole),
        [Change._make(fields) for fields in _CHANGE.iter_unpack(changes)],
    )


def _shared_seeds() -> list[Seed]:
    """Rings in their first lap, in a later one, across the end of a page, across the end of the
    ring, with one record missing, and one that is overwritten."""
    cases = [(0, 9, -1), (7 * _SIZE, 4, -1), (PAGE - 200, 12, -1), (8 * _SIZE - 96, 9, 5)]
    return [_ring_seed(*case, shared=True) for case in cases] + [
        _ring_seed(20 * _SIZE + 3 * PAGE, 20, -1, shared=True, overwrite=True)
    ]


def _drain_seeds() -> list[Seed]:
    """The same of a CPU's own."""
    cases = [(0, 9), (7 * _SIZE, 4), (PAGE - 200, 12), (8 * _SIZE - 96, 9)]
    return [_ring_seed(*case, -1, shared=False) for case in cases] + [
        _ring_seed(20 * _SIZE + 3 * PAGE, 20, -1, shared=False, overwrite=True)
    ]


def _ring_seed(
    start: int, count: int, uncommitted: int, *, shared: bool, overwrite: bool = False
) -> Seed:
    content, places, position = bytearray(), list[Place](), start
    for index in range(count):
        record = _record(1 + index % 2, index, index)
        whole = len(record) + 8 * shared
        left = PAGE - position % PAGE
        if left < whole:
            filler = struct.pack("<II", head_of(FILLER, left // 8), 0)
            if shared:
                filler = _committed(position, filler.ljust(left - 8, b"\0")[: left - 8])
            content += filler.ljust(left, b"\0")
            position += left
        places += [Place(_PREFIX + len(content) + at, width) for at, width in ((0, 8), (2, 2))]
        if index == uncommitted:
            content += bytes(whole)
        else:
            content += _committed(position, record) if shared else record
        position += whole
    limit = (1 << 64) - 1 if overwrite else start + _SIZE
    places += [Place(at, 8) for at in (0, 8, 16)]
    places += [Place(_WORDS.size + index, 1) for index in range(2 * _CHANGE.size)]
    words = _WORDS.pack(position, limit, start if overwrite else 0)
    quiet = _CHANGE.pack(0, 0, 0) * _CHANGES
    window = struct.pack("<H", start % _SIZE // WORD)
    return Seed(words + quiet + window + bytes(content), places)


def _committed(position: int, record: bytes) -> bytes:
    word = position << 16 | (len(record) + 8) // 8
    return (word % (1 << 64)).to_bytes(8, "little") + record


def _record(marker: int, time: int, seed: int) -> bytes:
    """Of a marker of _DRAINED, or of FORMATS with one less as its number."""
    type_ = _DRAINED[marker]
    return _of_type(type_, time, b"value"[: seed % 6], TextState.WHOLE)


def _of_type(type_: RecordType, time: int, text: bytes, state: int) -> bytes:
    """A record as a recorder writes it, its numbers small."""
    record = bytearray(8) + time.to_bytes(8, "little") * (type_.time is not Time.NONE)
    for number, (_, _, code) in enumerate(type_.places):
        size = int(code[1]) if code else WORD
        record += bytes(-len(record) % size)
        if code:
            record += struct.pack("<d", 0.5) if code == "f8" else number.to_bytes(size, "little")
        else:
            record += struct.pack("<II", len(text), state) + text + bytes(-len(text) % WORD)
    record += bytes(-len(record) % WORD)
    record[:8] = struct.pack("<II", head_of(type_.id, len(record) // WORD), 99)
    return bytes(record)


# ---- records -------------------------------------------------------------------------------------

_CLOCK = Calibration(Time.TSC, 1000, 2000, 3_000_000_000, 0)
_OF_FORMATS = {
    index: RecordType(index, f"m{index}", format_, parse_format(format_, args), time=Time.TSC)
    for index, (format_, args) in enumerate(FORMATS)
}


def check_record(data: bytes) -> str:
    """What comes of any bytes are the records that are there, told by a second reading, and their
    fields, which can be shown."""
    type_ = _OF_FORMATS[data[0] % len(FORMATS)] if data else _OF_FORMATS[0]
    types = {type_.id: type_}
    walked = walk_packet(Packet(1, 1, data[1:]), least_words(types))
    good, bad = _read_singly(data[1:], type_)
    times, dropped = _check_columns(walked, types)
    assert (sorted(times), dropped) == (sorted(good), bad)
    return ACCEPTED if times and not bad else "bad" if bad else "none"


def _check_columns(walked: Walked, types: dict[int, RecordType]) -> tuple[list[int], int]:
    """The times of what was decoded, and how many records were dropped."""
    decoded = columns_of([walked], types)
    count = 0
    for event in events(decoded.columns, _CLOCK):
        (type_,) = (kind for kind in types.values() if kind.marker == event.name)
        assert list(event.fields) == [field.name for field in type_.fields]
        for field in type_.fields:
            check_shown(field, event.fields[field.name])
        count += 1
    assert count + decoded.bad == len(walked.starts)
    return [int(time) for column in decoded.columns for time in column.time], decoded.bad


def _read_singly(data: bytes, type_: RecordType) -> tuple[list[int], int]:
    """Times of the good records and the number of bad ones, one after the other, up to what cannot
    be one."""
    good, bad, at = [], 0, 0
    while at + WORD <= len(data):
        marker, words = marker_and_words(int.from_bytes(data[at : at + 4], "little"))
        end = at + words * WORD
        least = WORD if marker == FILLER else type_.size
        if marker not in (type_.id, FILLER) or words * WORD < least or end > len(data) & -WORD:
            break
        if marker != FILLER:
            if _fits(data[at:end], type_):
                good.append(int.from_bytes(data[at + 8 : at + 16], "little"))
            else:
                bad += 1
        at = end
    return good, bad


def _fits(record: bytes, type_: RecordType) -> bool:
    """Whether its texts are within it, and say something that a text can."""
    at = type_.head_size
    for _, _, code in type_.places:
        size = int(code[1]) if code else WORD
        at = -(-at // size) * size
        if not code:
            if at + WORD > len(record):
                return False
            length, state = struct.unpack_from("<II", record, at)
            if state > max(TextState):
                return False
            at += -(-length // WORD) * WORD
        at += size
        if at > len(record):
            return False
    return True


def _record_seeds() -> list[Seed]:
    """Whole, cut, NULL and unreadable texts, and small numbers; several records, and one alone."""
    seeds = []
    for index, type_ in _OF_FORMATS.items():
        texts = [(b"valu\xff", 0), (b"sixteen letters!", 1), (b"", 2), (b"", 3)]
        records = [_of_type(type_, 5 + at, *row) for at, row in enumerate(texts)]
        filler = struct.pack("<IIQ", head_of(FILLER, 2), 0, 0)
        whole = records[0] + filler + records[1] + records[2] + records[3]
        for data in (whole, records[1]):
            places = [Place(1 + at, 8) for at in range(0, len(data), 8)]
            places += [Place(1 + at, width) for at in (0, len(records[0])) for width in (2, 4)]
            seeds.append(Seed(bytes([index]) + data, places))
    assert any(field.type in TEXTS for kind in _OF_FORMATS.values() for field in kind.fields)
    return seeds


HARNESSES = (
    Harness("control", _control_seeds, check_control),
    Harness("shared", _shared_seeds, check_shared, weight=2),
    Harness("drain", _drain_seeds, check_drain, weight=2),
    Harness("record", _record_seeds, check_record, weight=2),
)
