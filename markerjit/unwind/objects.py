"""The tables of what a process has mapped. They are made of its memory, so a file that was deleted
or replaced since is no hindrance; and each when the first frame needs it."""

from __future__ import annotations

import bisect
from collections.abc import Sequence

from markerjit.elf import MappedImage, Read
from markerjit.elf.functions import NoFunctions
from markerjit.elf.image import PF_X
from markerjit.errors import BadFile, MemoryFault
from markerjit.memory import Mapping
from markerjit.sites.discover import mapped_images
from markerjit.tuples import NamedTuple
from markerjit.unwind.kept import kept_table
from markerjit.unwind.rules import Kind, Rule
from markerjit.unwind.table import BadTable, Table

VDSO = "[vdso]"


class LoadedCode(NamedTuple):
    """Code of an object: the addresses where it is in the process, and the object."""

    start: int
    stop: int
    mapping: Mapping
    image: MappedImage


class ProcessCode:
    """The unwind tables of a process's code, as it was when this was made."""

    def __init__(self, read: Read, maps: Sequence[Mapping]) -> None:
        """Raises what `read` raises when the process ends."""
        loaded = list(mapped_images(read, maps, []))
        loaded += _vdso(read, maps)
        self._codes = sorted(
            LoadedCode(span.start + image.bias, span.stop + image.bias, mapping, image)
            for mapping, image in loaded
            for span in image.loaded(PF_X)
        )
        self._starts = [code.start for code in self._codes]
        self._executable = [mapping for mapping in maps if mapping.executable]
        self._firsts = [mapping.start for mapping in self._executable]
        self._tables: dict[int, Table | None] = {}

    def at(self, address: int) -> LoadedCode | None:
        """The object's code at an address."""
        place = bisect.bisect_right(self._starts, address) - 1
        return self._codes[place] if place >= 0 and address < self._codes[place].stop else None

    def is_code(self, address: int) -> bool:
        """Whether memory that can be executed is there."""
        place = bisect.bisect_right(self._firsts, address) - 1
        return place >= 0 and address < self._executable[place].end

    @property
    def executable(self) -> list[Mapping]:
        """The mappings that can be executed, in the order of their addresses."""
        return self._executable

    @property
    def codes(self) -> list[LoadedCode]:
        """The code of all objects, in the order of its addresses."""
        return self._codes

    def rule(self, address: int) -> Rule:
        """The rule at an address; of kind NONE where no table has it. Raises what reading raises
        when the process ends."""
        code = self.at(address)
        table = self.table(code) if code else None
        return table.at(address - code.image.bias) if table and code else Rule(Kind.NONE)

    def table(self, code: LoadedCode) -> Table | None:
        """The table of an object; None where it cannot have one. Raises what reading raises when
        the process ends."""
        if code.start not in self._tables:
            try:
                self._tables[code.start] = kept_table(code.image)
            except (NoFunctions, BadTable):
                self._tables[code.start] = None
        return self._tables[code.start]


def _vdso(read: Read, maps: Sequence[Mapping]) -> list[tuple[Mapping, MappedImage]]:
    """The kernel's object in the process (the vDSO), which has no file."""
    for mapping in maps:
        if mapping.path == VDSO:
            try:
                return [(mapping, MappedImage(read, mapping.start, VDSO))]
            except (BadFile, MemoryFault):
                return []
    return []
