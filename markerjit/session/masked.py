"""Code that is executed while all signals are blocked: that of the C library, and of its loader.

The library blocks them where a thread begins and ends, in the child of posix_spawn, in abort. No
code of the program runs then, but the library's own functions do, such as _setjmp. A breakpoint
there would end the process, since its signal is forced on a thread that blocks it. The masks of
threads do not show that beforehand.
"""

from __future__ import annotations

from markerjit.errors import BadFile
from markerjit.model import MappedObject
from markerjit.session.target import Target
from markerjit.sites.mapped_files import image_of

MASKED = (
    "cannot be opened: it needs a breakpoint, and is in the C library, which executes code of its "
    "own with all signals blocked, as where a thread begins: a breakpoint would kill the process"
)
_DEFINED = {"__libc_start_main", "pthread_create", "_dl_allocate_tls"}
"""Functions by which the C library is known, one that has its threads in a library of their own,
and the loader; also where they are linked into the program."""


class Masked:
    """The objects of a process that have such code. Each is looked at once."""

    def __init__(self, target: Target) -> None:
        self._target = target
        self._known: dict[MappedObject, bool] = {}

    def has(self, mapped: MappedObject) -> bool:
        """Whether an object is one of them."""
        if mapped not in self._known:
            self._known[mapped] = self._look(mapped)
        return self._known[mapped]

    def _look(self, mapped: MappedObject) -> bool:
        from markerjit.elf.function_names import function_names  # it imports numpy

        target = self._target
        try:
            image = image_of(target.pid, target.memory.read, target.seen.maps, mapped)
        except BadFile:
            return False
        with image:
            names = function_names(image).names.values()
            return any(name in _DEFINED for of_address in names for name in of_address)
