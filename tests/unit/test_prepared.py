"""What a switch has to name, so that it can be made again without looking."""

from __future__ import annotations

import pytest

from markerjit.arena.pack import unpack
from markerjit.model import Kind, Mode, RemoteAddress
from markerjit.patch.plan import SLOT_DATA, SLOT_PROBE, Plan, SiteState, plan_off, plan_on
from markerjit.patch.prepared import Prepared, prepare
from markerjit.sites import Objects
from markerjit.x86.templates import TEMPLATES
from tests.support.made_sites import BINDING, OURS, PROBE, SLOT, SWITCHABLE, make_site, make_state

OBJECTS = Objects((), (), (), None)


def headed(state: SiteState) -> SiteState:
    template = TEMPLATES.get(state.site.kind)
    if template is None:
        return state
    return state._replace(
        head=template.active[state.code_mode] if state.code_mode else template.dormant
    )


def prepared_on(state: SiteState, mode: Mode | None = None) -> Prepared | None:
    plan = plan_on([state], {state.site.slot: BINDING}, mode=mode, ours=OURS)
    assert isinstance(plan, Plan)
    return prepare(OBJECTS, plan, [state], b"", {})


@pytest.mark.parametrize("kind", [one for one in SWITCHABLE if one is not Kind.SYMBOL])
def test_every_byte_of_the_head_and_both_words_are_named(kind: Kind) -> None:
    state = headed(make_state(kind, None, site=make_site(kind)))

    found = prepared_on(state)

    assert found is not None
    named = {(edit.address + i): edit for edit in found.plan.edits for i in range(len(edit.old))}
    head = range(state.site.address, state.site.address + len(state.head))
    slot = range(SLOT + SLOT_PROBE, SLOT + SLOT_DATA + 8)
    assert set(named) == {*head, *slot}
    assert [edit[:3] for edit in unpack(bytes(found.packed))] == [e[:3] for e in found.plan.edits]
    assert found.changes == sum(edit.old != edit.new for edit in found.plan.edits)


def test_what_only_guards_changes_nothing_and_comes_in_the_order_of_addresses() -> None:
    state = headed(make_state(Kind.JUMP, Mode.JUMP))
    plan = plan_off([state], ours=OURS)
    assert isinstance(plan, Plan)

    found = prepare(OBJECTS, plan, [state], b"", {})

    assert found is not None
    guards = [edit for edit in found.plan.edits if edit not in plan.edits]
    assert {edit.address for edit in guards} == {state.site.address, SLOT + SLOT_DATA}
    assert all(edit.old == edit.new for edit in guards)
    order = [(edit.step, edit.address) for edit in found.plan.edits]
    assert order == sorted(order)


@pytest.mark.parametrize(("current", "mode"), [(None, Mode.INT3), (Mode.INT3, Mode.JUMP)])
def test_a_switch_with_a_breakpoint_is_not_kept(current: Mode | None, mode: Mode) -> None:
    assert prepared_on(headed(make_state(Kind.JUMP, current)), mode) is None


def test_a_switch_that_left_a_site_as_it_was_is_not_kept() -> None:
    off = headed(make_state(Kind.JUMP, None, probe=PROBE))
    there = make_site(Kind.JUMP, address=0x2000)
    on = headed(make_state(Kind.JUMP, Mode.JUMP, site=there))
    plan = plan_on([off, on], {RemoteAddress(SLOT): BINDING}, ours=OURS)
    assert isinstance(plan, Plan)

    assert prepare(OBJECTS, plan, [off, on], b"", {}) is None
