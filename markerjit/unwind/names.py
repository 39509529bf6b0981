"""What the functions of frames are called: looked up when a stack is shown.

A function of a stripped file has no name, only its place.
"""

from __future__ import annotations

import bisect
import os

from markerjit.elf import Image
from markerjit.elf.function_names import function_names
from markerjit.elf.functions import Functions, NoFunctions
from markerjit.errors import BadFile
from markerjit.sites.functions import canonical
from markerjit.sites.mapped_files import file_of
from markerjit.tuples import NamedTuple
from markerjit.unwind.objects import VDSO, LoadedCode, ProcessCode


class Frame(NamedTuple):
    """A frame of a stack.

    address   where it goes on, in the process
    object    the path of the object, "" where none is there
    place     the address in the object file; 0 without an object
    function  its symbol, "" where none is known
    offset    from where the function begins; 0 where that is not known
    """

    address: int
    object: str
    place: int
    function: str
    offset: int

    @property
    def label(self) -> str:
        """The function: its symbol, or its place in the object."""
        if self.function or not self.object:
            return self.function or "[no object]"
        return f"{os.path.basename(self.object)}+{self.place - self.offset:#x}"


class FrameNames:
    """Names of the frames of a process. Each object's are read when the first frame needs them."""

    def __init__(self, pid: int, code: ProcessCode) -> None:
        self._pid = pid
        self._code = code
        self._names: dict[int, _Names | None] = {}

    def frame(self, address: int, *, exact: bool) -> Frame:
        """The frame that goes on at an address. `exact`: it is an instruction that was to be
        executed; else it follows a call, which may be the last instruction of its function."""
        inside = address if exact else address - 1
        code = self._code.at(inside)
        if code is None:
            return Frame(address, "", 0, "", 0)
        place = address - code.image.bias
        names = self._names_of(code)
        start, symbol = names.at(inside - code.image.bias) if names else (place, "")
        return Frame(address, code.mapping.path, place, symbol, place - start)

    def _names_of(self, code: LoadedCode) -> _Names | None:
        key = code.image.bias
        if key not in self._names:
            self._names[key] = _names(self._pid, code)
        return self._names[key]


class _Names:
    """The symbols of an object's functions."""

    def __init__(self, names: dict[int, tuple[str, ...]], bounds: Functions | None) -> None:
        self._symbols = names
        self._starts = sorted(address for address, texts in names.items() if texts)
        self._bounds = bounds

    def at(self, place: int) -> tuple[int, str]:
        """Where the function begins that has this place, and its symbol; the place itself, and "",
        where there is no such symbol."""
        bounds = self._bounds.at(place) if self._bounds else None
        index = bisect.bisect_right(self._starts, place) - 1
        if bounds is None or index < 0 or self._starts[index] < bounds.start:
            return (bounds.start if bounds else place), ""
        start = self._starts[index]
        return start, canonical(self._symbols[start])


def _names(pid: int, code: LoadedCode) -> _Names | None:
    if code.mapping.path == VDSO:
        return _Names({}, _bounds(code.image))
    try:
        with file_of(pid, code.mapping, code.image) as image:
            return _Names(function_names(image).names, _bounds(image))
    except BadFile:
        return None


def _bounds(image: Image) -> Functions | None:
    try:
        return Functions(image)
    except NoFunctions:
        return None
