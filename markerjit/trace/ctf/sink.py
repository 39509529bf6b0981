"""Writing a trace as a CTF directory: the metadata, and a file for each ring.

A viewer wants the events of a stream in order of time. Those of a packet are sorted if need be; one
that is older than what its ring's file has already, because its thread was held up, goes into
another file of the ring, `ring_0_late1`, and so on; viewers merge them all.

Losses are known by CPU. The file of the first ring seen of a CPU tells viewers of all of them.
"""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Literal
from uuid import uuid4

from markerjit.errors import Refused
from markerjit.ring.batch import Packet
from markerjit.ring.starts import joined
from markerjit.ring.types import WORD
from markerjit.trace.batch import Batch
from markerjit.trace.ctf import ctf2, tsdl
from markerjit.trace.ctf.info import Clock, Lost, environment, make_clock
from markerjit.trace.ctf.layout import HeadFormat
from markerjit.trace.ctf.records import Codec, Records
from markerjit.trace.ctf.stacks import StackFile
from markerjit.trace.ctf.stream import StreamFile
from markerjit.trace.sink import TraceInfo

Version = Literal["1.8", "2"]

_JOINED = 1 << 20
"""Packets of a ring become one as long as they are no more bytes than this."""
_LATE_AT_MOST = 8
"""Files of a ring. A packet that is too old for all of them makes no sense, and gets the last one's
time."""
_HOUR_S = 3600
_CENTURY_S = 100 * 366 * 86400
_LOST = 1 << 40
"""From here on are the data streams of CPUs that have losses and no records."""
_NO_CPU = 0xFFFFFFFF
"""Also -1, where it is not known which CPU has them."""


class CtfSink:
    """A trace that is being written: see trace/sink.py. Refused where something is already."""

    def __init__(self, path: str | Path, info: TraceInfo, *, version: Version = "1.8") -> None:
        self._path = Path(path)
        self._info = info
        self._metadata = ctf2.metadata if version == "2" else tsdl.metadata
        self._uuid = uuid4()
        self._heads = HeadFormat(self._uuid.bytes, info.clock.time)
        self._files: dict[int, list[StreamFile]] = {}  # by ring: the first, and those for the late
        self._owners: dict[int, int] = {}  # by CPU, the ring whose file has its losses
        self._damaged: dict[int, int] = {}  # by CPU
        self._lost: dict[int, int] = {}  # by CPU, with the damaged ones
        self._stacks = StackFile(self._path)
        self._batch = 0
        try:
            _make_directory(self._path)
            self._start_clock(info.clock.counter)
        except OSError as error:
            if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO):
                raise
            raise Refused(f"cannot write {path}: {error.strerror}") from error

    def write(self, batch: Batch) -> None:
        """Add a batch: a packet for each ring that has something, or a few."""
        if not self._files:
            self._look_back(batch)
        self._batch += 1
        self._count(batch.lost)
        self._stacks.add(batch.stacks)
        for packet in _joined(batch.packets):
            records, damaged = self._codec.take_apart(packet)
            if damaged:
                self._damaged[packet.cpu] = self._damaged.get(packet.cpu, 0) + damaged
                self._lost[packet.cpu] = self._lost.get(packet.cpu, 0) + damaged
            if records.size:
                self._add(packet.ring, packet.cpu, records.in_order())

    def close(self, lost: Lost) -> None:
        """End the trace. The part that was written can be read even if this raises OSError.

        Records that made no sense and were left out count as lost, without a marker's name.
        """
        self._count(lost)
        files = [file for files in self._files.values() for file in files]
        last = max((file.last for file in files), default=0)
        everything = dict(lost)
        for cpu, count in self._damaged.items():
            everything[cpu, ""] = everything.get((cpu, ""), 0) + count
        with contextlib.ExitStack() as stack:
            stack.callback(self._write_metadata, everything)
            stack.callback(self._stacks.close)
            for file in files:
                stack.callback(file.close)
            for cpu, count in self._lost.items():
                if cpu in self._owners:
                    file = self._files[self._owners[cpu]][0]
                elif count:
                    name, instance = f"lost_cpu{cpu}", _LOST + (cpu & _NO_CPU)
                    file = self._new_file(name, instance, cpu & _NO_CPU, last)
                    stack.callback(file.close)
                else:
                    continue
                if count > file.discarded:
                    self._write_packet(file, memoryview(b""), 0, file.last, file.last, count)

    def _start_clock(self, earliest: int) -> None:
        """Have a clock for records from an hour before this on, and metadata that tell of it."""
        calibration = self._info.clock
        self._clock: Clock | None = make_clock(
            calibration, earliest - _HOUR_S * calibration.frequency_hz
        )
        base, frequency_hz = (self._clock.base, self._clock.frequency_hz) if self._clock else (0, 1)
        limit = min(_CENTURY_S * frequency_hz, (1 << 64) - 1)
        self._codec = Codec(self._info.types, calibration.time, base, limit)
        self._write_metadata(None)

    def _look_back(self, batch: Batch) -> None:
        """The first records of a flight recorder may be older than its calibration."""
        times = [self._codec.earliest(packet) for packet in batch.packets]
        earliest = min((time for time in times if time is not None), default=None)
        if earliest is not None and earliest < self._info.clock.counter:
            self._start_clock(earliest)

    def _write_metadata(self, lost: Lost | None) -> None:
        """Put the metadata in their place, all at once."""
        facts = environment(self._info, self._clock, lost)
        text = self._metadata(self._info, self._uuid, self._clock, facts)
        hidden = self._path / ".metadata"
        hidden.unlink(missing_ok=True)
        try:
            with hidden.open("x", encoding="utf-8") as file:  # no link of another user is followed
                file.write(text)
            hidden.replace(self._path / "metadata")
        except OSError:
            with contextlib.suppress(OSError):
                hidden.unlink()
            raise

    def _count(self, lost: Lost) -> None:
        self._lost = dict(self._damaged)
        for (cpu, _), count in lost.items():
            self._lost[cpu] = self._lost.get(cpu, 0) + count

    def _add(self, ring: int, cpu: int, records: Records) -> None:
        """Write records, in order, into those files of the ring that are not further already."""
        for late in range(_LATE_AT_MOST):
            file = self._file(late, ring, cpu, records.first)
            begins = records.before(file.last)
            if begins and late == _LATE_AT_MOST - 1:
                records.hold(begins, file.last)
                begins = 0
            if begins < records.size:
                later = records.take(slice(begins, None)) if begins else records
                data = self._codec.encode(later).data.cast("B")
                lost = 0 if late or self._owners.get(cpu) != ring else self._lost.get(cpu, 0)
                content = self._codec.content(later)
                self._write_packet(file, data, content, later.first, later.last, lost)
            if not begins:
                return
            records = records.take(slice(begins))

    def _write_packet(
        self, file: StreamFile, data: memoryview, content: int, begin: int, end: int, lost: int
    ) -> None:
        file.add(data, content, begin=begin, end=end, discarded=lost, batch=self._batch)

    def _file(self, late: int, ring: int, cpu: int, time: int) -> StreamFile:
        """A ring's file: the first, or one for what is late. Made when it is needed."""
        files = self._files.setdefault(ring, [])
        if late == len(files):
            name = f"ring_{ring}_late{late}" if late else f"ring_{ring}"
            files.append(self._new_file(name, ring | late << 32, cpu, time))
            if not late:
                self._owners.setdefault(cpu, ring)
        return files[late]

    def _new_file(self, name: str, instance: int, cpu: int, time: int) -> StreamFile:
        return StreamFile(self._path / name, self._heads, instance=instance, cpu=cpu, time=time)


def _make_directory(path: Path) -> None:
    """An empty one; refused where there is something."""
    try:
        path.mkdir()
    except FileExistsError:
        if not path.is_dir():
            raise Refused(f"{path} exists and is not a directory") from None
        if os.listdir(path):
            raise Refused(f"{path} is not empty; a CTF trace has a directory to itself") from None


def _joined(packets: Iterable[Packet]) -> Iterator[Packet]:
    """The packets of a ring behind each other, several in one as long as it stays small."""
    waiting: dict[int, list[Packet]] = {}
    sizes: dict[int, int] = {}
    for packet in packets:
        ring = packet.ring
        if sizes.get(ring, 0) + len(packet.data) > _JOINED and ring in waiting:
            yield _join(waiting.pop(ring))
            sizes[ring] = 0
        waiting.setdefault(ring, []).append(packet)
        sizes[ring] = sizes.get(ring, 0) + len(packet.data)
    for of_ring in waiting.values():
        yield _join(of_ring)


def _join(packets: list[Packet]) -> Packet:
    if len(packets) == 1:
        return packets[0]
    data = [packet.data for packet in packets]
    starts = [packet.starts for packet in packets if packet.starts is not None]
    return packets[0]._replace(
        data=b"".join(data),
        starts=joined(starts, [len(part) // WORD for part in data])
        if len(starts) == len(packets)
        else None,
    )
