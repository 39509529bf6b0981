"""ELF objects: their headers, build ids and notes, and the markers that the notes describe.

One reader serves both a file and its image in a process. For an image it is given a function that
reads memory, and it knows nothing of processes. Every number in an object is checked before it is
used: the file may be damaged, and the process may be hostile.
"""

from markerjit.elf.format import parse_format, show
from markerjit.elf.image import FileImage, Image, MappedImage, Read, Segment
from markerjit.elf.notes import AlikeNotes, Note, read_alike, read_notes

__all__ = [
    "AlikeNotes",
    "FileImage",
    "Image",
    "MappedImage",
    "Note",
    "Read",
    "Segment",
    "parse_format",
    "read_alike",
    "read_notes",
    "show",
]
