"""The names of the functions of frames, looked up when a stack is shown.

A function of a stripped file has no name, only its place.
"""

from __future__ import annotations

import bisect
from contextlib import suppress

from markerjit.elf import FileImage, Image
from markerjit.elf.function_names import function_names
from markerjit.elf.functions import Functions, NoFunctions
from markerjit.errors import BadFile, MemoryFault, NoSuchProcess, TargetGone, Unsupported
from markerjit.sites.functions import canonical
from markerjit.sites.mapped_files import file_of
from markerjit.unwind.frames import Frame, WalkedStack
from markerjit.unwind.objects import VDSO, LoadedCode, ProcessCode
from markerjit.unwind.walk import Stack


class FrameNames:
    """Names of the frames of a process. The names of an object are read when the first frame needs
    them; with `outlives`, even after the process has ended."""

    def __init__(self, pid: int, code: ProcessCode, *, outlives: bool = False) -> None:
        """Raises what reading raises when the process ends."""
        self._pid = pid
        self._code = code
        self._names: dict[int, _Names | None] = {}
        self._build_ids: dict[int, str | None] = {}
        if outlives:
            self._build_ids = {each.image.bias: each.image.build_id() for each in code.codes}

    def stack(self, stack: Stack) -> WalkedStack:
        """The frames of a stack."""
        pairs = zip(stack.addresses, stack.exact, strict=True)
        frames = tuple(self.frame(address, exact=exact) for address, exact in pairs)
        return WalkedStack(frames, stack.end)

    def frame(self, address: int, *, exact: bool) -> Frame:
        """The frame that goes on at an address. `exact`: it is an instruction that was to be
        executed; else it follows a call, which may be the last instruction of its function."""
        code = self._code.at(_inside(address, exact=exact))
        if code is None:
            return Frame(address, "", 0, "", 0)
        return self.frame_in(code, address, exact=exact)

    def frame_in(self, code: LoadedCode, address: int, *, exact: bool) -> Frame:
        """The same in code of one of these objects."""
        inside = _inside(address, exact=exact)
        place = address - code.image.bias
        names = self._names_of(code)
        start, symbol = names.at(inside - code.image.bias) if names else (place, "")
        return Frame(address, code.mapping.path, place, symbol, place - start)

    def _names_of(self, code: LoadedCode) -> _Names | None:
        key = code.image.bias
        if key not in self._names:
            self._names[key] = _names(self._pid, code, self._build_ids.get(key))
        return self._names[key]


def _inside(address: int, *, exact: bool) -> int:
    return address if exact else address - 1


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


def _names(pid: int, code: LoadedCode, build_id: str | None) -> _Names | None:
    with suppress(BadFile, MemoryFault, TargetGone, NoSuchProcess):
        if code.mapping.path == VDSO:
            return _Names({}, _bounds(code.image))
        with file_of(pid, code.mapping, code.image) as image:
            return _Names(function_names(image).names, _bounds(image))
    with suppress(BadFile, Unsupported), FileImage(code.mapping.path) as image:
        if build_id and image.build_id() == build_id:
            return _Names(function_names(image).names, _bounds(image))
    return None


def _bounds(image: Image) -> Functions | None:
    try:
        return Functions(image)
    except NoFunctions:
        return None
