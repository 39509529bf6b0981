"""Can a process have a child that runs in its memory, as vfork(2) and clone(2) make them?

Such a child has its parent's thread control block, and the kernel knows no restartable sequences of
it: what the recorder reads there as its CPU is where the parent was, and no sequence of it is ever
restarted. Only a system call can tell it from its parent. So where there may be one,
no thread writes to a CPU's own ring (docs/decisions/0016-children-in-our-memory.md).

The test is whether an object of the process calls vfork or clone of the C library by name, and in a
static program, whether it contains that vfork. Not seen: a system call that a program makes
itself, and a function that it looks up while it runs. posix_spawn, and with it system and popen,
runs nothing of the program in the child, and no signal handler of it.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import suppress

from markerjit.elf import Image, Read
from markerjit.elf.image import PF_X
from markerjit.elf.imports import imports_any, needs_others
from markerjit.errors import BadFile, MemoryFault
from markerjit.memory import Mapping
from markerjit.sites.discover import image_at, starts_of_objects
from markerjit.sites.mapped_files import file_of
from markerjit.sites.unchanged import Version, mapped_version, version_of
from markerjit.x86.forms import VFORK

_CALLS = (b"vfork", b"__vfork", b"clone", b"__clone")
_PIECE = 1 << 20
_MOST_KNOWN = 4096
_known: dict[Version | None, bool] = {}
"""The answers of files."""


def may_share_memory(pid: int, read: Read, maps: Sequence[Mapping]) -> bool:
    """Whether the process may have such children, as far as its objects tell."""
    return any(_has_them(pid, read, mapping) for mapping in starts_of_objects(maps))


def _has_them(pid: int, read: Read, mapping: Mapping) -> bool:
    """The processes of a fleet have the same files. So a file is asked once, and not what each of
    them has in its memory, which is nothing that others should believe. One that has changed, or
    may do so, is asked in the memory of each."""
    version = mapped_version(pid, mapping)
    if version in _known:
        return _known[version]
    loaded = image_at(read, mapping, [])
    if loaded is None:
        return False
    if version:
        with suppress(BadFile), file_of(pid, mapping, loaded) as image:
            if version_of(os.fstat(image.fileno()), mapping) == version:
                answer = _makes_them(image)
                if len(_known) < _MOST_KNOWN:
                    _known[version] = answer
                return answer
    return _makes_them(loaded)


def _makes_them(image: Image) -> bool:
    if imports_any(image, _CALLS):
        return True
    return not needs_others(image) and any(VFORK in piece for piece in _code(image))


def _code(image: Image) -> Iterator[bytes]:
    """Its code, in pieces that overlap; what cannot be read is not run either."""
    for span in image.loaded(PF_X):
        for start in range(span.start, span.stop, _PIECE):
            try:
                yield image.read(start, min(_PIECE + len(VFORK) - 1, span.stop - start))
            except MemoryFault:
                continue
