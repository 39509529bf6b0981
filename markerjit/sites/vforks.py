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

from collections.abc import Iterator, Sequence

from markerjit.elf import Image, Read
from markerjit.elf.image import PF_X
from markerjit.elf.imports import imports_any, needs_others
from markerjit.errors import MemoryFault
from markerjit.memory import Mapping
from markerjit.sites.discover import mapped_images
from markerjit.x86.forms import VFORK

_CALLS = (b"vfork", b"__vfork", b"clone", b"__clone")
_PIECE = 1 << 20


def may_share_memory(read: Read, maps: Sequence[Mapping]) -> bool:
    """Whether the process may have such children, as far as its objects tell."""
    return any(_makes_them(image) for _, image in mapped_images(read, maps, []))


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
