"""The addresses that an object's data holds as pointers, through which a program may jump.

Of a position-independent object they are in its relocations, `.rela.dyn` and the compact
`DT_RELR`. One that is loaded at a fixed address needs none, so each aligned word that could be an
address of its code counts as one. The operands of its code are not looked at here.

Authority: System V gABI, chapter 5 (dynamic section, RELR); the psABI for x86-64, 4.4.1.
"""

from __future__ import annotations

from collections.abc import Collection

import numpy as np

from markerjit.elf.addresses import Addresses, distinct
from markerjit.elf.image import MAX_ADDRESS, PF_X, PT_LOAD, Image
from markerjit.elf.imports import MAX_TABLE_BYTES, dynamic_tags
from markerjit.errors import MemoryFault

_DT_INIT, _DT_FINI = 12, 13
_DT_RELA, _DT_RELASZ = 7, 8
_DT_RELR, _DT_RELRSZ = 36, 35
_RELA = np.dtype([("offset", "<u8"), ("kind", "<u4"), ("symbol", "<u4"), ("addend", "<i8")])
_RELATIVE, _IRELATIVE = 8, 37


def code_pointers(image: Image) -> Addresses:
    """All addresses of the object's code that its data and relocations hold, sorted, once each.

    Raises MemoryFault where tables that the object names cannot be read.
    """
    tags = dict(dynamic_tags(image))
    called = [tags.get(tag, MAX_ADDRESS) for tag in (_DT_INIT, _DT_FINI)]
    pointers = [np.array([address for address in called if address < MAX_ADDRESS], np.int64)]
    pointers.append(_rela(image, tags))
    pointers.append(_relr(image, tags))
    if image.fixed_address:
        pointers.append(_words(image))
    addresses = distinct(np.concatenate(pointers))
    inside = np.zeros(len(addresses), bool)
    for segment in image.loaded(PF_X):
        inside |= (addresses >= segment.start) & (addresses < segment.stop)
    return addresses[inside]


def _table(image: Image, tags: dict[int, int], where: int, size: int) -> bytes:
    if where not in tags or size not in tags:
        return b""
    if tags[size] > MAX_TABLE_BYTES:
        raise MemoryFault(tags[where], tags[size], "read", f"{image.name} claims too much")
    return image.read(tags[where], tags[size])


def relocations(
    image: Image, tags: dict[int, int], where: int = _DT_RELA, size: int = _DT_RELASZ
) -> np.ndarray:
    """The relocations with addends of a table: offset, kind, symbol and addend of each. Raises
    MemoryFault."""
    data = _table(image, tags, where, size)
    return np.frombuffer(data, _RELA, len(data) // _RELA.itemsize)


def _rela(image: Image, tags: dict[int, int]) -> Addresses:
    table = relocations(image, tags)
    relative = (table["kind"] == _RELATIVE) | (table["kind"] == _IRELATIVE)
    addends: Addresses = table["addend"][relative]
    return addends


def relocated_words(image: Image, places: Collection[int]) -> dict[int, int]:
    """What words at these addresses hold when the object is loaded at 0, as far as a relocation
    says it: the others hold what the file has. Raises MemoryFault."""
    table = relocations(image, dict(dynamic_tags(image)))
    rows = table[(table["kind"] == _RELATIVE) & np.isin(table["offset"], list(places))]
    return dict(zip(rows["offset"].tolist(), rows["addend"].tolist(), strict=True))


def _relr(image: Image, tags: dict[int, int]) -> Addresses:
    """The words that RELR relocates: an address, or a bitmap of the 63 words that follow."""
    data = _table(image, tags, _DT_RELR, _DT_RELRSZ)
    places: list[int] = []
    at = 0
    for entry in np.frombuffer(data, "<u8", len(data) // 8).tolist():
        if entry & 1 == 0:
            places.append(entry)
            at = entry + 8
        else:
            places += [at + 8 * bit for bit in range(63) if entry >> bit + 1 & 1]
            at += 63 * 8
    values = np.zeros(len(places), np.int64)
    for segment in image.segments:
        if segment.type != PT_LOAD:
            continue
        bounds = range(segment.address, segment.file_end - 7)
        inside = [index for index, place in enumerate(places) if place in bounds]
        if inside:
            words = np.frombuffer(image.read(segment.address, segment.file_size), np.uint8)
            offsets = np.array([places[index] - segment.address for index in inside])
            raw = words[offsets[:, None] + np.arange(8)]
            values[inside] = np.ascontiguousarray(raw).view("<i8").ravel()
    return values


def _words(image: Image) -> Addresses:
    """Every aligned word of data that is an address of code."""
    pointers = [np.zeros(0, np.int64)]
    for segment in image.segments:
        if segment.type != PT_LOAD or segment.flags & PF_X:
            continue
        data = image.read(segment.address, segment.file_size)
        first = -segment.address % 8
        words = np.frombuffer(data[first : len(data) - (len(data) - first) % 8], "<i8")
        for span in image.loaded(PF_X):
            pointers.append(words[(words >= span.start) & (words < span.stop)])
    return np.concatenate(pointers)
