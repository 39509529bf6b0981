"""An object's code, of which thousands of places are read.

The executable segments are read from the file at once, and never again: what is read here says
nothing of a file that somebody else changes meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable

from markerjit.elf.image import PF_X, PT_LOAD, FileImage
from markerjit.errors import MemoryFault

ReadCode = Callable[[int, int], bytes]


def code_reader(image: FileImage) -> ReadCode:
    """A reader of an object's code, which answers as `FileImage.read`."""
    codes: list[tuple[int, bytes]] = []
    for each in image.segments:
        if each.type == PT_LOAD and each.flags & PF_X and each.file_size <= image.size:
            try:
                codes.append((each.address, image.read(each.address, each.file_size)))
            except MemoryFault:
                continue  # it is read, or refused, place by place

    def read(address: int, size: int) -> bytes:
        for start, code in codes:
            if start <= address <= start + len(code) - size:
                return code[address - start : address - start + size]
        return image.read(address, size)

    return read
