"""The mappings of a process, from /proc/PID/maps.

Authority: proc_pid_maps(5). The kernel writes the file a page at a time. A process that maps and
unmaps while we read may therefore show a state that never existed; each single line is true. The
format has two ambiguities: a newline in a path looks like the four characters `\\012`, and a
deleted file like one whose name ends in " (deleted)". Both are read as the usual case, the newline
and the deleted file.
"""

from __future__ import annotations

import os
from functools import cache, lru_cache
from typing import Literal

from markerjit.errors import BadMaps, NoSuchProcess
from markerjit.memory.base import WhyNot, plain_refusal, proc_error
from markerjit.model import RemoteAddress, new
from markerjit.tuples import NamedTuple

_DELETED = " (deleted)"
_DIGITS = frozenset("0123456789abcdef")


class Mapping(NamedTuple):
    """One line of /proc/PID/maps.

    A named tuple, because a dataclass of this size adds 1.3 ms to the start of every command.

    offset   in the file, bytes
    device   "major:minor", hexadecimal, as the kernel shows it; on an overlay it is not st_dev
    path     "" for anonymous memory; "[heap]", "[vdso]" and the like have brackets
    deleted  the file was removed from its path, or replaced there; always true of memfds
    """

    start: RemoteAddress
    end: RemoteAddress
    readable: bool
    writable: bool
    executable: bool
    shared: bool
    offset: int
    device: str
    inode: int
    path: str
    deleted: bool

    @property
    def size(self) -> int:
        return self.end - self.start


def read_maps(
    pid: int | Literal["self"], *, why_not: WhyNot = plain_refusal
) -> tuple[Mapping, ...]:
    """The mappings of a process, by address.

    Raises NoSuchProcess, NotPermitted (with the sentence of `why_not`) or BadMaps. A zombie and a
    kernel thread have no mappings.
    """
    return parse_maps(read_maps_text(pid, why_not=why_not))


def read_maps_text(pid: int | Literal["self"], *, why_not: WhyNot = plain_refusal) -> str:
    """The unparsed text of /proc/PID/maps, cheap to compare with an earlier one."""
    number = os.getpid() if pid == "self" else pid
    try:
        with open(f"/proc/{pid}/maps", "rb", buffering=0) as file:
            try:
                content = file.readall()
            except ProcessLookupError:  # reaped since
                raise NoSuchProcess(number) from None
    except ProcessLookupError:  # newer kernels say this of a process without memory
        return ""
    except OSError as error:
        raise proc_error(number, error, why_not) from None
    return os.fsdecode(content)


def parse_maps(text: str) -> tuple[Mapping, ...]:
    """The mappings of a text in the format of /proc/PID/maps. Raises BadMaps, naming the line."""
    # Not splitlines(): a path may hold the other characters that it takes for the end of a line.
    return tuple(_parse_line(line) for line in text.split("\n") if line)


@lru_cache(4096)  # most lines of one look are those of the last one
def _parse_line(line: str) -> Mapping:
    """`start-end perms offset device inode`, one space each, then padding and the path."""
    try:
        span, what = line.split(" ", 1)
        start, end = span.split("-")
        first, last = int(start, 16), int(end, 16)
        # int() accepts more than the kernel writes: signs, underscores, digits of other scripts.
        if first >= last or not _DIGITS.issuperset(start + end):
            raise BadMaps(line)
        return new(Mapping, (first, last, *_parse_what(what)))
    except ValueError:
        raise BadMaps(line) from None


@lru_cache(4096)  # the processes of a fleet have the same files, each at addresses of its own
def _parse_what(text: str) -> tuple[object, ...]:
    """The fields of a mapping behind its addresses. Raises ValueError for a text that is not of
    them."""
    permissions, offset, device, inode, *rest = text.split(" ", 4)
    path = rest[0].lstrip(" ").replace("\\012", "\n") if rest else ""
    major, minor = device.split(":")
    if not (major and minor and _DIGITS.issuperset(offset + major + minor + inode)):
        raise ValueError(text)
    return (
        *_flags(permissions), int(offset, 16), device, int(inode),
        path.removesuffix(_DELETED), path.endswith(_DELETED),
    )  # fmt: skip


@cache  # there are some thirty of them
def _flags(permissions: str) -> tuple[bool, ...]:
    """The four flags. Raises ValueError for a text that is not of four."""
    return tuple(_flag(*each) for each in zip(permissions, "rwxs", strict=True))


def _flag(char: str, letter: str) -> bool:
    """Whether a permission is granted. The last flag is `s` for shared or `p` for private."""
    if char == letter:
        return True
    if char == ("p" if letter == "s" else "-"):
        return False
    raise ValueError(char)
