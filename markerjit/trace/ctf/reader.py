"""Reading our own CTF traces, of either version: the same batches of packets that were written. It
reads no traces of others, and believes no size or number that a file claims.

A trace whose writer was killed is as good as any other, except that its losses are known by CPU
only. A file that is cut off within a packet ends with the packet before. The caller is told of
both.

Files are opened for each packet anew: there may be more of them than a process may have open.
"""

from __future__ import annotations

import heapq
import json
import os
import re
from collections.abc import Callable, Iterator
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from uuid import UUID

from markerjit.errors import BadTrace
from markerjit.ring.batch import Packet
from markerjit.ring.types import WORD
from markerjit.trace.ctf import ctf2, tsdl
from markerjit.trace.ctf.info import LOST, OURS, Lost, load, load_lost
from markerjit.trace.ctf.layout import HeadFormat, PacketHead
from markerjit.trace.ctf.records import Codec
from markerjit.trace.reading import open_to_read
from markerjit.trace.sink import TraceInfo
from markerjit.tuples import NamedTuple

_PACKET_AT_MOST = 1 << 31
"""No ring is larger."""
_METADATA_AT_MOST = 1 << 26
_CPU_AT_MOST = 0xFFFF
_RING = (1 << 32) - 1

Complain = Callable[[str], None]


class _Metadata(NamedTuple):
    uuid: bytes
    info: str
    lost: str | None


class _Stream:
    """One file of packets."""

    def __init__(self, path: Path, heads: HeadFormat, complain: Complain) -> None:
        self.path = path
        self._heads = heads
        self._complain = complain

    def heads(self) -> Iterator[tuple[int, PacketHead]]:
        """The offset and the head of each whole packet. Packets that are added meanwhile may be
        missing."""
        at, (_, end) = 0, _read(self.path, 0, 0)
        while at < end:
            data, size = _read(self.path, self._heads.size, at)
            if len(data) < self._heads.size:
                self._complain(f"{self.path.name} is cut off in the head of a packet")
                return
            head = self._heads.unpack(data)
            if head is None:
                raise BadTrace(f"{self.path} has no packet of this trace at byte {at}")
            if at + head.size > size:
                # An empty one was about to get more room when its writer was killed.
                if head.content > self._heads.content:
                    self._complain(f"{self.path.name} is cut off in the middle of a packet")
                return
            yield at, head
            at += head.size

    def records(self, at: int, head: PacketHead) -> bytes:
        """The bytes of a packet's records."""
        size = max(0, -(-(head.content - self._heads.size) // WORD) * WORD)
        if size > min(head.size - self._heads.size, _PACKET_AT_MOST):
            raise BadTrace(
                f"{self.path} has a packet of {size} bytes at byte {at}, which is too large"
            )
        data, _ = _read(self.path, size, at + self._heads.size)
        if len(data) < size:
            raise BadTrace(f"{self.path} has become shorter while it was read")
        return data


def read_ctf(
    path: str | Path, complain: Complain = lambda problem: None
) -> tuple[TraceInfo, Iterator[list[Packet]], Lost]:
    """The description of a trace, its packets batch by batch, and the losses by (CPU, marker).

    The marker of records that made no sense when the trace was written is not known, nor is that of
    any loss if the writer was killed. Its name is "" then. Raises BadTrace, also from the iterator.
    """
    folder = Path(path)
    file = folder / "metadata"
    try:
        raw, size = _read(file, _METADATA_AT_MOST, 0)
    except BadTrace as error:
        if isinstance(error.__cause__, (FileNotFoundError, NotADirectoryError)):
            raise BadTrace(f"{folder} is not a CTF trace: there is no {file}") from None
        raise
    if size > _METADATA_AT_MOST:
        raise BadTrace(f"{file} is too large")
    metadata = _metadata(raw, str(file))
    info, base, head = load(metadata.info, str(file))
    heads = HeadFormat(metadata.uuid, info.clock.time)
    streams = [_Stream(file, heads, complain) for file in _files(folder)]
    if metadata.lost is None:
        complain("it has no end: more may have been lost than is known")
        lost: Lost = _lost(streams)
    else:
        lost = load_lost(metadata.lost, str(file))
    codec = Codec(info.types, info.clock.time, base, 0, head=head)
    return info, _batches(streams, codec), lost


def size_of_rings(path: str) -> int:
    """The bytes of all packets. Raises BadTrace."""
    return sum(_read(file, 0, 0)[1] for file in _files(Path(path)))


def _files(folder: Path) -> list[Path]:
    """The files of packets."""
    try:
        names = sorted(os.listdir(folder))
    except OSError as error:
        raise BadTrace(f"cannot read {folder}: {error.strerror}") from error
    return [folder / name for name in names if name != "metadata" and name[0] != "."]


def _read(path: Path, size: int, at: int) -> tuple[bytes, int]:
    """So many bytes of a file, less where it ends before, and how large it is then."""
    file = open_to_read(str(path))
    try:
        return os.pread(file, size, at), os.fstat(file).st_size
    except OSError as error:
        raise BadTrace(f"cannot read {path}: {error.strerror}") from error
    finally:
        os.close(file)


def _batches(streams: list[_Stream], codec: Codec) -> Iterator[list[Packet]]:
    """Packets of all files that were written with one batch."""
    heads = heapq.merge(*map(_heads, streams), key=itemgetter(0))
    for _, batch in groupby(heads, key=itemgetter(0)):
        packets = [_packet(stream, at, head, codec) for _, stream, at, head in batch]
        if full := [packet for packet in packets if packet]:
            yield full


def _heads(stream: _Stream) -> Iterator[tuple[int, _Stream, int, PacketHead]]:
    """The packets of a file, each behind the number of its batch."""
    for at, head in stream.heads():
        yield head.batch, stream, at, head


def _packet(stream: _Stream, at: int, head: PacketHead, codec: Codec) -> Packet | None:
    """The records of a packet; None where there are none."""
    data = stream.records(at, head)
    if not data:
        return None
    if head.cpu > _CPU_AT_MOST:
        raise BadTrace(f"{stream.path} has a packet of a CPU that there cannot be")
    packet = codec.decode(head.cpu, head.instance & _RING, data)
    if packet is None:
        raise BadTrace(f"{stream.path} has a damaged record in its packet at byte {at}")
    return packet


def _lost(streams: list[_Stream]) -> dict[tuple[int, str], int]:
    """The losses of a trace that was not ended, as its packets tell of them."""
    lost: dict[tuple[int, str], int] = {}
    for stream in streams:
        for _, head in stream.heads():
            if head.discarded:
                cpu = head.cpu if head.cpu <= _CPU_AT_MOST else -1
                lost[cpu, ""] = head.discarded
    return lost


def _metadata(raw: bytes, path: str) -> _Metadata:
    """Our own part of the metadata."""
    text = raw.decode(errors="replace")
    try:
        if text.startswith(ctf2.SEPARATOR):
            uuid, known = _of_ctf2(text)
        elif text.startswith(tsdl.SIGNATURE):
            uuid, known = _of_tsdl(text)
        else:
            raise BadTrace(f"{path} is not of CTF 1.8 or 2")
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise BadTrace(f"{path} is none of markerjit's: {error!r}") from None
    if OURS not in known or len(uuid) != 16:
        raise BadTrace(f"{path} is none of markerjit's; babeltrace2 may know what it is")
    return _Metadata(uuid, known[OURS], known.get(LOST))


def _of_tsdl(text: str) -> tuple[bytes, dict[str, str]]:
    uuid = re.search(r'^\tuuid = "([0-9a-f-]{36})";$', text, re.MULTILINE)
    known = {}
    for name in (OURS, LOST):
        entry = re.search(rf'^\t{name} = "((?:[^"\\]|\\.)*)";$', text, re.MULTILINE)
        if entry is not None:
            known[name] = tsdl.unquoted(entry[1])
    return UUID(uuid[1]).bytes if uuid else b"", known


def _of_ctf2(text: str) -> tuple[bytes, dict[str, str]]:
    preamble, trace_class, *_ = map(json.loads, text.split(ctf2.SEPARATOR)[1:])
    environment = trace_class["environment"].items()
    known = {name: value for name, value in environment if isinstance(value, str)}
    return bytes(preamble["uuid"]), known
