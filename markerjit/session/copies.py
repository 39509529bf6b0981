"""The copies of instructions in a stub, for a thread that stands inside the head of its site.

The thread has begun the instructions that the site loses, and goes on in their copies: these do the
same, and lead to what stands behind the head. Nothing is recorded of it.
"""

from __future__ import annotations

from collections.abc import Mapping

from markerjit.errors import MemoryFault
from markerjit.model import Edit, RemoteAddress, Site
from markerjit.probes.fast import known_path
from markerjit.probes.stub import Displaced, make_copies, stub_for
from markerjit.session.opened import jump_of, way_before
from markerjit.session.target import Target
from markerjit.x86.encoding import WronglyAssembled
from markerjit.x86.forms import NEAR_LENGTH, stub_of
from markerjit.x86.relocate import Unmovable


def copies_inside(target: Target, edit: Edit) -> Mapping[int, int]:
    """The copy of each instruction inside the head that an edit changes, by its address; none
    where the site has no stub, or where the stub is not byte for byte what it should be."""
    for site in target.seen.opened:
        hole = site.body.hole
        is_head = site.address <= edit.address < site.address + len(site.form.head)
        if not is_head and not (hole and hole.address == edit.address):
            continue
        try:
            places = copies_of(target, site) if is_head else _around(target, site, edit)
        except (MemoryFault, WronglyAssembled):
            return {}
        start = site.address if is_head else edit.address
        return {at: copy for at, copy in places.items() if at != start}
    return {}


def _around(target: Target, site: Site, edit: Edit) -> Mapping[int, int]:
    """Of a hole that is given back, its long jump, and where that leads; of one that is made, the
    copies of the instructions that are lost there."""
    hole = site.body.hole
    assert hole
    if edit.old == hole.after:
        return {jump_of(hole): site.body.entry}
    start = stub_of(hole.after[:NEAR_LENGTH], hole.address)
    size = len(hole.before)
    if edit.new != hole.after or size != 2 * NEAR_LENGTH or start is None:
        return {}
    read = target.memory.read
    behind = read(RemoteAddress(hole.address + size), hole.covers - size)
    copies = make_copies(Displaced(hole.address, hole.before + behind), RemoteAddress(start))
    if isinstance(copies, Unmovable) or read(RemoteAddress(start), len(copies.code)) != copies.code:
        return {}
    return copies.places


def copies_of(target: Target, site: Site) -> Mapping[int, int]:
    """The copy of each instruction that a site loses, by its address; none where the stub is not
    byte for byte what it should be, or the site has a breakpoint only. Raises MemoryFault,
    WronglyAssembled."""
    recipe = target.recipe_of(site)
    head = site.form.head
    if recipe is None or len(head) == 1:
        return {}
    read = target.memory.read
    behind = read(RemoteAddress(site.address + len(head)), max(site.body.covers - len(head), 0))
    displaced = Displaced(site.address, (head + behind)[: site.body.covers])
    entry = target.entry_of(site)
    slot_of_entry = entry.slot if entry else RemoteAddress(0)
    way = way_before(read, site.body.entry)
    for fast in (known_path(target.seen.arena, recipe.signature, way), None):
        stub = stub_for(
            recipe, site.body.slot, displaced, site.body.entry, slot_of_entry, head=head, fast=fast
        )
        if isinstance(stub, Unmovable):
            return {}
        if read(site.body.entry, len(stub.code)) == stub.code:
            return stub.places
    return {}
