"""The files of the objects that a process has mapped: for what is not loaded with them.

A file is used only if it is the mapped file, by its build id and segments, or without a build id by
its inode. A file that was replaced since would give wrong answers.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import ExitStack

from markerjit.elf import FileImage, MappedImage, Read
from markerjit.errors import BadFile, Unsupported
from markerjit.memory import Mapping
from markerjit.model import MappedObject
from markerjit.sites.discover import mapped_images


def image_of(pid: int, read: Read, maps: Sequence[Mapping], mapped: MappedObject) -> FileImage:
    """The file of an object that a process has mapped, open. Raises BadFile where it is not mapped
    any more, or where there is no such file."""
    for mapping, loaded in mapped_images(read, maps, []):
        if (mapping.path, loaded.bias) == (mapped.path, mapped.bias):
            return file_of(pid, mapping, loaded)
    raise BadFile(f"{mapped.path}: it is not mapped any more")


def ways_to(pid: int, mapping: Mapping) -> tuple[str, str]:
    """The paths at which the file of a mapping may be."""
    return (
        f"/proc/{pid}/map_files/{mapping.start:x}-{mapping.end:x}",  # for root, also if deleted
        f"/proc/{pid}/root{mapping.path}",
    )


def file_of(pid: int, mapping: Mapping, loaded: MappedImage) -> FileImage:
    """The file that is mapped, open. Raises BadFile where there is none, or another one, and what
    reading `loaded` raises when the process ends."""
    reason = "its file cannot be read"
    for path in ways_to(pid, mapping):
        try:
            image = FileImage(path, loaded)
        except (BadFile, Unsupported):
            continue
        with ExitStack() as opened:
            opened.enter_context(image)
            image.name = mapping.path
            if _is_same(image, loaded) and (loaded.build_id() or _is_inode(path, mapping)):
                opened.pop_all()  # it is the caller's
                return image
        reason = "its file was replaced since it was loaded"
    raise BadFile(f"{mapping.path}: {reason}, and notes and symbols are only there")


def _is_same(image: FileImage, loaded: MappedImage) -> bool:
    return image.is_like or (
        image.segments == loaded.segments and image.build_id() == loaded.build_id()
    )


def _is_inode(path: str, mapping: Mapping) -> bool:
    try:
        return os.stat(path).st_ino == mapping.inode
    except OSError:
        return False
