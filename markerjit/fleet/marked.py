"""Which processes have markers: a short look, for a list to choose from. Nothing is changed, and no
thread is stopped.

What this does not do: say which markers these are, or what is on (overview.py).
"""

from __future__ import annotations

from collections.abc import Iterable

from markerjit.arena.mapped import is_arena
from markerjit.arguments import listed_pids
from markerjit.errors import MarkerError
from markerjit.memory import ProcessMemory, parse_maps, read_maps_text
from markerjit.proc.permission import check_before_looking
from markerjit.sites.marked import MarkedObjects


def find_marked(pids: Iterable[int]) -> list[int]:
    """Those of these processes that have markers, or the runtime, in their order. One that has
    ended, or cannot be looked at, is left out. A file that several have mapped is looked at in the
    first of them. Raises BadArgument."""
    listed, objects = listed_pids(pids), MarkedObjects()
    return [pid for pid in listed if _has_any(pid, objects)]


def _has_any(pid: int, objects: MarkedObjects) -> bool:
    try:
        check_before_looking(pid)
        with ProcessMemory(pid) as memory:
            maps = parse_maps(read_maps_text(pid))
            return any(map(is_arena, maps)) or objects.any_of(memory.read, maps)
    except MarkerError:
        return False
