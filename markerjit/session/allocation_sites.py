"""The sites of allocations by number: immediate callers, or whole stacks.

A site gets its name as soon as it is seen: a library may be unloaded, and at the end the process
may be gone. A stack begins with the caller of the allocating function, whose own frames say nothing
of who asked. Two numbers of one stack are one site.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress

import markerjit.abi as abi
from markerjit.allocations.summary import CallSite
from markerjit.elf.demangle import demangled
from markerjit.errors import MarkerError
from markerjit.session.target import Target
from markerjit.session.walked import WalkedStacks
from markerjit.unwind.frames import Frame, WalkedStack
from markerjit.unwind.names import FrameNames
from markerjit.unwind.objects import ProcessCode
from markerjit.unwind.walk import StackEnd


class Sites:
    """The sites that were seen."""

    def __init__(
        self,
        target: Target,
        stacks: WalkedStacks | None,
        depth: int,
        markers: Mapping[int, str],
    ) -> None:
        """`stacks` where a site is a stack, of so many frames at most; else it is an immediate
        caller. `markers` are names by their numbers."""
        self._markers = markers
        self._target = target
        self._stacks = stacks
        self._depth = depth
        self._known: dict[int, CallSite] = {}
        self._maps_text = ""
        self._names: FrameNames | None = None
        self.look()
        self._lost_before = stacks.lost if stacks else 0
        with suppress(MarkerError):  # so that objects are known if the process ends soon
            self._look()

    @property
    def lost(self) -> int:
        """How many allocations have no stack, because there was no room for it."""
        return self._stacks.lost - self._lost_before if self._stacks else 0

    def look(self) -> None:
        """See what is mapped now, so that stacks are walked, and named, by that."""
        if self._stacks:
            self._stacks.look()

    def of(self, key: int) -> CallSite:
        """The site with a key: an address, or the number of a stack or of a marker."""
        if key not in self._known:
            self._known[key] = self._new(key)
        return self._known[key]

    def _new(self, key: int) -> CallSite:
        if key & abi.SITE_STACK:
            return self._of_stack(key)
        if key & abi.SITE_MARKER:
            return CallSite(0, self._markers.get(key ^ abi.SITE_MARKER, "?"))
        return self._site(key)

    def _of_stack(self, key: int) -> CallSite:
        number = key & ~(abi.SITE_STACK | abi.SITE_MARKER)
        walked = self._stacks.of(number) if self._stacks else None
        if walked is None:
            return CallSite(0, f"stack {number}")
        # The innermost frame of a function is its own.
        first = 0 if key & abi.SITE_MARKER or len(walked.frames) < 2 else 1
        frames = walked.frames[first : first + self._depth]
        end = StackEnd.DEEPER if len(walked.frames) > first + self._depth else walked.end
        return _site_of(frames[0])._replace(stack=WalkedStack(frames, end))

    def _site(self, address: int) -> CallSite:
        with suppress(MarkerError, OSError):  # the process has ended, and so its names
            for _ in range(2):
                if self._names:
                    frame = self._names.frame(address, exact=False)
                    if frame.object:
                        return _site_of(frame)
                if not self._look():
                    break
        return CallSite(address, f"{address:#x}")

    def _look(self) -> bool:
        """Look at what is mapped now; whether something came or went since the last look."""
        target = self._target
        target.look()
        if self._names and target.seen.maps_text == self._maps_text:
            return False
        self._maps_text = target.seen.maps_text
        code = ProcessCode(target.memory.read, target.seen.maps)
        self._names = FrameNames(target.pid, code, outlives=True)
        return True


def _site_of(frame: Frame) -> CallSite:
    if not frame.object:
        return CallSite(frame.address, f"{frame.address:#x}")
    label = demangled(frame.function) or frame.label
    return CallSite(frame.address, label, frame.offset, frame.object)
