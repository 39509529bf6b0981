"""The control block of an arena, of whatever version."""

from __future__ import annotations

import ctypes

from markerjit.abi import CONTROL, Control
from markerjit.arena.versions import Layout, control_of
from markerjit.ring.raw import Store


class ControlBlock:
    """The control block, as it is now. Its numbers are the target's to change."""

    def __init__(self, store: Store, layout: Layout) -> None:
        self._store = store
        self._layout = layout
        self._size = ctypes.sizeof(layout.control)
        self._is_whole = False
        if layout.control is Control:
            self._size = int(self.now().control_size)
            self._is_whole = self._size >= ctypes.sizeof(Control)

    def now(self) -> Control:
        """All of it. Fields that an older arena does not have are zero."""
        block = self._store.read(CONTROL, ctypes.sizeof(Control))
        if self._is_whole:
            return Control.from_buffer_copy(block)
        return control_of(block, self._layout)

    def number(self, field: str) -> int:
        """One number of it."""
        if not self._is_whole:
            return int(getattr(self.now(), field))
        place = getattr(Control, field)
        return int.from_bytes(self._store.read(CONTROL + place.offset, place.size), "little")

    def write(self, field: str, value: int) -> None:
        """Set a number; nothing where the arena has no such field."""
        place = getattr(self._layout.control, field, None)
        if place is not None and place.offset + place.size <= self._size:
            self._store.write(CONTROL + place.offset, value.to_bytes(place.size, "little"))

    def offset(self, field: str) -> int:
        """Where a field is, from the start of the arena."""
        return CONTROL + int(getattr(self._layout.control, field).offset)
