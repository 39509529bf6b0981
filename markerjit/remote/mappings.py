"""What is mapped in a process, to be asked again and again.

What this does not do: say which files these are (memory/maps.py), or whether what is written to is
still mapped while no thread runs (native/src/stop/mapped.c).
"""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Iterable

from markerjit.remote import native

_MOST = 4096
_EACH = struct.Struct("<5Q2I")
"""struct mj_mapping."""
CODE = 4
SHARED_CODE = 4 | 8
"""Permissions, as of `struct mj_mapping`: that can be executed, and is shared."""


class Mappings:
    """The mappings of a process without their names, to be compared with those of another moment.

    The kernel writes /proc/PID/maps as text, which takes it longer than a switch of one's own
    process does in all. Since Linux 6.11 it also answers for one mapping after the other.
    """

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._room: ctypes.Array[native.NativeMapping] | None = None

    def now(self) -> bytes | None:
        """All of them, as bytes that are equal when nothing has changed. None where the kernel does
        not tell, where there are more than `_MOST`, and of a process without memory."""
        if self._room is None:
            self._room = (native.NativeMapping * _MOST)()
        count = int(native.library().mj_mappings(self._pid, self._room, _MOST))
        if not 0 < count <= _MOST:
            return None
        return ctypes.string_at(self._room, count * ctypes.sizeof(native.NativeMapping))


def are_told(mapped: bytes, places: Iterable[tuple[int, int, int, int]]) -> bool:
    """Whether `Mappings.now` has told of mappings with these starts, ends, offsets and inodes. The
    same answer before and after a reading of /proc/PID/maps does not say so: an object may have
    been unloaded for the reading, and loaded again at the same address."""
    each = _EACH.iter_unpack(mapped)
    return list(places) == [
        (start, end, offset, inode) for start, end, _, offset, inode, _, _ in each
    ]
