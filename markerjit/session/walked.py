"""The stacks of events by their numbers, with the names of their functions, for one reader.

A stack has the number of its epoch, in which each address is of one object (arena/stacks.py). So a
frame has the name of the object that was at its address when the stack was walked, although another
one may be there by now. A frame of an object that this reader never saw is one of an unknown
object. While the process runs the reader has the directory of its code made anew when other code is
mapped.
"""

from __future__ import annotations

from contextlib import suppress

from markerjit.arena.stacks import (
    NO_OBJECT,
    Extent,
    Identity,
    KeptStack,
    StackMemory,
    identity_of,
    stacks_of,
)
from markerjit.errors import MarkerError
from markerjit.frames import UNKNOWN_OBJECT
from markerjit.memory.maps import read_maps_text
from markerjit.session.switch import Switcher
from markerjit.unwind.frames import Frame, WalkedStack
from markerjit.unwind.names import FrameNames
from markerjit.unwind.objects import LoadedCode, ProcessCode


class WalkedStacks:
    """The stacks of a process."""

    def __init__(self, switcher: Switcher) -> None:
        self._switcher = switcher
        self._known: dict[int, WalkedStack | None] = {}
        self._maps_text = ""
        self._lost = 0
        self._objects: dict[Identity, tuple[FrameNames, LoadedCode]] = {}
        self._extents: dict[int, set[Extent]] = {}
        self._frames: dict[tuple[int, int, bool], Frame] = {}

    def look(self) -> None:
        """Before stacks are read: see what is mapped. What cannot be seen, because the process has
        ended or another controller is at work, stays as it was."""
        target = self._switcher.target
        with suppress(MarkerError):
            if read_maps_text(target.pid) == self._maps_text:
                return
            with self._switcher.turn() as turn:  # which has the directory made anew
                maps_text, maps = turn.seen.maps_text, turn.seen.maps
                code = ProcessCode(target.memory.read, maps)
                names = FrameNames(target.pid, code, outlives=True)
                objects = {identity_of(each.image): (names, each) for each in code.codes}
                if read_maps_text(target.pid) != maps_text:
                    return  # what was read may be of other objects: at the next look
                self._objects = objects | self._objects
                self._see_extents()
                self._maps_text = maps_text

    def of(self, number: int) -> WalkedStack | None:
        """The stack with this number; None where it is not known."""
        if number not in self._known:
            memory = self._memory
            kept = memory.kept(number) if memory else None
            if kept is None or not self._objects:
                return None
            walked = self._named(kept)
            unknown = sum(frame.object == UNKNOWN_OBJECT for frame in walked.frames)
            if unknown > kept.known.count(False):  # a look may still tell
                return walked
            self._known[number] = walked
        return self._known[number]

    @property
    def lost(self) -> int:
        """How many events have no stack, because there was no room for it."""
        with suppress(MarkerError):  # at the end, what was seen last
            memory = self._memory
            self._lost = memory.lost if memory else 0
        return self._lost

    def _named(self, kept: KeptStack) -> WalkedStack:
        if kept.epoch not in self._extents:  # another controller has seen its beginning
            self._see_extents()
        stack = kept.stack
        frames = tuple(
            self._frame(kept.epoch, address, exact) if known else _unknown(address)
            for address, exact, known in zip(stack.addresses, stack.exact, kept.known, strict=True)
        )
        return WalkedStack(frames, stack.end)

    def _frame(self, epoch: int, address: int, exact: bool) -> Frame:
        """The frame that went on at an address in this epoch."""
        key = epoch, address, exact
        if key not in self._frames:
            inside = address if exact else address - 1
            identity = next(
                (each.object for each in self._extents.get(epoch, ())
                 if each.start <= inside < each.stop), None,
            )  # fmt: skip
            if identity == NO_OBJECT:
                return Frame(address, "", 0, "", 0)
            if identity is None or identity not in self._objects:
                return _unknown(address)
            names, code = self._objects[identity]
            self._frames[key] = names.frame_in(code, address, exact=exact)
        return self._frames[key]

    def _see_extents(self) -> None:
        memory = self._memory
        for epoch, extents in (memory.extents() if memory else {}).items():
            self._extents.setdefault(epoch, set()).update(extents)

    @property
    def _memory(self) -> StackMemory | None:
        arena = self._switcher.target.seen.arena
        return stacks_of(arena) if arena else None


def _unknown(address: int) -> Frame:
    return Frame(address, UNKNOWN_OBJECT, 0, "", 0)
