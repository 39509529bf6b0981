"""The landing pads of C++ exceptions: the places at which the unwinder enters the middle of a
function.

Authority: the Itanium C++ ABI, "Exception Handling Tables"; gcc's unwind-c++ and libstdc++'s
eh_personality.cc, which read them.
"""

from __future__ import annotations

from collections.abc import Iterator

from markerjit.elf.functions import OMITTED, Functions, NoFunctions, encoded, uleb
from markerjit.elf.image import MAX_ADDRESS


def landing_pads(functions: Functions) -> set[int]:
    """The addresses of all landing pads of an object.

    Raises NoFunctions for a table that is damaged, or outside the segment of `.eh_frame`: a pad
    that is not known could be in the middle of what a jump is put over.
    """
    pads: set[int] = set()
    for start, pointer, encoding in functions.with_exceptions():
        try:
            table, _ = encoded(functions.data, pointer - functions.base, encoding, pointer)
            if table:
                pads.update(_pads(functions.data, functions.base, table, start))
        except (IndexError, ValueError):
            raise NoFunctions(f"the table of exceptions of {start:#x} cannot be read") from None
    return pads


def _pads(data: bytes, base: int, table: int, start: int) -> Iterator[int]:
    at = table - base
    if at < 0:
        raise IndexError(table)
    encoding, at = data[at], at + 1
    if encoding != OMITTED:
        start, at = encoded(data, at, encoding, base + at)
    encoding, at = data[at], at + 1
    if encoding != OMITTED:
        _, at = uleb(data, at)
    encoding, at = data[at], at + 1
    size, at = uleb(data, at)
    end = at + size
    while at < end:
        for _ in range(2):  # where the calls are
            _, at = encoded(data, at, encoding, 0)
        pad, at = encoded(data, at, encoding, 0)
        _, at = uleb(data, at)
        if not 0 <= start + pad < MAX_ADDRESS:
            raise ValueError(pad)
        if pad:
            yield start + pad
