"""The threads of a process, and where they are."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import PurePath

from markerjit.facts import Json
from markerjit.memory.maps import Mapping, read_maps
from markerjit.proc.positions import ThreadPosition, thread_positions


def threads_facts(pid: int) -> list[Json]:
    """The threads of a process. Raises NoSuchProcess, NotPermitted."""
    mappings = read_maps(pid)
    return [thread_facts(thread, mappings) for thread in thread_positions(pid)]


def thread_facts(thread: ThreadPosition, mappings: Sequence[Mapping]) -> Json:
    """A thread. `where` says in words what is known; `pc` and `call` are null where they are not
    known."""
    return {**thread._asdict(), "where": where(thread, mappings)}


def where(thread: ThreadPosition, mappings: Sequence[Mapping]) -> str:
    """Where a thread is, in words."""
    if thread.runs:
        return "runs, so its place is not known without a stop"
    if thread.pc is None:
        return "its place cannot be read"
    place = _place(thread.pc, mappings)
    return f"in system call {thread.call}, at {place}" if thread.call is not None else f"at {place}"


def _place(address: int, mappings: Sequence[Mapping]) -> str:
    for mapping in mappings:
        if mapping.start <= address < mapping.end:
            name = PurePath(mapping.path).name or "anonymous memory"
            return f"{name}+{address - mapping.start + mapping.offset:#x}"
    return f"{address:#x}"
