"""Functions of a process that lead to others (replacing.py), as the tables of its arena say it."""

from __future__ import annotations

from collections.abc import Sequence

from markerjit.arena.arena import Arena
from markerjit.errors import Refused
from markerjit.patch.switchable import SiteState
from markerjit.probes.loaded import may_be_replaced, replacement_at


def refuse_replaced(arena: Arena, states: Sequence[SiteState]) -> None:
    """Raise Refused where one of these sites is the entry of a function that is replaced: another
    probe there would revert it."""
    if not may_be_replaced(arena):
        return
    for state in states:
        new = replacement_at(arena, state.probe) if state.mode else None
        if new:
            name = state.site.name
            raise Refused(
                f"{name} is replaced by {new}; revert that first: "
                f"markerjit replace {arena.pid} {name} --revert"
            )
