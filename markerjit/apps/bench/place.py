"""Where a bench finds what it needs."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple


class Place(NamedTuple):
    """The sources, the headers, the runner, room for objects, the user's compiler, and the CPU on
    which things run."""

    sources: Path
    include: Path
    runner: Path
    directory: Path
    compiler: str
    cpu: int
