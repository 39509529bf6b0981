"""CTF directories of a trace with two types: written, and read back."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Literal
from uuid import UUID

import numpy as np

from markerjit.ring.batch import Packet
from markerjit.ring.clock import Calibration
from markerjit.ring.types import Time
from markerjit.trace.batch import Batch
from markerjit.trace.ctf import CtfSink, read_ctf
from markerjit.trace.sink import TraceInfo
from tests.support.heads import marker_and_words
from tests.support.made_records import CHARS, I32, make_info, make_type, record

Version = Literal["1.8", "2"]
VERSIONS: tuple[Version, ...] = ("1.8", "2")
WALL_NS = 1_700_000_000_000_000_000
MONOTONIC = Calibration(Time.MONOTONIC, 0, 0, 1_000_000_000, WALL_NS)
TSC = Calibration(Time.TSC, 10**13, 5 * 10**12, 2_300_000_000, WALL_NS + 7)
TICK = make_type(4, "tick", "n %d", I32, time=Time.MONOTONIC)
PUT = make_type(7, "put", "key %s n %d", CHARS, I32, time=Time.MONOTONIC)
INFO = make_info(TICK, PUT, clock=MONOTONIC)
ID = UUID("2a6422d0-6cee-41e0-8c08-cb07d7b3a564")


def tick(time: int, number: int = 0, tid: int = 812) -> bytes:
    return record(TICK, time, tid, number)


def batch(*packets: Packet, lost: dict[tuple[int, str], int] | None = None) -> Batch:
    return Batch(packets, [], lost or {})


def write(
    path: Path, info: TraceInfo, batches: Iterable[Batch], version: Version = "1.8"
) -> dict[tuple[int, str], int]:
    """A whole trace; returns the losses."""
    sink = CtfSink(path, info, version=version)
    lost: dict[tuple[int, str], int] = {}
    for batch in batches:
        sink.write(batch)
        lost = {**lost, **batch.lost}
    sink.close(lost)
    return lost


def packets(path: Path) -> list[Packet]:
    """All packets of a trace."""
    return [packet for some in read_ctf(path)[1] for packet in some]


def numbers(path: Path) -> list[int]:
    """The fields of all ticks of a trace."""
    data = b"".join(packet.data for packet in packets(path))
    assert len(data) % 24 == 0
    return [int(n) for n in np.frombuffer(data, np.int32).reshape(-1, 6)[:, 4]]


def split(data: bytes) -> list[bytes]:
    """The records of a packet."""
    pieces = []
    while data:
        size = marker_and_words(int.from_bytes(data[:4], "little"))[1] * 8
        pieces.append(data[:size])
        data = data[size:]
    return pieces
