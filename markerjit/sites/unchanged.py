"""Files of mappings that have not changed since something was found in them.

Every write to a file changes its ctime, and nobody can set that. But a file that was just written
may be written again within the same tick of the kernel's clock, or through a mapping of which the
kernel has told once that it was written. So a file counts only when it has rested for so long that
neither can be (`_RESTED_S`), and is on a block device: in a tmpfs nothing tells of writes through a
mapping, and on an overlay a mapping has the numbers of another file.

What this does not do: keep what was found (usdt_files.py, vforks.py).
"""

from __future__ import annotations

import os
import time
from functools import lru_cache

from markerjit.memory import Mapping
from markerjit.model import new
from markerjit.sites.mapped_files import ways_to
from markerjit.tuples import NamedTuple

_RESTED_S = 3600


class Version(NamedTuple):
    """A file, and what changes whenever it does: stat(2)."""

    device: int
    inode: int
    size: int
    mtime_ns: int
    ctime_ns: int


def version_of(about: os.stat_result, mapping: Mapping) -> Version | None:
    """The version of the file that is mapped, which this is about; None where this is about another
    one, or where it has not rested."""
    if about.st_ino != mapping.inode or _in_maps(about.st_dev) != mapping.device:
        return None
    fields = about.st_dev, about.st_ino, about.st_size, about.st_mtime_ns, about.st_ctime_ns
    return new(Version, fields) if _has_rested(about) else None


def mapped_version(pid: int, mapping: Mapping) -> Version | None:
    """The same of the file as it is found by the mapping; None where it is not."""
    in_maps, at_its_path = ways_to(pid, mapping)
    try:
        return version_of(os.stat(in_maps if mapping.deleted else at_its_path), mapping)
    except OSError:
        return None


@lru_cache(64)  # the files of a process are on a few devices
def _in_maps(device: int) -> str:
    """A device as /proc/PID/maps has it."""
    return f"{os.major(device):02x}:{os.minor(device):02x}"


def _has_rested(about: os.stat_result) -> bool:
    """Whether nothing can be written to a file from now on without a change of its ctime."""
    return bool(os.major(about.st_dev)) and time.time() - about.st_ctime >= _RESTED_S
