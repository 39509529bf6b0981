"""The memory of a process: its mappings, and reading and writing its bytes.

Another process, our own and a fake one all satisfy `Memory`, so that the same code makes and
applies a plan for each. Nothing here stops a thread or knows what the bytes mean. The caller
decides when to write, and reads back.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from markerjit.memory.base import Memory, WhyNot, has_ended
from markerjit.memory.files import FileId, file_at
from markerjit.memory.maps import Mapping, parse_maps, read_maps, read_maps_text
from markerjit.memory.process import ProcessMemory
from markerjit.memory.stat import stat_fields

if TYPE_CHECKING:
    from markerjit.memory.fake import FakeMemory

__all__ = [
    "FakeMemory",
    "FileId",
    "Mapping",
    "Memory",
    "ProcessMemory",
    "WhyNot",
    "file_at",
    "has_ended",
    "parse_maps",
    "read_maps",
    "read_maps_text",
    "stat_fields",
]


def __getattr__(name: str) -> Any:
    """The memory that is no process's, which no command needs."""
    if name == "FakeMemory":
        from markerjit.memory.fake import FakeMemory

        return FakeMemory
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
