"""How many bytes an allocator really gives for what was asked: malloc_usable_size, by its rules.

    glibc     a chunk is a word of size and the block, together a multiple of 16 and 32 at least; a
              block of its own mapping has two such words, and ends with a page (malloc/malloc.c,
              request2size and sysmalloc_mmap). A chunk may be 16 bytes longer, where no chunk
              could be made of the rest: only its header says so
    jemalloc  size classes: 8, multiples of 16 up to 128, and then four for each doubling
              (jemalloc(3), "IMPLEMENTATION NOTES")

Of other allocators it is not known, and what was asked counts as given. What this does not do: read
the header of a chunk, which the process does where that is asked for.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from markerjit.ring.batch import Array

_WORD, _ALIGN, _LEAST, _PAGE = 8, 16, 32, 4096
_MAPPED_FROM = 128 << 10
"""glibc maps no smaller chunks by themselves, unless it was told to (M_MMAP_THRESHOLD)."""
_MAPPED = 2
_FLAGS = 7

Rule = Callable[["Array", "Array"], "Array"]
"""From the bytes asked for, and the addresses of the blocks, to the bytes given."""


def by_glibc(asked: Array, block: Array) -> Array:
    """The rule of glibc's malloc."""
    chunk = np.maximum((asked + (_WORD + _ALIGN - 1)) & -_ALIGN, _LEAST)
    mapped = (chunk + (_WORD + _PAGE - 1)) & -_PAGE
    # A mapping begins with the two words; other chunks are there once in 256 times.
    is_mapped = (asked >= _MAPPED_FROM) & (block % _PAGE == 2 * _WORD)
    given: Array = np.where(is_mapped, mapped - 2 * _WORD, chunk - _WORD)
    return given


def by_header(header: Array, asked: Array) -> Array:
    """By the word before a block of glibc. What is no such word, for want of memory that could be
    read, says nothing: then it is what was asked for."""
    size = (header & np.uint64(~_FLAGS & 0xFFFF_FFFF_FFFF_FFFF)).astype(np.int64)
    words = np.where(header & np.uint64(_MAPPED), 2 * _WORD, _WORD)
    given: Array = np.where(size - words >= asked, size - words, asked)
    return given


def by_jemalloc(asked: Array, block: Array) -> Array:
    """The rule of jemalloc."""
    del block
    size = np.maximum(asked, 1)
    small = np.where(size <= _WORD, _WORD, (size + (_ALIGN - 1)) & -_ALIGN)
    exponent = np.ceil(np.log2(size.astype(np.float64))).astype(np.int64) - 3
    step = np.left_shift(1, np.maximum(exponent, 4))
    given: Array = np.where(size <= 128, small, (size + step - 1) & -step)
    return given


def as_asked(asked: Array, block: Array) -> Array:
    """No rule: what was asked for."""
    del block
    return asked


RULES: dict[str, Rule] = {"glibc": by_glibc, "jemalloc": by_jemalloc, "": as_asked}
"""By the name of the allocator; "" of others."""
