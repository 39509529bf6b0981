"""A process that a request for several left out."""

from __future__ import annotations

from markerjit.errors import MarkerError
from markerjit.tuples import NamedTuple


class Failed(NamedTuple):
    """A process that left the fleet, and why."""

    pid: int
    error: MarkerError

    @property
    def sentence(self) -> str:
        """The reason, with the pid."""
        text = str(self.error)
        return text if f"process {self.pid} " in text else f"process {self.pid}: {text}"
