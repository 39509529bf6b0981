"""How markers are to be: what a switch is asked for."""

from __future__ import annotations

from typing import NamedTuple

from markerjit.model import Mode
from markerjit.quiesce.strategy import Strategy
from markerjit.ring.types import Options

RECORD = "record"
COUNT = "count"


class Wanted(NamedTuple):
    """Off, or on by a mode (None: as compiled) with a probe; `options` are for what it records.
    Only what nobody reads is `counted` while it is recorded."""

    on: bool
    strategy: Strategy
    mode: Mode | None = None
    probe: str = COUNT
    options: Options = Options(counted=False)

    @property
    def calls(self) -> bool:
        """Whether a probe in C is called."""
        return self.on and self.probe not in (RECORD, COUNT)


def as_mode(mode: Mode | str | None) -> Mode | None:
    """The mode that is meant, by itself or by its name. Raises ValueError for any other."""
    try:
        return None if mode is None else Mode(mode)
    except ValueError:
        names = ", ".join(map(str, Mode))
        raise ValueError(f"{mode!r} is not a mode; there are {names}") from None
