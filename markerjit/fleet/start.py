"""A program that was seen to start: when its request is to begin, and whether to try again.

A request begins when the loader says that all libraries are mapped and relocated. Before that, a
program may have no markers yet. A loader that says nothing is taken to be done when no more files
are mapped between two looks.

A program may load more itself in its first moments, as an interpreter does with a module. So one
that has no such markers is tried again when it has mapped other files meanwhile, and one that could
not have the request now, but later, is tried again as it is.
"""

from __future__ import annotations

import time

from markerjit.errors import MarkerError, NoMarkers, Refused, UnknownMarker, refuse_own_shortage
from markerjit.memory import read_maps
from markerjit.memory.stat import read_proc
from markerjit.proc.loader import Loading, loading

_LOADS_S = 0.002
_LOADS_AT_MOST_S = 10.0
"""The time that a loader has. It may have no CPU, or wait for a file; after it we try."""
_AGAIN_S = 0.05
_IS_YOUNG_S = 2.0
"""The time after the first attempt in which others are made."""

Files = frozenset[str]


class Start:
    """The start of a process that executes a file since just now. One that `runs` may do so for
    long: a loader that says nothing is not waited for.

    reason   why the last attempt has failed; None before the first one, and after one that has not
    pause_s  how long to wait for the next look at it
    """

    def __init__(self, pid: int, *, runs: bool = False) -> None:
        self.reason: MarkerError | None = None
        self.pause_s = _LOADS_S
        self._pid = pid
        self._runs = runs
        self._until = time.monotonic() + _LOADS_AT_MOST_S
        self._looked_at = 0.0
        self._files: Files | None = None
        """Those that were mapped at the last look, or for a later attempt at the last attempt."""
        self._program = b""
        """The auxiliary vector at the last attempt: it has the addresses of one execution."""
        self._has_begun = False

    @property
    def is_plain(self) -> bool:
        """Whether it has no such markers, so far."""
        return isinstance(self.reason, (NoMarkers, UnknownMarker))

    def is_of_another(self) -> bool:
        """Whether the process executes another file since the last attempt, or there was none. News
        of an execution may come after its effect."""
        return self.reason is None or _vector(self._pid) != self._program

    def is_due(self) -> bool:
        """Whether an attempt is to be made now."""
        now = time.monotonic()
        if now - self._looked_at < self.pause_s:
            return False
        self._looked_at = now
        if self.reason is None:
            is_due = self._is_complete() or now > self._until
        else:
            is_due = now < self._until and self._may_succeed()
        if is_due:
            self._program = _vector(self._pid)
        return is_due

    def is_over(self) -> bool:
        """Whether no attempt will be made any more."""
        if self.reason is None:
            return self._has_begun
        return not self._is_for_later() or time.monotonic() >= self._until

    def note(self, reason: MarkerError | None) -> None:
        """An attempt was made. `reason` is why it has failed, None where it has not."""
        if self.reason is None and reason is not None:
            self.pause_s = _AGAIN_S
            self._until = time.monotonic() + _IS_YOUNG_S
        self.reason = reason
        self._has_begun = reason is None

    def _is_complete(self) -> bool:
        """Whether the program is mapped, with its libraries, as far as can be told."""
        state = loading(self._pid)
        before, self._files = self._files, self._mapped()
        if state is Loading.SILENT:
            return self._runs or self._files == before
        return state is Loading.DONE

    def _is_for_later(self) -> bool:
        """Whether another attempt may succeed."""
        return self.is_plain or (isinstance(self.reason, Refused) and self.reason.try_again)

    def _may_succeed(self) -> bool:
        """Whether something has changed since the last attempt, as far as can be told."""
        if not self.is_plain:
            return True
        before, files = self._files, self._mapped()
        if files is None:
            self._until = 0.0
        elif files != before and loading(self._pid) is not Loading.AT_WORK:
            self._files = files
            return True
        return False

    def _mapped(self) -> Files | None:
        """The files that are mapped; None where that cannot be told, as of a process at its end."""
        try:
            return frozenset(mapping.path for mapping in read_maps(self._pid))
        except MarkerError:
            return None


def _vector(pid: int) -> bytes:
    """The auxiliary vector of a process; b"" where it cannot be read."""
    try:
        return read_proc(f"/proc/{pid}/auxv")
    except OSError as error:
        refuse_own_shortage(error)
        return b""
