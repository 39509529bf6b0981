"""What the kernel says of one page of a process: how it may be used, and whether the process has a
copy of its own. It reads /proc/PID/pagemap, and changes nothing.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Sequence

from markerjit.memory.maps import Mapping
from markerjit.model import RemoteAddress
from markerjit.tuples import NamedTuple

PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
_ENTRY = struct.Struct("<Q")
# Documentation/admin-guide/mm/pagemap.rst
_PRESENT, _SWAPPED, _OF_FILE = 1 << 63, 1 << 62, 1 << 61


class Page(NamedTuple):
    """A page of a process.

    access  as /proc/PID/maps shows it, `r-xp`: p for a private mapping, s for a shared one
    path    the mapped file; "" for none
    copied  whether the process has the page to itself: it was written to since it was mapped. None
            where the kernel does not say it
    """

    address: RemoteAddress
    access: str
    path: str
    copied: bool | None


def page_at(pid: int, maps: Sequence[Mapping], address: RemoteAddress) -> Page | None:
    """The page with this address; None where nothing is mapped there."""
    mapping = next((each for each in maps if each.start <= address < each.end), None)
    if mapping is None:
        return None
    letters = (
        (mapping.readable, "r"),
        (mapping.writable, "w"),
        (mapping.executable, "x"),
    )
    access = "".join(letter if has else "-" for has, letter in letters)
    start = RemoteAddress(address // PAGE_BYTES * PAGE_BYTES)
    kind = "s" if mapping.shared else "p"
    return Page(start, access + kind, mapping.path, _is_copied(pid, mapping, start))


def _is_copied(pid: int, mapping: Mapping, page: RemoteAddress) -> bool | None:
    """A page of a private mapping that is in memory, or swapped out, and is not the file's."""
    if mapping.shared:
        return False
    try:
        with open(f"/proc/{pid}/pagemap", "rb", buffering=0) as pagemap:
            entry = os.pread(pagemap.fileno(), _ENTRY.size, page // PAGE_BYTES * _ENTRY.size)
    except OSError:
        return None
    if len(entry) < _ENTRY.size:
        return None
    (flags,) = _ENTRY.unpack(entry)
    return bool(flags & (_PRESENT | _SWAPPED)) and not flags & _OF_FILE
