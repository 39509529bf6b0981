"""Traces that were made up: types with fields of every kind, and batches of their records."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from markerjit.elf import parse_format
from markerjit.model import CType, Event, TypeClass
from markerjit.ring.clock import Calibration
from markerjit.ring.types import RecordType, Time
from markerjit.trace.batch import Batch
from markerjit.trace.collect import Collector
from markerjit.trace.encode import with_packets
from markerjit.trace.open import open_sink, takes_packets
from markerjit.trace.sink import Sink, TraceInfo

I8, I32, I64 = (CType(TypeClass.SIGNED, size) for size in (1, 4, 8))
U16, U64 = (CType(TypeClass.UNSIGNED, size) for size in (2, 8))
F64, F32 = CType(TypeClass.FLOAT, 8), CType(TypeClass.FLOAT, 4)
POINTER, CHARS, BOOL = (
    CType(sort, size)
    for sort, size in ((TypeClass.POINTER, 8), (TypeClass.CHARS, 8), (TypeClass.BOOL, 1))
)

WALL_NS = 1_700_006_400_000_000_000
START_NS = 5_000_000_000
"""When the traces began, of CLOCK_MONOTONIC."""


def make_type(id: int, marker: str, format: str, *args: CType, time: Time, tid: bool) -> RecordType:
    return RecordType(id, marker, format, parse_format(format, args), time=time, tid=tid)


def make_info(time: Time = Time.MONOTONIC, *, tid: bool = True) -> TraceInfo:
    """A trace of markers with every kind of field, names that are in more than one, and pairs."""
    formats = (
        ("tick", ""),
        ("query_start", "id %d text %s", I32, CHARS),
        ("query_done", "id %d rows %zu", I32, U64),
        ("kv_get", "key %s len %zu flags %#x cpu %hhd", CHARS, U64, U16, I8),
        ("kv_put", "key %.*s len %lld", I32, CHARS, I64),
        ("odd", "c %c yes %d at %p x %.17g y %.9g name %s", I32, BOOL, POINTER, F64, F32, CHARS),
    )
    types = tuple(
        make_type(number * 3, name, format_, *args, time=time, tid=tid)
        for number, (name, format_, *args) in enumerate(formats)
    )
    clock = Calibration(time, 1_000_000, START_NS, 3_000_000_000, WALL_NS)
    return TraceInfo(
        types, clock, 812, "kvserver", "here", START_NS + WALL_NS, {"kv_get": "kv.c:12"}
    )


EVENTS = (
    Event(START_NS + 10, 0, 812, "query_start", {"id": 7, "text": "select 'ä'\n\"1\""}),
    Event(START_NS + 20, 1, 813, "kv_get", {"key": "a b", "len": 1 << 63, "flags": 255, "cpu": -1}),
    Event(START_NS + 25, 0, 812, "query_start", {"id": -8, "text": None}),
    Event(START_NS + 30, 0, 812, "query_done", {"id": -8, "rows": 0}),
    Event(START_NS + 31, 0, 812, "tick", {}),
    Event(START_NS + 41, 0, 812, "kv_put", {"key": "plain", "len": -(1 << 63)}),
    Event(
        START_NS + 1_000,
        3,
        4_000_000,
        "odd",
        {"c": "x", "yes": True, "at": 0xFFFF_8000_0000_0000, "x": 0.1, "y": -2.5, "name": ""},
    ),
    Event(START_NS + 1_001, 0, 812, "query_done", {"id": 7, "rows": 12}),
    Event(START_NS + 1_002, 0, 812, "query_done", {"id": 9, "rows": 1}),
    Event(
        START_NS + 2_000_000_001, 1, 813, "kv_get", {"key": None, "len": 0, "flags": 0, "cpu": 5}
    ),
)
"""Of `make_info`, by nanoseconds; the last query_done has no begin."""


def make_batch(
    info: TraceInfo,
    events: Iterable[Event] = EVENTS,
    lost: Mapping[tuple[int, str], int] | None = None,
) -> Batch:
    """The columns of these events, whose times are as `info.clock` records them."""
    return Batch((), Collector(info.types).columns(events), lost or {})


def put(sink: Sink, info: TraceInfo, *batches: Sequence[Event]) -> None:
    """Write a whole trace, without losses."""
    for events in batches or (EVENTS,):
        sink.write(make_batch(info, events))
    sink.close({})


def write_trace(path: Path, events: Iterable[Event], lost: Mapping[tuple[int, str], int]) -> str:
    """A trace of these events of `make_info`, in the format of its name."""
    info = make_info()
    sink = open_sink(str(path), info)
    batch = make_batch(info, events, lost)
    sink.write(with_packets(batch) if takes_packets(sink) else batch)
    sink.close(lost)
    return str(path)
