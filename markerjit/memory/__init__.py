"""The memory of a process: what is mapped, and reading and writing it.

Another process, our own and a fake one all satisfy `Memory`, so that a plan is made and applied
by the same code for each. Nothing here stops a thread, and nothing knows what the bytes mean:
whoever writes is responsible for when, and for reading back.
"""

from markerjit.memory.base import Memory, WhyNot, has_ended
from markerjit.memory.fake import FakeMemory
from markerjit.memory.files import FileId, file_at
from markerjit.memory.maps import Mapping, parse_maps, read_maps, read_maps_text
from markerjit.memory.process import ProcessMemory

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
]
