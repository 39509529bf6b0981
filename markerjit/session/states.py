"""How sites are: what their code says, and the words of their slots, semaphores and holes.

What this does not do: know which sites there are (target.py), or judge their states (planning.py).
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from functools import partial

from markerjit.abi import PAGE, SLOT_SIZE
from markerjit.arena.breakpoints import Breakpoints
from markerjit.elf import Read
from markerjit.errors import UnexpectedBytes
from markerjit.model import Hole, Mode, RemoteAddress, Site, new
from markerjit.patch.slots import BINDING_SIZE, SEMAPHORE_SIZE, SLOT_ADAPTER, SLOT_TOKEN
from markerjit.patch.switchable import SiteState
from markerjit.sites import Lot
from markerjit.sites.verify import code_of
from markerjit.tuples import NamedTuple
from markerjit.x86.forms import FUNCTION, RETURN

_SLOT = struct.Struct("<8Q")
"""All words of a slot in an arena."""
assert _SLOT.size == SLOT_SIZE


def states_of(read: Read, lots: Sequence[Lot], breakpoints: Breakpoints) -> list[SiteState]:
    """How the sites of lots are now. The sites of a marker share a slot, which is read once."""
    states: list[SiteState] = []
    slots: dict[tuple[RemoteAddress, bool], Words] = {}
    whole_slots: dict[RemoteAddress, tuple[int, ...]] = {}
    for lot in lots:
        body = lot.first.body
        usual = _usual_state(read, lot, whole_slots) if body.covers else None
        if usual:
            states.append(usual)
            continue
        key = body.slot, body.preserving
        words = slots.get(key)
        if words is None:
            words = slots[key] = words_of(read, body.slot, preserving=body.preserving)
        probe, data, adapter = words
        raised = raised_of(read, body.semaphore) if body.semaphore else 0
        kept = _kept(read, lot.first) if body.covers else _NOTHING_KEPT
        # An entry that is open for exits is ours without a probe: its stub is, too.
        ours = probe or (body.entry if kept[0] else probe)
        for part, mode, head, problem in code_of(read, lot, partial(breakpoints.has, ours)):
            hole = b""
            if body.hole:
                hole, mistake = hole_state(read, part.first, body.hole, mode)
                problem = problem or mistake
            fields = (
                part.first, mode, probe, data, head, problem, False, adapter, raised, hole, part,
                *kept,
            )  # fmt: skip
            states.append(new(SiteState, fields))
    return states


def _usual_state(
    read: Read, lot: Lot, slots: dict[RemoteAddress, tuple[int, ...]]
) -> SiteState | None:
    """The state of a site with a stub whose code is what it is while the site is closed, or its
    jump. Nearly all of thousands are so; None of any other. `slots` are those that were read."""
    _, _, address, form, body = site = lot.first
    name, head, tail, ways, *_ = form
    slot, *_, preserving, semaphore, hole, _ = body
    if tail or semaphore or hole or not (head and slot and preserving):
        return None
    words = slots.get(slot)
    if words is None:
        words = slots[slot] = _SLOT.unpack(read(slot, SLOT_SIZE))
    code = read(address, len(head))
    mode = None
    if code != head:
        if code != ways.get(Mode.JUMP):
            return None
        mode = Mode.JUMP
    probe, data, _, _, adapter, _, first, second = words
    kept = _NOTHING_KEPT
    if name == FUNCTION:
        kept = first, second, 0, 0
    elif name == RETURN:
        kept = 0, 0, first, second
    fields = site, mode, probe, data, code, None, False, adapter, 0, b"", lot, *kept
    return new(SiteState, fields)


class Words(NamedTuple):
    """What a slot holds; zeros where there is no slot, or no such word in it."""

    probe: RemoteAddress
    data: RemoteAddress
    adapter: RemoteAddress


def words_of(read: Read, slot: RemoteAddress, *, preserving: bool) -> Words:
    """The words of a slot, whose bodies make preserving calls or not."""
    size = SLOT_ADAPTER + 8 if preserving else BINDING_SIZE
    content = read(slot, size) if slot else b""
    places = slice(0, 8), slice(8, BINDING_SIZE), slice(SLOT_ADAPTER, SLOT_ADAPTER + 8)
    return Words(*(RemoteAddress(int.from_bytes(content[at], "little")) for at in places))


def raised_of(read: Read, semaphore: RemoteAddress) -> int:
    """The count in a semaphore."""
    return int.from_bytes(read(semaphore, SEMAPHORE_SIZE), "little")


def hole_state(
    read: Read, site: Site, hole: Hole, mode: Mode | None
) -> tuple[bytes, UnexpectedBytes | None]:
    """What a hole holds, and what is wrong with it. One that is filled and not used may be left
    of a change that is not settled; one that is used has to be filled."""
    _, before, after, _ = hole
    content = read(hole.address, len(before))
    expected = after if mode is Mode.JUMP else before
    if content in (expected, after):
        return content, None
    where = f"{site.marker} in {site.object.path}"
    return content, UnexpectedBytes(hole.address, content, expected, where)


_NOTHING_KEPT = (0, 0, 0, 0)


def _kept(read: Read, site: Site) -> tuple[int, int, int, int]:
    """The last four fields of a SiteState, of a site with a stub."""
    if site.form.name not in (FUNCTION, RETURN):
        return _NOTHING_KEPT
    words = read(RemoteAddress(site.slot + SLOT_TOKEN), SLOT_SIZE - SLOT_TOKEN)
    first, second = (int.from_bytes(words[at : at + 8], "little") for at in (0, 8))
    if site.form.name == FUNCTION:
        return first, second, 0, 0
    return 0, 0, first, second


class Reader:
    """Reads by pages and keeps them: for a hundred thousand sites, at one moment."""

    def __init__(self, read: Read) -> None:
        self._read = read
        self._pages: dict[int, bytes] = {}

    def read(self, address: RemoteAddress, size: int) -> bytes:
        """As the function that it was made with; raises what that raises."""
        at = address % PAGE
        end = at + size
        if end > PAGE:
            return self._read(address, size)
        page = self._pages.get(address - at) or self._page(address - at)
        return page[at:end]

    def _page(self, start: int) -> bytes:
        page = self._pages[start] = self._read(RemoteAddress(start), PAGE)
        return page
