"""The names of what stands in the keys of a latency: functions of C++, functions at addresses, and
the frames of stacks. The latter two are looked up while the process runs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from markerjit.events.aggregates import names_of_key, with_stacks_in
from markerjit.events.latencies import Latencies, LatencyRow
from markerjit.events.latency_rows import with_stacks
from markerjit.questions.aggregates import KeyPart
from markerjit.questions.types import Type
from markerjit.session.switch import Switcher
from markerjit.session.turn import Turn

if TYPE_CHECKING:  # imported where a key has pointers, or a stack
    from markerjit.session.addresses import AddressNames
    from markerjit.session.walked import WalkedStacks


class KeyNames:
    """The names in keys with these parts."""

    def __init__(self, turn: Turn, switcher: Switcher, parts: Sequence[KeyPart]) -> None:
        self._parts = parts
        self._addresses: AddressNames | None = None
        self._stacks: WalkedStacks | None = None
        types = {part.type for part in parts}
        if Type.POINTER in types:
            from markerjit.session.addresses import AddressNames

            self._addresses = AddressNames(turn.target)
        if Type.STACK in types:
            from markerjit.session.walked import WalkedStacks

            self._stacks = WalkedStacks(switcher)

    @property
    def has_any(self) -> bool:
        """Whether something has to be looked up."""
        return self._addresses is not None or self._stacks is not None

    def named(self, latencies: Latencies, *, is_over: bool) -> Latencies:
        """With the stacks of the rows in place of their numbers, and the names of pointers."""
        if self._stacks is not None:
            if not is_over:
                self._stacks.look()
            latencies = with_stacks(latencies, self._parts, self._stacks.of)
        if self._addresses is not None:
            self._addresses.look()
        return latencies._replace(rows=tuple(map(self._with_names, latencies.rows)))

    def named_each(self, rows: Mapping[int, LatencyRow], *, is_over: bool) -> dict[int, LatencyRow]:
        """The same of single rows, which stay apart."""
        if self._stacks is not None:
            if not is_over:
                self._stacks.look()
            stack_of = self._stacks.of
            rows = {
                number: row._replace(key=with_stacks_in(row.key, self._parts, stack_of))
                for number, row in rows.items()
            }
        if self._addresses is not None:
            self._addresses.look()
        return {number: self._with_names(row) for number, row in rows.items()}

    def _with_names(self, row: LatencyRow) -> LatencyRow:
        name_of = self._addresses.of if self._addresses else hex
        return row._replace(names=names_of_key(row.key, self._parts, name_of))
