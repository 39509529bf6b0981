"""One file of packets, which can be opened as a trace at every moment, also when its writer was
killed: behind the last packet is always an empty one, the reserve, that reaches to the file's end.

    | packet | packet | reserve: head of no content, and room |

A packet is added in three steps. Only the last one can be seen:

  1  the head of the next reserve is written into the room, where the packet will end
  2  the records are written into the room
  3  the packet's own head takes the place of the reserve's, in one write within one page

So a full disk needs no repair. The room is a hole in the file until it is used, and is cut off at
the end. While the room is made larger, between two system calls, the last packet claims more than
the file has. Nothing here protects against loss of power.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from markerjit.trace.ctf.layout import PACKET_ALIGN, HeadFormat, PacketHead

_ROOM_AT_FIRST = 1 << 20
_ROOM_AT_MOST = 1 << 26


class StreamFile:
    """A data stream, from the creation of its file on. It is written up to the time `last`."""

    def __init__(
        self, path: Path, heads: HeadFormat, *, instance: int, cpu: int, time: int
    ) -> None:
        self.last = time
        self._heads = heads
        self._instance = instance
        self._cpu = cpu
        self._sequence = 0
        self._discarded = 0
        self._at = 0  # of the reserve
        self._size = 0
        # Viewers do not look at it while its name begins with a point.
        hidden = path.with_name(f".{path.name}")
        self._file = os.open(hidden, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
        try:
            # Viewers count losses from one packet to the next, so the first one has none.
            self.add(memoryview(b""), 0, begin=time, end=time, discarded=0, batch=0)
            hidden.rename(path)
        except BaseException:
            os.close(self._file)
            with contextlib.suppress(OSError):
                hidden.unlink()
            raise

    @property
    def discarded(self) -> int:
        """The losses as of the last packet."""
        return self._discarded

    def add(
        self,
        records: memoryview,
        content: int,
        *,
        begin: int,
        end: int,
        discarded: int,
        batch: int,
    ) -> None:
        """Write a packet, of whose records the first `content` bytes mean something. Raises
        OSError, and then the file is as it was."""
        discarded = max(discarded, self._discarded)  # viewers count the difference
        taken = self._heads.size + len(records)
        size = -(-taken // PACKET_ALIGN) * PACKET_ALIGN
        self._make_room(size + PACKET_ALIGN)
        start = self._at
        head = PacketHead(
            self._instance,
            size,
            self._heads.size + content if content else self._heads.content,
            self._sequence,
            discarded,
            begin,
            end,
            self._cpu,
            batch,
        )
        reserve = head._replace(
            size=self._size - start - size,
            content=self._heads.content,
            sequence=self._sequence + 1,
            begin=end,
        )
        self._write(self._heads.pack(reserve), start + size)  # 1
        self._write(records, start + self._heads.size)  # 2
        self._write(self._heads.pack(head), start)  # 3
        self._at = start + size
        self._sequence += 1
        self._discarded = discarded
        self.last = end

    def close(self) -> None:
        """Cut off the reserve."""
        try:
            os.ftruncate(self._file, self._at)
        finally:
            os.close(self._file)

    def _make_room(self, need: int) -> None:
        """Let the reserve have `need` bytes."""
        if self._size - self._at >= need:
            return
        more = min(max(self._at, _ROOM_AT_FIRST), _ROOM_AT_MOST)
        try:
            self._resize(self._at + max(need, more))
        except OSError:
            if need >= more:
                raise
            self._resize(self._at + need)  # a limit on the size of files leaves us less

    def _resize(self, size: int) -> None:
        if not self._size:
            os.ftruncate(self._file, size)
            self._size = size
            return
        old = os.pread(self._file, self._heads.size, self._at)
        head = self._heads.unpack(old)
        assert head is not None
        self._write(self._heads.pack(head._replace(size=size - self._at)), self._at)
        try:
            os.ftruncate(self._file, size)
        except OSError:
            self._write(old, self._at)
            raise
        self._size = size

    def _write(self, data: bytes | memoryview, at: int) -> None:
        rest = memoryview(data)
        while rest:
            written = os.pwrite(self._file, rest, at)
            rest, at = rest[written:], at + written
