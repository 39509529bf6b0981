"""The restartable sequences of an object's code, which the kernel restarts where they are left.

The kernel knows a thread in one by its instruction pointer (rseq(2)), so no instruction of one may
be executed anywhere else. Programs that follow librseq have a section with a descriptor of each.
One that keeps its descriptors elsewhere is not seen.

Authority: include/uapi/linux/rseq.h of Linux, struct rseq_cs.
"""

from __future__ import annotations

import struct

from markerjit.elf.code_pointers import relocated_words
from markerjit.elf.image import FileImage
from markerjit.elf.sections import read_sections, section_bytes
from markerjit.errors import BadFile

_SECTION = b"__rseq_cs"
_DESCRIPTOR = struct.Struct("<IIQQQ")  # version, flags, start, length, where it is restarted
_START = 8
MAX_LENGTH = 1 << 16
"""Bytes of a sequence; more than that is no sequence."""


def restartable_sequences(image: FileImage) -> tuple[range, ...]:
    """The bounds of each sequence. Raises MemoryFault where the object's tables cannot be read."""
    sequences: list[range] = []
    try:
        sections = [each for each in read_sections(image) if each.name == _SECTION]
        tables = [(each.address, section_bytes(image, each)) for each in sections]
    except BadFile:
        return ()
    for address, table in tables:
        whole = table[: len(table) - len(table) % _DESCRIPTOR.size]
        places = [address + at + _START for at in range(0, len(whole), _DESCRIPTOR.size)]
        starts = relocated_words(image, places)
        for place, fields in zip(places, _DESCRIPTOR.iter_unpack(whole), strict=True):
            start, length = starts.get(place, fields[2]), fields[3]
            if length <= MAX_LENGTH:
                sequences.append(range(start, start + length))
    return tuple(sequences)
