"""Whose a breakpoint at a site is: ours, or another tool's. The byte is the same.

The arena's table of patches says where one of ours was planted and not taken away since. While
a change is in the making, or was left half done, the journal says it. In both cases the slot has a
probe of ours: it gets that before the breakpoint, and keeps it until the breakpoint has gone. So a
stale table does not make another tool's breakpoint ours. (It is stale where an object was unloaded
and loaded again while no controller looked.)

The child of a fork inherits breakpoints and slots, and shares the table with its parent, which goes
on to change it. A breakpoint in the child is inherited if the parent's table has the address, and
the slot has a probe of the parent's arena. This does not tell a breakpoint that another tool puts
into a child, where the parent took its own away before the fork and left the slot as it was, as
`off` does under threads that run.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress

from markerjit.arena.arena import Arena
from markerjit.arena.journal import Journal
from markerjit.arena.mapped import Probes
from markerjit.errors import Unsupported
from markerjit.model import RemoteAddress
from markerjit.x86.forms import is_breakpoint


class Breakpoints:
    """The breakpoints of a process, as its arena knows them at this moment. `inherited` gives the
    arenas of its ancestors; it is called only where they matter."""

    def __init__(
        self, own: Arena | None, probes: Probes, inherited: Callable[[], Sequence[Arena]]
    ) -> None:
        self._own = own
        self._probes = probes
        self._inherited = inherited
        self._pages = own.patches.look() if own else None
        self._changing: frozenset[RemoteAddress] | None = None

    def has(
        self,
        probe: RemoteAddress,
        address: RemoteAddress,
        entry: RemoteAddress,
        slot: RemoteAddress,
    ) -> bool:
        """Whether the breakpoint at a site is ours, whose body is at `entry`, and whose slot has
        this probe."""
        if self._own and self._pages and probe in self._probes:
            # The journal first: a change that ends in between is in the table.
            if address in self._in_the_journal(self._own):
                return True
            if self._pages.has_planted(address, entry):
                return True
        return any(
            (probe in Probes([arena.base]) or _is_slot_of(arena, slot))
            and arena.patches.look().had(address, entry)
            for arena in self._inherited()
        )

    def _in_the_journal(self, own: Arena) -> frozenset[RemoteAddress]:
        """Where a change that is open puts breakpoints, or takes them away."""
        if self._changing is None:
            left = None
            with suppress(Unsupported):  # reported where the journal has to be believed
                left = Journal(own).left()
            self._changing = frozenset(
                edit.address
                for edit in (left.edits if left else ())
                if edit.code and (is_breakpoint(edit.old) or is_breakpoint(edit.new))
            )
        return self._changing


def _is_slot_of(arena: Arena, slot: RemoteAddress) -> bool:
    """Whether this is one of the arena's own slots, which are empty in the child of a fork."""
    slots = arena.geometry.slots
    return arena.base + slots.offset <= slot < arena.base + slots.end
