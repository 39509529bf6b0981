"""How markers are to be: what a switch is asked for."""

from __future__ import annotations

from typing import NamedTuple

from markerjit.model import Mode
from markerjit.quiesce.strategy import Strategy

RECORD = "record"
COUNT = "count"


class Wanted(NamedTuple):
    """Off, or on by a mode (None: as compiled) with a probe."""

    on: bool
    strategy: Strategy
    mode: Mode | None = None
    probe: str = COUNT
