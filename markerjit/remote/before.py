"""A process as it was, and one native call that asks whether it still is (native/src/stop/again.c).

What this does not do: say what has to be the same, and what follows where it is not
(session/again.py).
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence

from markerjit.remote import native
from markerjit.tuples import NamedTuple


class Place(NamedTuple):
    """Bytes at an offset of an open file."""

    file: int
    offset: int
    content: bytes


class Before:
    """What a process had. Descriptors and memory of the caller, which have to stay open.

    pidfd   the process lives; -1: not asked
    maps    its /proc/PID/maps, open
    kind    only mappings that have all of these permissions are compared: CODE or SHARED_CODE of
            remote/mappings.py; 0: all are
    loads   the objects that our own process had loaded (`native.own_loads`); b"": not asked
    places  bytes of files
    """

    def __init__(
        self,
        maps: int,
        kind: int = 0,
        *,
        pidfd: int = -1,
        loads: bytes = b"",
        places: Sequence[Place] = (),
    ) -> None:
        self._held = tuple(places)  # their bytes are pointed to
        self._places = (native.NativePlace * len(places))(
            *(native.NativePlace(file, len(content), offset, content)
              for file, offset, content in self._held)
        )  # fmt: skip
        self._loads = native.Loads.from_buffer_copy(loads) if loads else None
        self._before = native.NativeBefore(
            pidfd=pidfd,
            maps=maps,
            kind=kind,
            loads=ctypes.pointer(self._loads) if self._loads else None,
            places=self._places,
            place_count=len(places),
        )
        self._mapped = b""

    def is_now(self, mapped: bytes) -> bool:
        """Whether all is the same, and the mappings are those that `Mappings.now` has told of.
        False where the kernel does not tell, and after the process has executed another
        program."""
        before = self._before
        if mapped is not self._mapped:
            self._mapped = before.mapped = mapped
            before.mapped_count = len(mapped) // ctypes.sizeof(native.NativeMapping)
        return bool(native.library().mj_is_as_before(before))
