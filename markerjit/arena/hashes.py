"""The 64-bit FNV-1a hash, by which the tables of an arena know names and places; also of many texts
at once.

What this does not do: keep out anybody who makes two texts with one hash.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from functools import lru_cache
from itertools import groupby

_BASIS = 0xCBF29CE484222325
_PRIME = 0x100000001B3
_MASK = (1 << 64) - 1
_MOST = 1 << 17
"""A look asks for three hashes of each of thousands of sites, in the same order. With less room
none of them would be found again."""
_FEW = 64
"""Of fewer, what is computed by columns takes longer, and numpy would be loaded for it."""
_LARGEST = 1 << 12
_KNOWN: dict[bytes, int] = {}


def fnv1a(data: bytes) -> int:
    """The hash. Never 0, which means a free entry."""
    known = _KNOWN.get(data)
    if known is not None:
        return known
    value = _BASIS
    for byte in data:
        value = (value ^ byte) * _PRIME & _MASK
    if len(data) <= _LARGEST:
        _keep({data: value or 1})
    return value or 1


@lru_cache(maxsize=4)
def image_id(code: bytes) -> int:
    """The id of a runtime: such a hash of its code by words of eight bytes, which takes a fifth of
    the time. A fleet asks for it once for each process. The upper half is folded into the lower
    one, which it would never reach by multiplications."""
    value = _BASIS
    for (word,) in struct.iter_unpack("<Q", code.ljust(-(-len(code) // 8) * 8, b"\0")):
        value = (value ^ word) * _PRIME & _MASK
        value ^= value >> 32
    return value


def know_hashes(texts: Iterable[str]) -> None:
    """Compute the hashes of many texts at once, so that `fnv1a` knows them."""
    new = sorted({text.encode() for text in texts}.difference(_KNOWN), key=len)
    if len(new) >= _FEW:
        _keep(dict(zip(new, _by_columns(new), strict=True)))


def hashes_of(texts: Sequence[str]) -> list[int]:
    """The hashes of many texts."""
    know_hashes(texts)
    return [fnv1a(text.encode()) for text in texts]


def _keep(hashes: dict[bytes, int]) -> None:
    if len(_KNOWN) + len(hashes) > _MOST:
        _KNOWN.clear()
    _KNOWN.update(hashes)


def _by_columns(texts: list[bytes]) -> list[int]:
    """The hashes of texts that are in the order of their lengths: those of one length together, one
    byte of each at a time."""
    import numpy as np

    values: list[int] = []
    prime = np.uint64(_PRIME)
    for size, group in groupby(texts, len):
        alike = [*group]
        rows = np.frombuffer(b"".join(alike), np.uint8).reshape(len(alike), size)
        hashes = np.full(len(rows), _BASIS, np.uint64)
        for column in np.ascontiguousarray(rows.T):
            hashes = (hashes ^ column) * prime
        hashes[hashes == 0] = 1
        values += hashes.tolist()
    return values
