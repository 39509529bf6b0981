"""Mending without a process: which places a journal has, which of them are ours to repair, and that
a mending that is interrupted anywhere leaves whole instructions, as the change itself did."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product

import pytest

from markerjit.memory import FakeMemory
from markerjit.model import Change, Edit, Kind, Mode, RemoteAddress, Site
from markerjit.patch.plan import SiteState
from markerjit.patch.protocol import Context, breakpoint
from markerjit.quiesce.strategies import STOP
from markerjit.session import unfinished
from markerjit.session.unfinished import Place, places_of
from markerjit.x86.forms import INT3
from tests.support.made_arena import geometry_of, make_arena
from tests.support.made_sites import ENTRY, PROBE, SLOT, make_site, make_state, memory_of, off, on

TRAP = bytes([INT3])
HERE = RemoteAddress(0x1000)


def place(at: int, before: str, after: str, *, step: int = 0, between: Sequence[str] = ()) -> Place:
    old, new = bytes.fromhex(before), bytes.fromhex(after)
    middle = frozenset((old, new, *map(bytes.fromhex, between)))
    return Place(RemoteAddress(at), old, new, middle, True, step)


def edit(at: int, old: str, new: str, step: int = 0) -> Edit:
    return Edit(RemoteAddress(at), bytes.fromhex(old), bytes.fromhex(new), "", True, step)


# ---- the places of a journal ---------------------------------------------------------------------


def test_an_edit_is_a_place_with_what_stood_there_and_what_was_to_come() -> None:
    assert places_of([edit(HERE, "05", "00")]) == [place(HERE, "05", "00")]


def test_places_come_in_the_order_in_which_they_are_taken_back() -> None:
    edits = [
        edit(0x30, "00", "01"),
        edit(0x10, "02", "03", 1),
        edit(0x20, "04", "05", 1),
        edit(0x40, "06", "07", 2),
    ]

    assert [place.address for place in places_of(edits)] == [0x40, 0x10, 0x20, 0x30]


def test_a_place_that_is_written_twice_is_one_with_all_that_it_may_hold() -> None:
    change = Change(HERE, b"\xeb\5", b"\x90\x90", "", True, completion=HERE)
    edits = breakpoint.plan(change, Context(STOP, handler=True))

    assert places_of(edits) == [  # type: ignore[arg-type]
        place(HERE + 1, "05", "90", step=1),
        place(HERE, "eb", "90", between=["cc"]),
    ]


def test_a_word_and_a_byte_at_one_address_are_two_places() -> None:
    edits = [edit(HERE, "00" * 8, "01" * 8), edit(HERE, "02", "03")]

    assert len(places_of(edits)) == 2


# ---- taking back ---------------------------------------------------------------------------------


def back(edits: Sequence[Edit], memory: FakeMemory) -> list[Edit]:
    now = [(place, memory.read(place.address, len(place.before))) for place in places_of(edits)]
    return list(unfinished._back(now))


def write(memory: FakeMemory, edits: Sequence[Edit]) -> None:
    for edit in edits:
        assert memory.read(edit.address, len(edit.old)) == edit.old
        memory.write(edit.address, edit.new)


def test_what_was_not_written_yet_is_not_taken_back() -> None:
    memory = FakeMemory({HERE: b"\5\6"})

    assert back([edit(HERE, "05", "00"), edit(HERE + 1, "06", "01")], memory) == []


def test_each_step_of_the_change_is_a_step_of_the_way_back() -> None:
    edits = [edit(0x1000, "00", "01"), edit(0x1001, "00", "01"), edit(0x1002, "00", "01", 1)]
    memory = FakeMemory({HERE: b"\1\1\1"})

    way_back = back(edits, memory)

    assert [(edit.address, edit.step) for edit in way_back] == [
        (0x1002, 0),
        (0x1000, 1),
        (0x1001, 1),
    ]
    assert all((edit.old, edit.new) == (b"\1", b"\0") for edit in way_back)


CHANGES = [
    (current, goal)
    for current, goal in product((None, Mode.JUMP, Mode.INT3), repeat=2)
    if current is not goal
]


@pytest.mark.parametrize(("current", "goal"), CHANGES)
def test_a_switch_that_ended_anywhere_and_a_mending_that_ended_anywhere_leave_whole_instructions(
    current: Mode | None, goal: Mode | None
) -> None:
    """And the next mending, which finds the same journal, brings back what stood there before."""
    state = make_state(Kind.JUMP, current)
    form = state.site.form
    edits = (on([state], goal) if goal else off([state])).edits
    site = state.site.address

    for done in range(len(edits) + 1):
        ended = memory_of(state)
        write(ended, edits[:done])
        for mended in range(len(back(edits, ended)) + 1):
            memory = memory_of(state)
            write(memory, edits[:done])
            for edit in back(edits, memory)[:mended]:
                write(memory, [edit])
                data = memory.read(site, 2)
                assert data[:1] == TRAP or data in (form.head, *form.ways.values())
            write(memory, back(edits, memory))
            assert back(edits, memory) == []
            assert memory.segments == memory_of(state).segments


def test_a_slot_is_mended_after_the_code_that_opened_on_it() -> None:
    state = make_state(Kind.JUMP, None)
    memory = memory_of(state)
    edits = on([state]).edits
    write(memory, edits)

    way_back = back(edits, memory)

    assert [edit.address - state.site.address for edit in way_back if edit.code] == [1]
    assert [edit.address for edit in way_back] == [state.site.address + 1, SLOT, SLOT + 8]


# ---- whose places --------------------------------------------------------------------------------


def split(memory: FakeMemory, places: Sequence[Place], *sites: Site) -> tuple[list, list[str]]:
    return unfinished._split(memory, sites, places, make_arena(geometry_of()))


def test_places_of_sites_and_slots_that_hold_what_the_journal_knows_are_ours() -> None:
    states = [
        make_state(Kind.JUMP, None, site=make_site(Kind.JUMP, address=a)) for a in (0x1000, 0x1040)
    ]
    memory = memory_of(*states)
    edits = on(states).edits

    for done in range(len(edits) + 1):
        if done:
            write(memory, edits[done - 1 : done])
        ours, left_alone = split(memory, places_of(edits), *(state.site for state in states))
        assert ours == places_of(edits)
        assert left_alone == []


@pytest.mark.parametrize("at", [0x0FFF, 0x1007, 0x103F, 0x8FFF, 0x9010, 0x0, (1 << 64) - 8])
def test_a_place_that_belongs_to_no_marker_is_left_alone_and_not_even_read(at: int) -> None:
    """Its object may have been unloaded, and another mapped there."""
    state = make_state(Kind.JUMP, None)

    ours, left_alone = split(FakeMemory(), [place(at, "05", "00")], state.site)

    assert ours == []
    assert left_alone == [f"{at:#x} belongs to no marker that is mapped now"]


def test_a_process_without_any_site_has_no_place_that_is_ours() -> None:
    assert split(FakeMemory(), [place(HERE, "05", "00")])[0] == []


@pytest.mark.parametrize("foreign", ["90", "cc", "06"])
def test_a_place_that_holds_what_the_journal_does_not_know_is_left_alone_and_said(
    foreign: str,
) -> None:
    state = make_state(Kind.JUMP, None)
    memory = memory_of(state)
    memory.write(RemoteAddress(0x1001), bytes.fromhex(foreign))
    places = [place(0x1001, "05", "00"), place(0x1000, "eb", "eb")]

    ours, left_alone = split(memory, places, state.site)

    assert ours == places[1:]
    whose = "a breakpoint of another tool" if foreign == "cc" else "not ours"
    assert left_alone == [f"0x1001 holds {foreign}, {whose}"]


def test_a_breakpoint_that_the_journal_knows_of_is_ours() -> None:
    state = make_state(Kind.JUMP, None)
    memory = memory_of(state)
    memory.write(HERE, TRAP)

    ours, _ = split(memory, [place(HERE, "eb", "90", between=["cc"])], state.site)

    assert len(ours) == 1


def test_a_place_that_cannot_be_read_is_left_alone_and_the_others_are_mended() -> None:
    state = make_state(Kind.JUMP, None)
    far = make_site(Kind.JUMP, address=0x5000, slot=0)
    places = [place(0x5001, "05", "00"), place(0x1001, "05", "00")]

    ours, (reason,) = split(memory_of(state), places, state.site, far)

    assert ours == places[1:]
    assert "0x5001" in reason


@pytest.mark.parametrize("preserving", [True, False])
def test_a_slot_has_an_adapter_where_its_body_makes_a_preserving_call(preserving: bool) -> None:
    """Behind the slot of an ordinary call stands something else."""
    site = make_site(Kind.JUMP)
    site = site._replace(body=site.body._replace(preserving=preserving))
    adapter = Place(RemoteAddress(SLOT + 32), bytes(8), b"x" * 8, frozenset((bytes(8),)), False, 0)
    memory = FakeMemory()
    memory.add(RemoteAddress(SLOT + 32), bytes(8))

    ours, _ = split(memory, [adapter], site)

    assert ours == ([adapter] if preserving else [])


def test_a_place_half_outside_of_a_slot_is_not_taken_for_its_end() -> None:
    """A word that begins in a slot and ends behind it is nobody's."""
    state = SiteState(make_site(Kind.JUMP), None, PROBE, ENTRY)
    word = Place(RemoteAddress(SLOT + 12), bytes(8), b"x" * 8, frozenset((bytes(8),)), False, 0)
    memory = memory_of(state)
    memory.add(RemoteAddress(SLOT + 16), bytes(16))

    ours, _ = split(memory, [word], state.site)

    assert ours == []
