"""Plans on made-up sites: what is written where, in which order, and what is refused.

A plan is also played through edit by edit: after each a thread must find a site safe to run.
"""

from __future__ import annotations

from collections import Counter
from itertools import product

import pytest

from markerjit.abi import PROBE_COUNTED
from markerjit.arena.pack import pack
from markerjit.errors import Reason, UnexpectedBytes
from markerjit.memory import FakeMemory
from markerjit.model import Body, Kind, Mode, RemoteAddress, Site
from markerjit.patch.plan import Edit, Plan, Refusal, SiteState, plan_off, plan_on
from markerjit.patch.slots import SLOT_DATA, SLOT_PROBE
from markerjit.patch.steps import Verb
from markerjit.quiesce.strategies import MEMBARRIER, NONE, SIGNALS, STOP, Strategy
from markerjit.runs import MANY, Run, Runs
from markerjit.sites.verify import code_mode
from markerjit.x86.forms import FUNCTION, RETURN, form_with_stub
from tests.support.calls import calls_of
from tests.support.made_sites import (
    BINDING,
    ENTRY,
    OTHER_PROBE,
    OURS,
    PROBE,
    SLOT,
    SWITCHABLE,
    has_head,
    make_lot,
    make_site,
    make_state,
    memory_of,
    modes,
    off,
    on,
)

# Every kind, how it is on now (None: off), how it shall be on.
CHANGES = [
    (kind, current, goal)
    for kind in SWITCHABLE
    for current, goal in product((None, *modes(kind)), modes(kind))
]
ON_CASES = [case for case in CHANGES if case[1] in (None, case[2])]
OTHER_MODE = [case for case in CHANGES if case not in ON_CASES]
OFF_CASES = [(kind, current) for kind in SWITCHABLE for current in (None, *modes(kind))]


def see(memory: FakeMemory, site: Site) -> SiteState:
    """The state as a session finds it."""
    words = memory.read(site.slot, 16)
    return SiteState(
        site,
        code_mode(memory.read, site, planted=True),
        RemoteAddress(int.from_bytes(words[:8], "little")),
        RemoteAddress(int.from_bytes(words[8:], "little")),
    )


def apply(plan: Plan | Refusal, memory: FakeMemory) -> None:
    assert isinstance(plan, Plan)
    for edit in plan.edits:
        apply_edit(edit, memory)


def apply_edit(edit: Edit, memory: FakeMemory) -> None:
    assert memory.read(edit.address, len(edit.old)) == edit.old, edit.what
    assert len(edit.new) == len(edit.old)
    memory.write(edit.address, edit.new)


def changes(plan: Plan) -> list[Edit]:
    """Edits without those that only guard: what they write stands there already."""
    return [edit for edit in plan.edits if edit.old != edit.new]


def check_every_step(plan: Plan, state: SiteState) -> None:
    """After no edit does the code lead to a body whose slot is not ready."""
    memory = memory_of(state)
    for edit in plan.edits:
        apply_edit(edit, memory)
        now = see(memory, state.site)
        if now.mode is not None:
            assert now.probe in OURS, f"open without a probe after: {edit.what}"
            assert now.data == ENTRY, f"open without its data after: {edit.what}"


def refusal(plan: Plan | Refusal) -> str:
    assert isinstance(plan, Refusal)
    assert not plan.try_again
    return plan.sentence


# ---- one site ------------------------------------------------------------------------------------


@pytest.mark.parametrize(("kind", "current", "goal"), ON_CASES)
def test_switching_on_gives_a_site_that_is_recognised_as_on(
    kind: Kind, current: Mode | None, goal: Mode
) -> None:
    state = make_state(kind, current)
    memory = memory_of(state)

    apply(on([state], goal), memory)

    assert see(memory, state.site).mode is goal
    assert see(memory, state.site)[2:4] == (BINDING.probe, BINDING.data)


@pytest.mark.parametrize(("kind", "current"), OFF_CASES)
def test_switching_off_gives_a_site_that_is_recognised_as_off(
    kind: Kind, current: Mode | None
) -> None:
    state = make_state(kind, current)
    memory = memory_of(state)

    apply(off([state]), memory)

    assert see(memory, state.site).mode is None
    assert see(memory, state.site).probe == state.site.body.idle
    assert see(memory, state.site).data == state.data  # a thread inside may still read it


@pytest.mark.parametrize(("kind", "current", "goal"), ON_CASES)
def test_switching_on_changes_at_most_one_byte_of_code(
    kind: Kind, current: Mode | None, goal: Mode
) -> None:
    edits = [edit for edit in on([make_state(kind, current)], goal).edits if edit.code]

    assert len(edits) == (has_head(kind) and current is not goal)
    assert all(len(edit.old) == len(edit.new) == 1 for edit in edits)


@pytest.mark.parametrize(("kind", "current"), OFF_CASES)
def test_switching_off_changes_at_most_one_byte_of_code(kind: Kind, current: Mode | None) -> None:
    edits = [edit for edit in off([make_state(kind, current)]).edits if edit.code]

    assert len(edits) == (has_head(kind) and current is not None)
    assert all(len(edit.old) == len(edit.new) == 1 for edit in edits)


@pytest.mark.parametrize("kind", SWITCHABLE)
def test_switching_on_writes_the_data_then_the_probe_then_the_code(kind: Kind) -> None:
    places = [edit.address for edit in on([make_state(kind, None)]).edits]

    assert places[:2] == [SLOT + SLOT_DATA, SLOT + SLOT_PROBE]
    assert len(places) == (3 if has_head(kind) else 2)


@pytest.mark.parametrize("kind", SWITCHABLE)
def test_switching_off_writes_the_code_and_then_the_probe(kind: Kind) -> None:
    edits = off([make_state(kind, modes(kind)[0])]).edits

    assert edits[-1].address == SLOT + SLOT_PROBE
    assert [edit.code for edit in edits] == ([True, False] if has_head(kind) else [False])


@pytest.mark.parametrize(("kind", "current", "goal"), ON_CASES)
def test_no_step_of_switching_on_opens_a_site_that_is_not_ready(
    kind: Kind, current: Mode | None, goal: Mode
) -> None:
    state = make_state(kind, current)

    check_every_step(on([state], goal), state)


@pytest.mark.parametrize(("kind", "current"), OFF_CASES)
def test_no_step_of_switching_off_leaves_a_site_open_without_a_probe(
    kind: Kind, current: Mode | None
) -> None:
    state = make_state(kind, current)

    check_every_step(off([state]), state)


@pytest.mark.parametrize("kind", [kind for kind in SWITCHABLE if has_head(kind)])
def test_a_plan_in_the_wrong_order_would_be_noticed(kind: Kind) -> None:
    dormant, active = make_state(kind, None), make_state(kind, modes(kind)[0])
    wrong_on, wrong_off = on([dormant]), off([active])

    with pytest.raises(AssertionError, match="open without a probe"):
        check_every_step(wrong_on._replace(edits=wrong_on.edits[::-1]), dormant)
    with pytest.raises(AssertionError, match="open without a probe"):
        check_every_step(wrong_off._replace(edits=wrong_off.edits[::-1]), active)


@pytest.mark.parametrize(("kind", "mode"), [(k, m) for k in SWITCHABLE for m in modes(k)])
def test_a_site_that_is_on_stays_on_as_it_is(kind: Kind, mode: Mode) -> None:
    for plan in (on([make_state(kind, mode)]), on([make_state(kind, mode)], mode)):
        assert plan.edits == ()
        assert bool(plan.traps) == (mode is Mode.INT3)  # the runtime may be a new one


@pytest.mark.parametrize("kind", SWITCHABLE)
def test_switching_off_what_is_off_already_writes_nothing(kind: Kind) -> None:
    assert off([make_state(kind, None)]).edits == ()


@pytest.mark.parametrize(("kind", "mode"), [(k, m) for k in SWITCHABLE for m in modes(k)])
def test_on_and_off_again_leaves_the_bytes_as_they_were(kind: Kind, mode: Mode) -> None:
    state = make_state(kind, None)
    memory = memory_of(state)
    before = memory.read(state.site.address, len(memory.segments[state.site.address]))

    apply(on([state], mode), memory)
    apply(off([see(memory, state.site)]), memory)

    after = memory.read(state.site.address, len(before))
    assert after == before
    assert see(memory, state.site).probe == state.probe


@pytest.mark.parametrize("kind", SWITCHABLE)
def test_another_probe_of_ours_is_put_in_place_without_touching_the_code(kind: Kind) -> None:
    state = make_state(kind, modes(kind)[0], probe=OTHER_PROBE)

    edits = changes(on([state]))

    assert [(edit.address, edit.code) for edit in edits] == [(SLOT + SLOT_PROBE, False)]
    assert edits[0].new == PROBE.to_bytes(8, "little")


@pytest.mark.parametrize("kind", SWITCHABLE)
def test_only_breakpoints_are_announced(kind: Kind) -> None:
    state = make_state(kind, None)

    for mode in modes(kind):
        expected = ((state.site.address, state.site.body.entry),) if mode is Mode.INT3 else ()
        assert on([state], mode).traps == expected


@pytest.mark.parametrize(("kind", "current", "goal"), CHANGES)
def test_a_plan_that_opens_depends_on_the_data_of_every_slot(
    kind: Kind, current: Mode | None, goal: Mode
) -> None:
    """An object that was loaded anew at the same address has none: its probe would find nothing."""
    plan = on([make_state(kind, current)], goal)

    places = [edit.address for edit in plan.edits]
    assert places.count(RemoteAddress(SLOT + SLOT_DATA)) == bool(plan.edits)
    steps = [edit.step for edit in plan.edits]
    assert steps == sorted(steps)


# ---- another mode than now -----------------------------------------------------------------------

# From jump to int3 and back two bytes change, so the cores are synchronised between them.
WAYS = [(STOP, False), (MEMBARRIER, False), (MEMBARRIER, True), (SIGNALS, True)]


@pytest.mark.parametrize(("strategy", "own"), WAYS)
@pytest.mark.parametrize(("kind", "current", "goal"), OTHER_MODE)
def test_another_mode_than_now_is_one_plan_and_no_step_of_it_is_off(
    kind: Kind, current: Mode, goal: Mode, strategy: Strategy, own: bool
) -> None:
    state = make_state(kind, current)
    memory = memory_of(state)

    plan = on([state], goal, strategy=strategy, own=own)

    seen = []
    for edit in plan.edits:
        apply_edit(edit, memory)
        seen.append(see(memory, state.site).mode)
    assert seen[-1] is goal
    assert set(seen) <= {current, goal}
    assert plan.strategy is strategy
    assert bool(plan.traps) == (goal is Mode.INT3)


@pytest.mark.parametrize(("strategy", "own"), WAYS)
@pytest.mark.parametrize(
    ("current", "goal", "edits"),
    [
        (Mode.JUMP, Mode.INT3, [(0, "eb", "cc", 0), (1, "00", "05", 1)]),
        (Mode.INT3, Mode.JUMP, [(1, "05", "00", 0), (0, "cc", "eb", 1)]),
    ],
)
def test_a_jump_becomes_a_breakpoint_and_back_with_the_breakpoint_over_its_tail(
    current: Mode, goal: Mode, edits: list[tuple], strategy: Strategy, own: bool
) -> None:
    """A thread that comes while the tail is written falls into the trap, and so to the body."""
    state = make_state(Kind.JUMP, current)

    made = changes(on([state], goal, strategy=strategy, own=own))

    first = made[0].step
    assert [
        (edit.address - state.site.address, edit.old.hex(), edit.new.hex(), edit.step - first)
        for edit in made
    ] == edits
    assert all(edit.code and not edit.again and not edit.store for edit in made)


@pytest.mark.parametrize("code", ["0f 85 00 10 00 00", "e9 00 10 00 00"])
def test_another_target_of_a_jump_takes_no_breakpoint_in_its_displacement(code: str) -> None:
    """Also where another site has one, so that there is a handler."""
    stub = RemoteAddress(0x600000)
    states = []
    for address, head in ((0x401000, bytes.fromhex(code)), (0x401010, b"\xc3")):
        at = RemoteAddress(address)
        form = form_with_stub(RETURN, head, at, stub)
        body = Body(RemoteAddress(SLOT), stub, RemoteAddress(at + len(head)))
        site = make_site(Kind.JUMP)._replace(address=at, form=form, body=body)
        states.append(make_state(Kind.JUMP, None, site=site))

    written = [edit.new.hex() for edit in changes(on(states)) if edit.code]

    assert sorted(written) == sorted([states[0].site.form.ways[Mode.JUMP][-4:-1].hex(), "cc"])
    context = {"ours": OURS, "strategy": MEMBARRIER}
    assert "3 bytes change at once" in refusal(plan_on(states, {SLOT: BINDING}, **context))


@pytest.mark.parametrize("own", [False, True])
@pytest.mark.parametrize("current", [Mode.JUMP, Mode.INT3])
def test_a_jump_becomes_no_breakpoint_where_nothing_is_synchronised(
    current: Mode, own: bool
) -> None:
    goal = Mode.INT3 if current is Mode.JUMP else Mode.JUMP
    states = [make_state(Kind.JUMP, current)]
    context = {"mode": goal, "ours": OURS, "strategy": NONE, "own": own}

    assert "2 bytes change at once" in refusal(plan_on(states, {SLOT: BINDING}, **context))


@pytest.mark.parametrize("current", [Mode.JUMP, Mode.INT3])
def test_sites_of_one_plan_take_each_step_together_and_in_the_order_of_addresses(
    current: Mode,
) -> None:
    sites = [make_site(Kind.JUMP, address=0x1000 + 0x40 * n) for n in (2, 0, 1)]
    states = [make_state(Kind.JUMP, current, site=site) for site in sites]
    goal = Mode.INT3 if current is Mode.JUMP else Mode.JUMP

    edits = changes(on(states, goal))

    steps = [edit.step for edit in edits]
    assert steps == sorted(steps)
    assert len(set(steps)) == 2
    for step in set(steps):
        places = [edit.address for edit in edits if edit.step == step]
        assert len(places) == 3
        assert places == sorted(places)


def test_the_slot_comes_steps_before_the_code_that_opens_and_after_the_code_that_closes() -> None:
    state = make_state(Kind.JUMP, None)

    opening = on([state]).edits
    closing = off([make_state(Kind.JUMP, Mode.JUMP)]).edits

    assert [(edit.what.split(": ")[1], edit.step) for edit in opening] == [
        ("slot.data", 0), ("slot.probe", 1), ("jump site jump", 2),
    ]  # fmt: skip
    assert [(edit.code, edit.step) for edit in closing] == [(True, 0), (False, 1)]


# ---- under threads that run ----------------------------------------------------------------------


@pytest.mark.parametrize("strategy", [MEMBARRIER, NONE])
@pytest.mark.parametrize("kind", SWITCHABLE)
def test_from_outside_only_slots_that_nobody_reads_are_written_under_threads(
    kind: Kind, strategy: Strategy
) -> None:
    """A pointer or sentinel site reads its slot whenever it is come by."""
    states = [make_state(kind, None)]

    plan = plan_on(states, {SLOT: BINDING}, ours=OURS, strategy=strategy)

    if has_head(kind):
        assert isinstance(plan, Plan)
        assert len(plan.edits) == 3
        assert not any(edit.store for edit in plan.edits)
    else:
        assert "use --quiesce stop" in refusal(plan)


@pytest.mark.parametrize("strategy", [MEMBARRIER, SIGNALS, NONE])
@pytest.mark.parametrize("kind", SWITCHABLE)
def test_in_our_own_process_every_slot_is_stored_to(kind: Kind, strategy: Strategy) -> None:
    edits = on([make_state(kind, None)], strategy=strategy, own=True).edits

    assert [edit.store for edit in edits] == [not edit.code for edit in edits]


@pytest.mark.parametrize("strategy", [MEMBARRIER, NONE])
def test_the_slot_of_an_open_site_is_not_changed_from_outside_under_threads(
    strategy: Strategy,
) -> None:
    state = make_state(Kind.JUMP, Mode.JUMP, probe=OTHER_PROBE)

    plan = plan_on([state], {SLOT: BINDING}, ours=OURS, strategy=strategy)

    assert "kv_get: slot.probe" in refusal(plan)


@pytest.mark.parametrize("strategy", [MEMBARRIER, NONE])
def test_a_slot_is_not_quiet_while_any_of_its_sites_is_open(strategy: Strategy) -> None:
    first, second = (make_site(Kind.JUMP, address=address) for address in (0x1000, 0x1040))
    closed = SiteState(first, None, OTHER_PROBE, ENTRY)
    opened = make_state(Kind.JUMP, Mode.JUMP, site=second, probe=OTHER_PROBE)

    for states in ([closed, opened], [opened, closed]):
        plan = plan_on(states, {SLOT: BINDING}, ours=OURS, strategy=strategy)
        assert "slot.probe" in refusal(plan)
    alone = plan_on([closed], {SLOT: BINDING}, ours=OURS, strategy=strategy)
    assert isinstance(alone, Plan)


@pytest.mark.parametrize("strategy", [MEMBARRIER, NONE])
@pytest.mark.parametrize("kind", [kind for kind in SWITCHABLE if has_head(kind)])
def test_switching_off_from_outside_under_threads_leaves_the_probe(
    kind: Kind, strategy: Strategy
) -> None:
    state = make_state(kind, modes(kind)[0])
    memory = memory_of(state)

    plan = off([state], strategy=strategy)
    apply(plan, memory)

    assert [edit.code for edit in plan.edits] == [True]
    assert see(memory, state.site)[1:4] == (None, PROBE, ENTRY)
    # ... which is ours when it is switched on again, by anybody
    assert [edit.code for edit in changes(on([see(memory, state.site)], strategy=strategy))] == [
        True
    ]
    assert off([see(memory, state.site)], strategy=strategy).edits == ()
    # ... and goes when threads stand
    assert [edit.address for edit in off([see(memory, state.site)]).edits] == [SLOT + SLOT_PROBE]


@pytest.mark.parametrize("strategy", [MEMBARRIER, NONE])
@pytest.mark.parametrize("current", [None, Mode.JUMP])
def test_a_probe_in_c_is_not_switched_off_from_outside_under_threads(
    strategy: Strategy, current: Mode | None
) -> None:
    """A thread between the open site and the count of those inside would find it afterwards."""
    probe = RemoteAddress(PROBE | PROBE_COUNTED)
    state = SiteState(make_site(Kind.JUMP), current, probe, ENTRY)

    plan = plan_off([state], ours={probe}, strategy=strategy)

    assert "--quiesce stop" in refusal(plan)
    for other in (plan_off([state], ours={probe}),
                  plan_off([state], ours={probe}, strategy=strategy, own=True)):  # fmt: skip
        assert isinstance(other, Plan)
        assert other.edits[-1].address == SLOT + SLOT_PROBE


@pytest.mark.parametrize("kind", [Kind.POINTER, Kind.SENTINEL])
@pytest.mark.parametrize("strategy", [MEMBARRIER, NONE])
def test_what_the_slot_alone_switches_is_not_switched_off_from_outside_under_threads(
    kind: Kind, strategy: Strategy
) -> None:
    state = make_state(kind, modes(kind)[0])

    assert "--quiesce stop" in refusal(plan_off([state], ours=OURS, strategy=strategy))
    assert len(off([state], strategy=strategy, own=True).edits) == 1


@pytest.mark.parametrize("kind", SWITCHABLE)
def test_strategies_are_refused_where_they_cannot_be(kind: Kind) -> None:
    state = make_state(kind, None)

    own = plan_on([state], {SLOT: BINDING}, ours=OURS, strategy=STOP, own=True)
    other = plan_on([state], {SLOT: BINDING}, ours=OURS, strategy=SIGNALS)

    assert "cannot stop all its own threads" in refusal(own)
    assert "no handler of ours" in refusal(other)


# ---- several sites -------------------------------------------------------------------------------


def test_sites_that_share_a_slot_have_it_edited_once() -> None:
    sites = [make_site(Kind.JUMP, address=0x1000 + 0x40 * n) for n in range(3)]
    states = [make_state(Kind.JUMP, None, site=site) for site in sites]

    plan = on(states)

    assert [edit.code for edit in plan.edits] == [False, False, True, True, True]
    memory = memory_of(*states)
    apply(plan, memory)
    back = off([see(memory, site) for site in sites])
    assert [edit.code for edit in back.edits] == [True, True, True, False]
    apply(back, memory)
    assert all(see(memory, site).mode is None for site in sites)


def test_all_slots_are_ready_before_any_code_is_opened() -> None:
    sites = [
        make_site(kind, address=0x1000 * (n + 1), slot=SLOT + 32 * n, marker=f"m{n}")
        for n, kind in enumerate((Kind.JUMP, Kind.NOP, Kind.POINTER, Kind.IMMEDIATE))
    ]

    plan = on([make_state(site.kind, None, site=site) for site in sites])

    assert [edit.code for edit in plan.edits] == [False] * 8 + [True] * 3
    assert plan.title == "switch on 4 markers at 4 sites"


def function(number: int) -> Site:
    """An entry whose stub and slot are made."""
    at, stub = RemoteAddress(0x401000 + 64 * number), RemoteAddress(0x500000)
    form = form_with_stub(FUNCTION, bytes.fromhex("5548 89e5 90"), at, stub)
    slot = RemoteAddress(SLOT + 64 * number)
    body = Body(slot, stub, RemoteAddress(at + 5), preserving=True, covers=5)
    return make_site(Kind.JUMP, marker=f"f{number}")._replace(address=at, form=form, body=body)


def early_words(states: list[SiteState]) -> list[int]:
    """The words of slots that are written before threads are stopped."""
    edits = on(states).edits
    early = [edit.early for edit in edits]
    assert early == sorted(early, reverse=True), "they come first"
    assert not any(edit.code for edit in edits if edit.early)
    last = max((edit.step for edit in edits if edit.early), default=-1)
    assert all(edit.step > last for edit in edits if not edit.early)
    assert [edit.step for edit in edits] == sorted(edit.step for edit in edits)
    return [edit.address for edit in edits if edit.early]


def test_words_of_slots_that_were_never_used_are_written_early() -> None:
    states = [make_state(Kind.JUMP, None, site=function(number)) for number in range(3)]

    assert early_words(states) == [
        SLOT + 64 * number + offset for offset in (SLOT_DATA, SLOT_PROBE) for number in range(3)
    ]
    assert [step.verb for step in on(states).steps()].index(Verb.QUIESCE) == 11
    check_every_step(on(states[:1]), states[0])


def test_many_such_words_are_a_run_of_those_of_each_site() -> None:
    states = [make_state(Kind.JUMP, None, site=function(number)) for number in range(MANY)]

    edits = on(states).edits

    assert isinstance(edits, Runs)
    assert [isinstance(part, Run) for part in edits.parts] == [True, True, False]
    assert Counter(edits) == Counter(edit for state in states for edit in on([state]).edits)
    assert early_words(states) == [
        SLOT + 64 * number + offset for offset in (SLOT_DATA, SLOT_PROBE) for number in range(MANY)
    ]
    assert pack(edits) == pack(tuple(edits))


@pytest.mark.parametrize(
    "used", ["data", "probe", "token", "stash", "takes", "code_mode", "marker"]
)
def test_no_other_words_are_written_early(used: str) -> None:
    """A thread may be on its way to the slot, and that of a marker may go with its file."""
    new = make_state(Kind.JUMP, None, site=function(0))
    known = {"data": ENTRY, "probe": OTHER_PROBE, "token": 7, "code_mode": Mode.JUMP}
    known |= {"stash": 0x10000, "takes": PROBE}
    other = make_state(Kind.JUMP, None, site=function(1))
    if used == "marker":
        other = make_state(Kind.JUMP, None, site=make_site(Kind.JUMP, slot=SLOT + 64))
    else:
        other = other._replace(**{used: known[used]})

    assert early_words([other, new]) == [SLOT + SLOT_DATA, SLOT + SLOT_PROBE]
    assert not early_words([other])


def test_sites_that_are_half_on_are_completed() -> None:
    first, second = (make_site(Kind.JUMP, address=address) for address in (0x1000, 0x1040))
    states = [
        make_state(Kind.JUMP, Mode.JUMP, site=first),
        SiteState(second, None, PROBE, ENTRY),
    ]

    assert [edit.address for edit in changes(on(states))] == [second.address + 1]
    assert off(states).edits[0].address == first.address + 1


# ---- refusals ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "mode"), [(k, m) for k in SWITCHABLE for m in Mode if m not in modes(k)]
)
def test_a_mode_that_the_kind_does_not_have_is_refused_by_name(kind: Kind, mode: Mode) -> None:
    plan = plan_on([make_state(kind, None)], {SLOT: BINDING}, mode=mode, ours=OURS)

    possible = " or ".join(map(str, modes(kind)))
    assert refusal(plan) == (
        f"kv_get is compiled as {kind} (kv.c:7), which can be switched with {possible}, "
        f"not with {mode}"
    )


def test_a_direct_site_is_refused_both_ways() -> None:
    state = SiteState(make_site(Kind.DIRECT), None, RemoteAddress(0), RemoteAddress(0))

    assert "always calls its probe" in refusal(plan_on([state], {}))
    assert "always calls its probe" in refusal(plan_off([state]))


@pytest.mark.parametrize("kind", SWITCHABLE)
def test_a_probe_of_the_program_itself_is_refused_both_ways(kind: Kind) -> None:
    state = make_state(kind, modes(kind)[0], probe=RemoteAddress(0xBAD0))

    for plan in (plan_on([state], {SLOT: BINDING}, ours=OURS), plan_off([state], ours=OURS)):
        assert "has a probe of the program itself at 0xbad0" in refusal(plan)


def direct_state() -> SiteState:
    site = make_site(Kind.DIRECT, address=0x3000, marker="kv_direct")
    return SiteState(site, None, RemoteAddress(0), RemoteAddress(0))


def owned_state() -> SiteState:
    site = make_site(Kind.JUMP, address=0x4000, slot=SLOT + 32, marker="kv_owned")
    return make_state(Kind.JUMP, Mode.JUMP, site=site, probe=RemoteAddress(0xBAD0))


def shared_state() -> SiteState:
    site = make_site(Kind.JUMP, address=0x5000, slot=SLOT + 64, marker="kv_shared")
    return make_state(Kind.JUMP, None, site=site)._replace(is_shared=True)


def altered_state() -> SiteState:
    site = make_site(Kind.JUMP, address=0x6000, slot=SLOT + 96, marker="kv_altered")
    problem = UnexpectedBytes(site.address, b"\xeb\x15", b"\xeb\x05")
    return make_state(Kind.JUMP, None, site=site)._replace(problem=problem)


def two_format_states() -> list[SiteState]:
    first, second = (
        make_site(Kind.JUMP, address=address, slot=SLOT + 128, marker="kv_two")
        for address in (0x7000, 0x7040)
    )
    second = second._replace(signature=second.signature._replace(format="another %d"))
    return [make_state(Kind.JUMP, None, site=site) for site in (first, second)]


NEVER_ON = [direct_state(), owned_state(), shared_state(), *two_format_states()]
NOT_OURS_TO_CLOSE = [direct_state(), owned_state(), shared_state(), altered_state()]


def names(plan: Plan) -> list[str]:
    return [marker.marker for marker in plan.left_out]


def places(plan: Plan) -> set[int]:
    return {edit.address for edit in plan.edits}


@pytest.mark.parametrize("first", [True, False])
def test_what_can_never_be_switched_on_is_left_out_by_name_beside_others(first: bool) -> None:
    state = make_state(Kind.JUMP, None)
    states = [state, *NEVER_ON] if first else [*NEVER_ON, state]

    plan = on(states)

    assert names(plan) == ["kv_direct", "kv_owned", "kv_shared", "kv_two"]
    assert all(marker.marker in marker.sentence for marker in plan.left_out)
    assert places(plan) == places(on([state]))
    assert plan.title == "switch on 1 marker at 1 site"


def test_what_is_left_out_is_named_as_it_is_written_in_cxx() -> None:
    site = make_site(Kind.JUMP)
    form = site.form._replace(closed="cannot be", reason=Reason.NEEDS_BREAKPOINT)
    signature = site.signature._replace(name="func:_ZN2ns4stepEi:return")
    site = site._replace(form=form, signature=signature)
    state = SiteState(site, None, RemoteAddress(0), RemoteAddress(0))

    refused = plan_on([state], {})

    assert isinstance(refused, Refusal)
    assert refused.reason is Reason.NEEDS_BREAKPOINT
    assert refused.sentence.startswith("func:ns::step(int):return (")


def test_what_is_not_ours_to_close_is_left_out_by_name_beside_others() -> None:
    state = make_state(Kind.JUMP, Mode.JUMP)

    plan = off([*NOT_OURS_TO_CLOSE, state])

    assert names(plan) == ["kv_direct", "kv_owned", "kv_shared", "kv_altered"]
    assert [marker.marker for marker in plan.left_out if marker.lasts] == ["kv_direct", "kv_shared"]
    assert places(plan) == places(off([state]))


def test_where_nothing_else_matches_the_first_reason_is_the_refusal() -> None:
    for state in NEVER_ON[:3]:
        assert state.site.marker in refusal(plan_on([state], {}, ours=OURS))
    assert "different formats" in refusal(plan_on(two_format_states(), {}, ours=OURS))
    assert "kv_direct" in refusal(plan_on(NEVER_ON, {}, ours=OURS))
    for state in NOT_OURS_TO_CLOSE:
        assert f"{state.site.address:#x}" in refusal(plan_off([state], ours=OURS)) or (
            state.site.marker in refusal(plan_off([state], ours=OURS))
        )


def test_an_altered_site_refuses_all_that_is_switched_on() -> None:
    states = [make_state(Kind.JUMP, None), altered_state()]

    assert "0x6000 holds eb 15" in refusal(plan_on(states, {SLOT: BINDING}, ours=OURS))


def test_a_marker_is_switched_on_at_all_its_sites_or_left_out() -> None:
    state, beside = make_state(Kind.JUMP, None), direct_state()
    other = make_site(Kind.JUMP, address=0x8000, slot=SLOT + 160, marker="kv_direct")

    plan = on([state, beside, make_state(Kind.JUMP, None, site=other)])

    assert names(plan) == ["kv_direct"]
    assert places(plan) == places(on([state]))
    assert "always calls its probe" in refusal(
        plan_on([beside, make_state(Kind.JUMP, None, site=other)], {}, ours=OURS)
    )


def test_a_marker_is_switched_off_where_it_can_be() -> None:
    other = make_site(Kind.JUMP, address=0x8000, slot=SLOT + 160, marker="kv_direct")
    state = make_state(Kind.JUMP, Mode.JUMP, site=other)

    plan = off([direct_state(), state])

    assert names(plan) == ["kv_direct"]
    assert places(plan) == places(off([state]))


def test_the_slot_of_an_altered_site_is_emptied_with_that_of_its_sound_ones() -> None:
    sound = make_state(Kind.JUMP, Mode.JUMP)
    altered = make_state(Kind.JUMP, Mode.JUMP, site=make_site(Kind.JUMP, address=0x1040))
    altered = altered._replace(code_mode=None, problem=UnexpectedBytes(0x1040, b"", b""))

    assert places(off([altered, sound])) == places(off([sound]))


def test_one_refused_site_refuses_all() -> None:
    states = [make_state(Kind.JUMP, None), make_state(Kind.POINTER, None)]

    assert "not with int3" in refusal(plan_on(states, {SLOT: BINDING}, mode=Mode.INT3))


def test_reasons_can_be_counted() -> None:
    states = [make_state(Kind.JUMP, None), direct_state(), owned_state(), shared_state()]

    plan = on([*states, *two_format_states()])

    assert {marker.reason for marker in plan.left_out if not marker.lasts} == {
        Reason.PROGRAMS_PROBE
    }
    assert Counter(marker.reason for marker in plan.left_out) == {
        Reason.ALWAYS_ON: 1,
        Reason.PROGRAMS_PROBE: 1,
        Reason.SHARED_CODE: 1,
        Reason.TWO_FORMATS: 1,
    }


@pytest.mark.parametrize("is_breakpoint", [False, True])
def test_what_another_tool_did_is_a_reason_of_its_own(is_breakpoint: bool) -> None:
    problem = UnexpectedBytes(0x1000, b"\xcc", b"\xeb", is_breakpoint=is_breakpoint)
    altered = make_state(Kind.JUMP, None)._replace(problem=problem)
    expected = Reason.FOREIGN_BREAKPOINT if is_breakpoint else Reason.ALTERED_CODE

    opening, closing = plan_on([altered], {}, ours=OURS), plan_off([altered], ours=OURS)

    assert isinstance(opening, Refusal) and isinstance(closing, Refusal)
    assert opening.reason is closing.reason is expected
    assert "0x1000" in opening.sentence


@pytest.mark.parametrize("mode", [Mode.JUMP, Mode.INT3])
def test_a_site_among_thousands_takes_a_few_calls(mode: Mode) -> None:
    """What holds for one of them is asked for once: the protocol, the mode, the marker."""
    lot = make_lot(Kind.JUMP, 1000)
    dormant = make_state(Kind.JUMP, None, site=lot.first)._replace(alike=lot)
    opened = make_state(Kind.JUMP, mode, site=lot.first)._replace(alike=lot)

    of_on = calls_of(lambda: on([dormant], mode))
    of_off = calls_of(lambda: off([opened]))

    assert of_on < 5 * lot.size
    assert of_off < 4 * lot.size


@pytest.mark.parametrize("mode", [Mode.JUMP, Mode.INT3])
def test_sites_of_a_lot_get_the_plan_of_each_one_alone(mode: Mode) -> None:
    lot = make_lot(Kind.JUMP, 50)
    singly = [make_state(Kind.JUMP, None, site=site) for site in lot.sites()]
    together = make_state(Kind.JUMP, None, site=lot.first)._replace(alike=lot)
    open_singly = [make_state(Kind.JUMP, mode, site=site) for site in lot.sites()]
    open_together = make_state(Kind.JUMP, mode, site=lot.first)._replace(alike=lot)

    assert on([together], mode) == on(singly, mode)
    assert on([open_together], mode) == on(open_singly, mode)
    assert off([open_together]) == off(open_singly)
    assert on([together], mode).title == "switch on 1 marker at 50 sites"


def test_sites_that_differ_in_their_addresses_only_get_the_edits_of_each_one_alone() -> None:
    sites = [make_site(Kind.NOP, address=0x400000 + 32 * number) for number in range(50)]
    states = [make_state(Kind.NOP, None, site=site) for site in sites]

    edits = on(states, Mode.INT3).edits
    alone = [edit for state in states for edit in on([state], Mode.INT3).edits]

    assert set(edits) == set(alone)
