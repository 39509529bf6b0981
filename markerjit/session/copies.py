"""The copies of instructions in a stub, for a thread that stands inside the head of its site.

The thread has begun the instructions that the site loses, and goes on in their copies: these do the
same, and lead to what stands behind the head. Nothing is recorded of it.
"""

from __future__ import annotations

from collections.abc import Mapping

from markerjit.errors import MemoryFault
from markerjit.model import Edit, RemoteAddress, Site
from markerjit.probes.parts import Name
from markerjit.probes.stub import Displaced, make_stub
from markerjit.session.target import Target
from markerjit.x86.assemble import WronglyAssembled
from markerjit.x86.forms import NEAR_LENGTH
from markerjit.x86.relocate import Relocated, Unmovable, relocate
from markerjit.x86.run import whole_instructions

_LONGEST = 15
"""Bytes of an instruction."""


def copies_inside(target: Target, edit: Edit) -> Mapping[int, int]:
    """The copy of each instruction inside the head that an edit changes, by its address; none
    where the site has no stub, or where the stub is not byte for byte what it should be."""
    for site in target.seen.opened:
        if site.address <= edit.address < site.address + len(site.form.head):
            try:
                places = _places(target, site)
            except (MemoryFault, WronglyAssembled):
                return {}
            return {at: copy for at, copy in places.items() if at != site.address}
    return {}


def _places(target: Target, site: Site) -> Mapping[int, int]:
    recipe = target.recipe_of(site)
    head = site.form.head
    if recipe is None or len(head) != NEAR_LENGTH:
        return {}
    read = target.memory.read
    code = head + read(RemoteAddress(site.address + len(head)), _LONGEST)
    displaced = Displaced(site.address, whole_instructions(code, site.address).first(len(head)))
    stub = make_stub(
        site.signature, recipe.recipe.operands, site.body.slot, displaced, site.body.entry
    )
    if isinstance(stub, Unmovable) or read(site.body.entry, len(stub.code)) != stub.code:
        return {}
    copies = next(part.start for part in stub.parts if part.name == Name.MOVED)
    moved = relocate(displaced.code, displaced.address, copies)
    return moved.places if isinstance(moved, Relocated) else {}
