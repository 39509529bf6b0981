"""The folders and programs that a bench needs."""

from __future__ import annotations

from pathlib import Path

from markerjit.tuples import NamedTuple


class Place(NamedTuple):
    """The bench's sources and programs, each with a folder for each kind of cost; the headers; a
    folder for objects; the user's compiler; and the CPU on which loops run."""

    sources: Path
    include: Path
    programs: Path
    directory: Path
    compiler: str
    cpu: int

    @property
    def runner(self) -> Path:
        """The program that runs the variants of a comparison."""
        return self.programs / "dormant" / "runner"
