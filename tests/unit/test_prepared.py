"""What a switch has to name, so that it can be made again without looking."""

from __future__ import annotations

import pytest

from markerjit.arena.pack import unpack
from markerjit.model import Edit, Kind, Mode, RemoteAddress
from markerjit.patch.plan import Plan, SiteState, plan_off, plan_on
from markerjit.patch.prepared import Prepared, prepare
from markerjit.patch.slots import SLOT_DATA, SLOT_PROBE
from tests.support.made_sites import BINDING, OURS, PROBE, SLOT, SWITCHABLE, make_site, make_state


def headed(state: SiteState) -> SiteState:
    form = state.site.form
    return state._replace(head=form.ways[state.code_mode] if state.code_mode else form.head)


def prepared_on(state: SiteState, mode: Mode | None = None) -> Prepared | None:
    plan = plan_on([state], {state.site.slot: BINDING}, mode=mode, ours=OURS)
    assert isinstance(plan, Plan)
    return prepare(plan, [state], b"", {})


@pytest.mark.parametrize("kind", [kind for kind in SWITCHABLE if kind is not Kind.SYMBOL])
def test_every_byte_of_the_head_and_both_words_are_named(kind: Kind) -> None:
    state = headed(make_state(kind, None, site=make_site(kind)))

    prepared = prepared_on(state)

    assert prepared is not None
    named = {(edit.address + i): edit for edit in prepared.plan.edits for i in range(len(edit.old))}
    head = range(state.site.address, state.site.address + len(state.head))
    slot = range(SLOT + SLOT_PROBE, SLOT + SLOT_DATA + 8)
    assert set(named) == {*head, *slot}
    assert [edit[:3] for edit in unpack(bytes(prepared.packed))] == [
        e[:3] for e in prepared.plan.edits
    ]
    assert prepared.changes == sum(edit.old != edit.new for edit in prepared.plan.edits)


def test_what_only_guards_changes_nothing_and_comes_in_the_order_of_addresses() -> None:
    state = headed(make_state(Kind.JUMP, Mode.JUMP))
    plan = plan_off([state], ours=OURS)
    assert isinstance(plan, Plan)

    prepared = prepare(plan, [state], b"", {})

    assert prepared is not None
    guards = [edit for edit in prepared.plan.edits if edit not in plan.edits]
    assert {edit.address for edit in guards} == {state.site.address, SLOT + SLOT_DATA}
    assert all(edit.old == edit.new for edit in guards)
    order = [(edit.step, edit.address) for edit in prepared.plan.edits]
    assert order == sorted(order)


@pytest.mark.parametrize("kind", [Kind.JUMP, Kind.NOP])
def test_a_switch_with_a_breakpoint_keeps_what_the_handler_and_the_journal_need(kind: Kind) -> None:
    site = make_site(kind)
    leads = (site.address, site.body.entry)

    planted = prepared_on(headed(make_state(kind, None, site=site)), Mode.INT3)
    removed = prepared_on(headed(make_state(kind, Mode.INT3, site=site)), site.form.modes[0])

    assert planted is not None and removed is not None
    assert (planted.plan.traps, planted.plan.untraps, planted.planted) == ((leads,), (), ())
    assert (removed.plan.traps, removed.plan.untraps) == ((), (site.address,))
    assert removed.planted == (leads,)


def test_a_place_that_is_written_twice_keeps_both_edits_in_their_order() -> None:
    """The way of a breakpoint: the first byte, what stands behind it, and the first byte again."""
    state = headed(make_state(Kind.NOP, None))
    site = state.site
    plan = Plan("", (
        Edit(site.address, state.head[:1], b"\1", "", True, 0),
        Edit(RemoteAddress(site.address + 1), state.head[1:], state.head[1:][::-1], "", True, 1),
        Edit(site.address, b"\1", b"\2", "", True, 2),
    ))  # fmt: skip

    prepared = prepare(plan, [state], b"", {})

    assert prepared is not None
    assert [edit for edit in prepared.plan.edits if edit.code] == list(plan.edits)


def test_a_site_that_is_off_and_stays_so_is_compared_byte_by_byte() -> None:
    on = headed(make_state(Kind.JUMP, Mode.JUMP))
    off = headed(make_state(Kind.JUMP, None, site=make_site(Kind.JUMP, address=0x2000)))
    plan = plan_off([on, off], ours=OURS)
    assert isinstance(plan, Plan)

    prepared = prepare(plan, [on, off], b"", {})
    unread = prepare(plan, [on, off._replace(head=off.head[:1])], b"", {})

    assert prepared is not None
    code = [edit for edit in prepared.plan.edits if edit.code]
    of_site = [edit for edit in code if edit.address >= off.site.address]
    assert b"".join(edit.old for edit in of_site) == off.head
    assert all(edit.old == edit.new and len(edit.old) == 1 for edit in of_site)
    assert unread is None


def test_a_switch_that_left_a_site_as_it_was_and_on_is_not_kept() -> None:
    off = headed(make_state(Kind.JUMP, None, probe=PROBE))
    far = make_site(Kind.JUMP, address=0x2000)
    on = headed(make_state(Kind.JUMP, Mode.JUMP, site=far))
    plan = plan_on([off, on], {RemoteAddress(SLOT): BINDING}, ours=OURS)
    assert isinstance(plan, Plan)

    assert prepare(plan, [off, on], b"", {}) is None
