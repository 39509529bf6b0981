"""A stream's claim on the rings of an arena, and on the markers that record for it. Another
controller may take either; the stream finds out here."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable

from markerjit.errors import MarkerError
from markerjit.patch.holds import Held
from markerjit.ring.clock import NS

_INTERVAL_NS = NS // 4


class Claim:
    """The lease of the rings, and the markers that a stream holds.

    renew           renews the lease. Returns False once another reader has taken the rings
    held            the markers; None for a stream that holds none
    dispossessed    whether another reader has taken the rings
    taken           names of the markers that others have taken
    """

    def __init__(self, renew: Callable[[], bool], held: Held | None) -> None:
        self.dispossessed = False
        self.taken: set[str] = set()
        self._claimed_by = os.getpid()
        self._renew = renew
        self._held = held
        self._markers = held.markers if held else frozenset()
        self._looked_at = 0

    @property
    def all_taken(self) -> bool:
        """Whether others have taken all markers of the stream."""
        return bool(self._markers) and self.taken >= self._markers

    def renew(self) -> bool:
        """Renew the lease, and look for taken markers a few times a second. Returns False once
        another reader has taken the rings. Raises TargetGone, which says nothing about the
        rings, and MarkerError in the child of a fork: what that takes its parent does not get."""
        if os.getpid() != self._claimed_by:
            raise MarkerError(
                f"process {self._claimed_by} takes these events, and we are a child that it has "
                "forked; attach again, and trace anew"
            )
        self.dispossessed = self.dispossessed or not self._renew()
        if not self.dispossessed and time.monotonic_ns() - self._looked_at > _INTERVAL_NS:
            self._look_for_taken()
        return not self.dispossessed

    def let_go(self, taken: Iterable[str]) -> None:
        """Look for the last time: the caller switches the markers from here on. `taken` are markers
        that are known to belong to others already."""
        if self._held:
            self._look_for_taken()
            self.taken.update(taken)
            self._held = None

    def _look_for_taken(self) -> None:
        """Look now whether others have switched markers of the stream."""
        self._looked_at = time.monotonic_ns()
        if self._held:
            self.taken |= self._held.taken()
