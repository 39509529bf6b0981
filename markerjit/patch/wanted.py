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
