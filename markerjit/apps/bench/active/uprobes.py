"""Uprobes of the kernel, which count and may also record: perf_event_open(2) of the type `uprobe`.

An event belongs to one thread and to a descriptor of ours. However we end, the kernel removes the
uprobe with the descriptor. Nothing is left in tracefs, which need not even be mounted.
"""

from __future__ import annotations

import ctypes
import errno
import mmap
import os
import resource
import struct
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from markerjit.errors import NotPermitted, Unsupported
from markerjit.lowlevel import read_maps
from markerjit.tuples import NamedTuple

_TYPE = Path("/sys/bus/event_source/devices/uprobe/type")
_PARANOID = Path("/proc/sys/kernel/perf_event_paranoid")
_PERF_EVENT_OPEN = 298  # its number on x86-64
_SIZE = 96  # of the struct perf_event_attr that has sample_regs_user: PERF_ATTR_SIZE_VER3
_SAMPLE = 1 << 1 | 1 << 2 | 1 << 12  # thread, time, registers of the program
_REGISTERS = 1 << 4 | 1 << 5  # PERF_REG_X86_SI and _DI, where listen.c has its ints
_RING = 9 * mmap.PAGESIZE  # the first page is the head
_CLOEXEC = 8


class Spot(NamedTuple):
    """A place in a file, whether each visit is also recorded, and whether the uprobe is at the
    return from the function that begins there."""

    path: Path
    offset: int
    record: bool = False
    is_return: bool = False


def open_uprobe(spot: Spot, thread: int) -> int:
    """A descriptor that counts the visits of a thread to a place. Raises Unsupported,
    NotPermitted."""
    if not _TYPE.exists():
        raise Unsupported(
            "the kernel has no uprobe events (CONFIG_UPROBE_EVENTS, CONFIG_PERF_EVENTS)"
        )
    name = ctypes.create_string_buffer(os.fsencode(spot.path))
    period, sample, registers = (1, _SAMPLE, _REGISTERS) if spot.record else (0, 0, 0)
    attributes = struct.pack(
        "IIQQQQQIIQQQQIi", int(_TYPE.read_text()), _SIZE, spot.is_return, period, sample,
        0, 0, 0, 0, ctypes.addressof(name), spot.offset, 0, registers, 0, 0,
    )  # fmt: skip
    libc = ctypes.CDLL(None, use_errno=True)
    descriptor: int = libc.syscall(_PERF_EVENT_OPEN, attributes, thread, -1, -1, _CLOEXEC)
    if descriptor >= 0:
        return descriptor
    code = ctypes.get_errno()
    if code in (errno.EACCES, errno.EPERM):
        raise NotPermitted(
            "perf_event_open does not permit uprobes (kernel.perf_event_paranoid is "
            f"{_paranoid()}); run as root, or give CAP_PERFMON"
        )
    raise Unsupported(f"perf_event_open of a uprobe: {os.strerror(code)}")


@contextmanager
def counting(spots: Sequence[Spot], threads: Sequence[int]) -> Iterator[list[int]]:
    """Uprobes for all of these threads: a descriptor for each, place after place. Uprobes that
    record have a ring that is overwritten. (It is mapped read-only, so the kernel waits for no
    reader.) Raises Unsupported, NotPermitted."""
    opened: list[int] = []
    rings: list[mmap.mmap] = []
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))  # for some hundred CPUs
    try:
        for spot in spots:
            for thread in threads:
                opened.append(open_uprobe(spot, thread))
                if spot.record:
                    rings.append(ring_of(opened[-1]))
        yield opened
    finally:
        for ring in rings:
            ring.close()
        for descriptor in opened:
            os.close(descriptor)


def ring_of(descriptor: int) -> mmap.mmap:
    """The ring of an event that records. Raises Unsupported."""
    try:
        return mmap.mmap(descriptor, _RING, mmap.MAP_SHARED, mmap.PROT_READ)
    except OSError as error:
        raise Unsupported(
            f"no ring for a uprobe: {error.strerror} (kernel.perf_event_mlock_kb, ulimit -l)"
        ) from None


def count(descriptor: int) -> int:
    """The hits that a uprobe has counted."""
    return int.from_bytes(os.read(descriptor, 8), "little")


def spot_at(pid: int, address: int, *, record: bool = False, is_return: bool = False) -> Spot:
    """The place in the file that is mapped at an address. Raises Unsupported."""
    for mapping in read_maps(pid):
        if mapping.start <= address < mapping.end and mapping.inode:
            offset = address - mapping.start + mapping.offset
            return Spot(Path(mapping.path), offset, record, is_return)
    raise Unsupported(f"{address:#x} of process {pid} is not of a file")


def _paranoid() -> str:
    try:
        return _PARANOID.read_text().strip()
    except OSError:
        return "not shown"
