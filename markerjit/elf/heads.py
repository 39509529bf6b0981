"""The first bytes of thousands of functions.

The executable segments are read from the file at once, and never again: what is read here says
nothing of a file that somebody else changes meanwhile.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from markerjit.elf.image import PF_X, PT_LOAD, FileImage
from markerjit.errors import MemoryFault

_MANY = 64
"""Addresses that are read one by one. Of more of them all code is read at once."""


def heads_of(image: FileImage, addresses: Sequence[int], size: int) -> list[bytes]:
    """So many bytes at each address of an object; one where there are fewer, and none where there
    is no code."""
    heads: dict[int, bytes] = {}
    if len(addresses) > _MANY:
        heads.update(_in_segments(image, np.array(addresses, np.int64), size))
    return [heads.get(address) or _head(image, address, size) for address in addresses]


def _in_segments(
    image: FileImage, addresses: np.ndarray[tuple[int], np.dtype[np.int64]], size: int
) -> Iterator[tuple[int, bytes]]:
    """The heads that are in executable segments."""
    for segment in image.segments:
        is_code = segment.type == PT_LOAD and segment.flags & PF_X
        if not is_code or not size <= segment.file_size <= image.size:
            continue
        try:
            code = image.read(segment.address, segment.file_size)
        except MemoryFault:
            continue  # it is read, or refused, place by place
        last = segment.address + len(code) - size
        inside = addresses[(addresses >= segment.address) & (addresses <= last)]
        windows = sliding_window_view(np.frombuffer(code, np.uint8), size)
        content = windows[inside - segment.address].tobytes()
        parts = (content[at : at + size] for at in range(0, len(content), size))
        yield from zip(inside.tolist(), parts, strict=True)


def _head(image: FileImage, address: int, size: int) -> bytes:
    for length in (size, 1):  # the last function of a segment may be short
        try:
            return image.read(address, length)
        except MemoryFault:
            continue
    return b""
