"""The sites of allocations by number: immediate callers, or whole stacks.

A site gets its name as soon as it is seen: a library may be unloaded, and at the end the process
may be gone. A stack begins with the caller of the allocating function, whose own frames say nothing
of who asked. Two numbers of one stack are one site.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

import numpy as np

from markerjit.allocations.steps import Kind
from markerjit.allocations.summary import CallSite
from markerjit.elf.demangle import demangled
from markerjit.errors import MarkerError
from markerjit.session.target import Target
from markerjit.session.walked import WalkedStacks
from markerjit.unwind.frames import Frame, WalkedStack
from markerjit.unwind.names import FrameNames
from markerjit.unwind.objects import ProcessCode
from markerjit.unwind.walk import StackEnd

if TYPE_CHECKING:
    from markerjit.ring.batch import Array

_STACK = 1 << 63
"""In a key: it is the number of a stack, and no address, which has no such bit in a program."""


class Sites:
    """The sites that were seen. The first one is that of frees, which have none."""

    def __init__(self, target: Target, stacks: WalkedStacks | None, depth: int) -> None:
        """`stacks` where a site is a stack, of so many frames at most; else it is an immediate
        caller."""
        self.sites = [CallSite(0, "")]
        self._target = target
        self._stacks = stacks
        self._depth = depth
        self._known: dict[int | str, int] = {}
        self._of_stacks: dict[object, int] = {}
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

    def numbers(self, callers: Array, marker: str, kind: Kind, stacks: Array | None) -> Array:
        """The number of each site, of callers and the numbers of stacks; `marker` stands for those
        without either."""
        if kind < Kind.ALLOC or kind == Kind.RESULT:
            return np.zeros(len(callers), np.int64)
        keys = callers
        if stacks is not None:
            keys = np.where(stacks == 0, callers, stacks.astype(np.uint64) | np.uint64(_STACK))
        _, rows, places = np.unique(keys, return_index=True, return_inverse=True)
        pairs = zip(keys[rows].tolist(), callers[rows].tolist(), strict=True)
        numbers = [self._number(key, caller, marker) for key, caller in pairs]
        sites: Array = np.array(numbers, np.int64)[places]
        return sites

    def _number(self, key: int, caller: int, marker: str) -> int:
        known = key or marker
        if known not in self._known:
            if not key:
                number = self._new(CallSite(0, marker))
            elif self._stacks and key & _STACK:
                number = self._number_of_stack(self._stacks, key ^ _STACK, caller, marker)
            else:
                number = self._new(self._site(key))
            self._known[known] = number
        return self._known[known]

    def _new(self, site: CallSite) -> int:
        self.sites.append(site)
        return len(self.sites) - 1

    def _number_of_stack(self, stacks: WalkedStacks, number: int, caller: int, marker: str) -> int:
        walked = stacks.of(number)
        if walked is None:
            return self._number(caller, caller, marker)
        stack = _from_caller(walked, caller, self._depth)
        key = tuple(frame.address for frame in stack.frames), stack.end
        if key not in self._of_stacks:
            self._of_stacks[key] = self._new(_site_of(stack.frames[0])._replace(stack=stack))
        return self._of_stacks[key]

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


def _from_caller(stack: WalkedStack, caller: int, depth: int) -> WalkedStack:
    """The stack without the frames that are below this caller, and so many at most."""
    addresses = [frame.address for frame in stack.frames]
    first = addresses.index(caller) if caller in addresses else 0
    frames = stack.frames[first : first + depth]
    end = StackEnd.DEEPER if len(stack.frames) > first + depth else stack.end
    return WalkedStack(frames, end)
