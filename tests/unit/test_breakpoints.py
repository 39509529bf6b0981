"""Whose a breakpoint is: by the arena's table, the journal, the slot, and ancestors' arenas."""

from __future__ import annotations

import pytest

from markerjit.arena.breakpoints import Breakpoints
from markerjit.arena.journal import Journal
from markerjit.arena.mapped import Probes
from markerjit.arena.pack import pack
from markerjit.arena.patches import Head
from markerjit.model import Edit, Kind, Mode, RemoteAddress
from tests.support.made_sites import make_site
from tests.support.own_arena import OwnArena, geometry_of

SITE = make_site(Kind.JUMP)
GEOMETRY = geometry_of(ring_size=4096, max_markers=1, max_patches=16, max_edits=4)
NONE = RemoteAddress(0)


@pytest.fixture
def own(build: object) -> OwnArena:
    return OwnArena(GEOMETRY)


def is_ours(own: OwnArena, probe: RemoteAddress, *, ancestor: OwnArena | None = None) -> bool:
    arena = own.arena
    bases = [arena.base] + ([ancestor.arena.base] if ancestor else [])
    inherited = [ancestor.arena] if ancestor else []
    return Breakpoints(arena, Probes(bases), lambda: inherited).has(
        probe, SITE.address, SITE.body.entry, SITE.slot
    )


def plant(own: OwnArena, body: RemoteAddress = SITE.body.entry) -> None:
    put(own, body)
    own.arena.patches.mark(planted=[SITE.address])


def put(own: OwnArena, body: RemoteAddress = SITE.body.entry) -> None:
    head = Head(SITE.address, b"\xeb\5", b"\xcc\5", Mode.INT3, SITE.slot, body)
    own.arena.patches.put([head])


def test_a_breakpoint_that_was_planted_is_ours_until_it_is_taken_away(own: OwnArena) -> None:
    probe = own.arena.count_probe(preserving=True)
    assert not is_ours(own, probe)
    put(own)
    assert not is_ours(own, probe)

    own.arena.patches.mark(planted=[SITE.address])
    assert is_ours(own, probe)
    put(own)  # once more, as a switch to another probe does
    assert is_ours(own, probe)

    own.arena.patches.mark(removed=[SITE.address])
    assert not is_ours(own, probe)


@pytest.mark.parametrize("probe", [NONE, RemoteAddress(0xBAD0)])
def test_it_is_not_ours_where_the_slot_has_no_probe_of_ours(
    own: OwnArena, probe: RemoteAddress
) -> None:
    """The object was unloaded and loaded again while no controller looked: the table is stale."""
    plant(own)

    assert not is_ours(own, probe)


def test_it_is_not_ours_where_the_code_is_another(own: OwnArena) -> None:
    plant(own, RemoteAddress(SITE.body.entry + 1))

    assert not is_ours(own, own.arena.count_probe(preserving=True))


def test_it_is_not_ours_where_the_code_has_gone(own: OwnArena) -> None:
    plant(own)
    own.arena.patches.forget([SITE.address])

    assert not is_ours(own, own.arena.count_probe(preserving=True))


@pytest.mark.parametrize(("old", "new"), [("eb", "cc"), ("cc", "eb")])
@pytest.mark.parametrize("planted", [False, True])
def test_it_is_ours_while_a_change_that_has_it_is_open(
    own: OwnArena, old: str, new: str, planted: bool
) -> None:
    put(own)
    own.arena.patches.mark([SITE.address] if planted else [])
    edit = Edit(SITE.address, bytes.fromhex(old), bytes.fromhex(new), "", True)

    Journal(own.arena).open(pack([edit]))
    assert is_ours(own, own.arena.count_probe(preserving=True))
    Journal(own.arena).close()

    assert is_ours(own, own.arena.count_probe(preserving=True)) is planted


def test_a_change_of_another_place_makes_none_ours(own: OwnArena) -> None:
    tail = RemoteAddress(SITE.address + 1)

    Journal(own.arena).open(pack([Edit(tail, b"\5", b"\0", "", True)]))

    assert not is_ours(own, own.arena.count_probe(preserving=True))


def test_a_child_inherits_what_the_slot_says_that_its_parent_had(own: OwnArena) -> None:
    parent = OwnArena(GEOMETRY)
    plant(parent)
    parent.arena.patches.mark(removed=[SITE.address])  # by the parent, after the fork

    assert is_ours(own, parent.arena.count_probe(preserving=True), ancestor=parent)
    assert not is_ours(own, NONE, ancestor=parent)
    assert not is_ours(own, own.arena.count_probe(preserving=True), ancestor=parent)
