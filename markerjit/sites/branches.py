"""The calls in the code of an object: which instructions lead to which functions.

    direct    a branch to a function of the object
    linkage   a branch to a function's stub in the linkage table (PLT)
    slot      a call or jump by a word that the dynamic linker fills (GOT)

Only bytes that could be such a branch are looked at, and the functions decoded that have them.

What this does not do: look for anything by its name (calls.py).
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator

import numpy as np

from markerjit.elf import FileImage
from markerjit.elf.functions import Functions
from markerjit.elf.image import PF_X, PT_LOAD
from markerjit.elf.linkage import linkage_of
from markerjit.elf.unwind_rows import is_entry_row
from markerjit.sites.functions import COLD, NamedFunctions, canonical
from markerjit.tuples import NamedTuple
from markerjit.x86.flow import flow
from markerjit.x86.forms import condition_of, entry_of_linkage, jumps_always
from markerjit.x86.windows import near_branches, slot_branches

_MOST_BYTES = 1 << 20
"""Of a function that is decoded."""
_SHORT_REACH = 130


class Callee(NamedTuple):
    """A function that is called: its name, and where it is entered; None in another object."""

    name: str
    entry: int | None


class Call(NamedTuple):
    """A call, by the addresses of its object's file. `pushes`: it is no tail call."""

    address: int
    code: bytes
    pushes: bool
    caller: str
    callee: Callee


class CallsOfObject:
    """The code of an object, whose file may be closed once this is made.

    functions  the bounds of its functions
    callees    what a branch to an address leads to
    slots      what a branch by a word at an address leads to
    """

    def __init__(self, image: FileImage, named: NamedFunctions) -> None:
        """Raises NoFunctions, MemoryFault."""
        self.functions = Functions(image)
        self._names = named.symbols
        self._file = os.path.basename(image.name)
        self._texts = [
            (segment.address, image.read(segment.address, segment.file_size))
            for segment in image.segments
            if segment.type == PT_LOAD and segment.flags & PF_X
        ]
        self.slots = self._slots(image)
        self.callees = {
            address: Callee(canonical(texts), address)
            for address, texts in self._names.names.items()
            if not all(COLD in text for text in texts)
        }
        self.callees.update(self._linkage())

    def _slots(self, image: FileImage) -> dict[int, Callee]:
        names, addresses = linkage_of(image)
        known = self._names.names
        own = {text: address for address, texts in known.items() for text in texts}
        by_name = {
            slot: Callee(canonical(known[own[text]]), own[text]) if text in own
            else Callee(text, None)
            for slot, text in names.items()
        }  # fmt: skip
        by_address = {
            slot: Callee(canonical(known[address]), address)
            for slot, address in addresses.items()
            if address in known
        }
        return {**by_address, **by_name}

    def _linkage(self) -> dict[int, Callee]:
        """The functions that the stubs of linkage tables lead to."""
        stubs: dict[int, Callee] = {}
        for start, code in self._texts:
            for table in self._names.linkage:
                if start <= table.start < start + len(code):
                    content = code[table.start - start : table.stop - start]
                    branches = slot_branches(content, table.start)
                    pairs = zip(branches.targets.tolist(), branches.ends.tolist(), strict=True)
                    stubs |= {
                        table.start + entry_of_linkage(content, end - table.start): self.slots[slot]
                        for slot, end in pairs
                        if slot in self.slots
                    }
        return stubs

    def caller_names(self, index: int) -> tuple[str, ...]:
        """The names of the function that has this place in `functions`, or is split off it; one is
        made where it has none."""
        start = int(self.functions.starts[index])
        texts = self._names.names.get(start)
        if texts:
            return tuple(text.partition(COLD)[0] or text for text in texts)
        return (f"{self._file}+{start:#x}",)

    def callee_names(self, callee: Callee) -> tuple[str, ...]:
        """All names of a callee."""
        texts = () if callee.entry is None else self._names.names.get(callee.entry, ())
        return texts or (callee.name,)

    def calls(
        self, callers: Collection[int], callees: Collection[int], slots: Collection[int]
    ) -> Iterator[Call]:
        """The calls in functions with these places in `functions`, of what branches to these
        addresses, and these slots, lead to."""
        ends, by_slot = self._candidates(callees, slots)
        indexes = np.searchsorted(self.functions.starts, np.array(ends, np.int64) - 1, "right") - 1
        near = set(indexes.tolist())
        for callee in callees:
            near |= {*range(*self.functions.between(callee - _SHORT_REACH, callee + _SHORT_REACH))}
        for index in sorted(near.intersection(callers)):
            yield from self._calls_in(index, callees, by_slot)

    def _candidates(
        self, callees: Collection[int], slots: Collection[int]
    ) -> tuple[list[int], dict[int, int]]:
        """The ends of byte sequences that could be a call, and for a call by a slot the slot."""
        ends: list[int] = []
        by_slot: dict[int, int] = {}
        for start, code in self._texts:
            near = near_branches(code, start)
            ends += near.ends[np.isin(near.targets, list(callees))].tolist()
            branches = slot_branches(code, start)
            for slot, end in zip(branches.targets.tolist(), branches.ends.tolist(), strict=True):
                if slot in slots:
                    by_slot[end] = slot
        return [*ends, *by_slot], by_slot

    def _calls_in(
        self, index: int, callees: Collection[int], by_slot: dict[int, int]
    ) -> Iterator[Call]:
        start, stop = int(self.functions.starts[index]), int(self.functions.ends[index])
        if stop - start > _MOST_BYTES:
            return
        code = self._read(start, stop - start)
        decoded = flow(code, start)
        caller = canonical(self.caller_names(index))
        for address, size in decoded.starts.items():
            end = address + size
            target, pushes = decoded.branches.get(end), end in decoded.returns
            own = code[address - start : end - start]
            if target is not None and target in callees:
                callee = self.callees[target]
                jumps = jumps_always(own) or condition_of(own) is not None
            elif target is None and end in by_slot:
                callee = self.slots[by_slot[end]]
                jumps = address in decoded.imports
            else:
                continue
            call = Call(address, own, pushes, caller, callee)
            if pushes or (jumps and self._is_tail(call, index)):
                yield call

    def _is_tail(self, jump: Call, index: int) -> bool:
        """Whether a jump to a function leaves another function, with the stack as it was at that
        function's entry. A function's jump to its own start does not leave it."""
        entry = jump.callee.entry
        if jump.callee.name == jump.caller or self.functions.index(entry or 0) == index:
            return False
        return is_entry_row(self.functions, jump.address)

    def _read(self, address: int, size: int) -> bytes:
        for start, code in self._texts:
            if start <= address < start + len(code):
                return code[address - start : address - start + size]
        return b""
