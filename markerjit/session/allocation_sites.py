"""The sites of allocations by number: immediate callers, or whole stacks.

Names are those of the objects that were seen at an address: a library may be unloaded, and at the
end the process may be gone. A stack begins with the caller of the allocating function, whose own
frames say nothing of who asked. Two numbers of one stack are one site.
"""

from __future__ import annotations

from collections.abc import Mapping

import markerjit.abi as abi
from markerjit.allocations.summary import CallSite
from markerjit.elf.demangle import demangled
from markerjit.frames import UNKNOWN_OBJECT
from markerjit.session.seen_code import SeenCode
from markerjit.session.target import Target
from markerjit.session.walked import WalkedStacks
from markerjit.unwind.frames import Frame, WalkedStack
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
        self._stacks = stacks
        self._depth = depth
        self._known: dict[int, CallSite] = {}
        self._code = SeenCode(target)
        self.look()
        self._lost_before = stacks.lost if stacks else 0

    @property
    def lost(self) -> int:
        """How many allocations have no stack, because there was no room for it."""
        return self._stacks.lost - self._lost_before if self._stacks else 0

    def look(self) -> None:
        """See what is mapped now, so that stacks are walked, and sites named, by that."""
        if self._stacks:
            self._stacks.look()
        if self._code.look():
            self._known.clear()

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
        frame = self._code.frame(address)
        if frame.object == UNKNOWN_OBJECT:
            return CallSite(address, f"{UNKNOWN_OBJECT} {address:#x}")
        return _site_of(frame)


def _site_of(frame: Frame) -> CallSite:
    if not frame.object:
        return CallSite(frame.address, f"{frame.address:#x}")
    label = demangled(frame.function) or frame.label
    return CallSite(frame.address, label, frame.offset, frame.object)
