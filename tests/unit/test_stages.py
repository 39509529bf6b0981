"""Plans in stages, on made-up sites: together the stages are the plan, and between them no thread
can meet what no step of a protocol shows."""

from __future__ import annotations

from itertools import product

import pytest

from markerjit.memory import FakeMemory
from markerjit.model import Kind, Mode
from markerjit.patch.plan import Plan, Refusal, plan_on
from markerjit.patch.stages import Stages, between, stages_of
from markerjit.patch.steps import Step, Verb
from markerjit.quiesce.strategies import MEMBARRIER, NONE, STOP, Strategy
from markerjit.x86.forms import mode_of
from tests.support.made_sites import (
    BINDING,
    SLOT,
    SWITCHABLE,
    has_head,
    make_state,
    memory_of,
    modes,
    off,
    on,
)

CHANGES = [
    (kind, current, goal)
    for kind in filter(has_head, SWITCHABLE)
    for current, goal in product((None, *modes(kind)), (None, *modes(kind)))
    if current is not goal
]


def plan_of(kind: Kind, current: Mode | None, goal: Mode | None) -> Plan:
    state = make_state(kind, current)
    return on([state], goal, strategy=MEMBARRIER) if goal else off([state], strategy=MEMBARRIER)


def write(steps: tuple[Step, ...], memory: FakeMemory) -> None:
    """Write what the steps write; the old bytes must be there."""
    for step in steps:
        if step.verb is Verb.WRITE:
            assert step.place is not None
            assert memory.read(step.place, len(step.old)) == step.old
            memory.write(step.place, step.new)


def sentences(stages: Stages) -> list[list[str]]:
    return [[step.sentence for step in stage.steps] for stage in stages.stages]


def test_int3_to_jump_is_left_at_the_breakpoint_between_two_stages() -> None:
    stages = stages_of(plan_of(Kind.JUMP, Mode.INT3, Mode.JUMP), STOP)

    assert [step.verb for step in stages.opening] == [Verb.ENTER, Verb.JOURNAL]
    assert sentences(stages) == [
        [
            f"quiesce: {STOP.explained}",
            "compare the old bytes at 3 places; give up if any differs",
            "write 0x1001: 05 -> 00  (kv_get: jump site jump)",
            "read 1 place back; if any differs, put all old bytes back",
            "resume: every thread goes on where it stood",
        ],
        [
            f"quiesce: {STOP.explained}",
            "compare the old bytes at 3 places; give up if any differs",
            "write 0x1000: cc -> eb  (kv_get: jump site jump)",
            "read 1 place back; if any differs, put all old bytes back",
            "resume: every thread goes on where it stood",
            "empty the journal",
        ],
    ]


@pytest.mark.parametrize(("kind", "current", "goal"), CHANGES)
@pytest.mark.parametrize("strategy", [STOP, MEMBARRIER], ids=["stop", "membarrier"])
def test_the_stages_are_the_plan_and_each_is_made_by_the_strategy(
    kind: Kind, current: Mode | None, goal: Mode | None, strategy: Strategy
) -> None:
    plan = plan_of(kind, current, goal)
    stages = stages_of(plan, strategy)

    edits = [edit for stage in stages.stages for edit in stage.plan.edits]
    steps = [*stages.opening, *(step for stage in stages.stages for step in stage.steps)]

    assert [edit for edit in edits if edit.old != edit.new] == [
        edit._replace(again=False) for edit in plan.edits if edit.old != edit.new
    ]
    assert all(stage.plan.strategy is strategy for stage in stages.stages)
    assert [step.number for step in steps] == list(range(1, len(steps) + 1))
    assert [step.verb for step in steps].count(Verb.JOURNAL) == 1
    assert steps[-1].verb is Verb.CLOSE


@pytest.mark.parametrize(("kind", "current", "goal"), CHANGES)
def test_after_each_stage_a_thread_finds_an_instruction_of_the_form(
    kind: Kind, current: Mode | None, goal: Mode | None
) -> None:
    state = make_state(kind, current)
    memory, form = memory_of(state), state.site.form

    for stage in stages_of(plan_of(kind, current, goal), STOP).stages:
        write(stage.steps, memory)

        head = memory.read(state.site.address, len(form.head))
        mode_of(form, head)  # raises for bytes that are neither
    after = form.ways[goal] if goal else form.head
    assert memory.read(state.site.address, len(form.head)) == after


def test_a_slot_that_decides_is_read_by_threads_and_has_no_stages_from_outside() -> None:
    refusal = plan_on([make_state(Kind.POINTER, None)], {SLOT: BINDING}, strategy=MEMBARRIER)

    assert isinstance(refusal, Refusal)
    assert "--quiesce stop" in refusal.sentence


@pytest.mark.parametrize(("kind", "current", "goal"), CHANGES)
def test_a_stage_compares_every_place_of_the_plan(
    kind: Kind, current: Mode | None, goal: Mode | None
) -> None:
    plan, memory = plan_of(kind, current, goal), memory_of(make_state(kind, current))
    places = {edit.address + at for edit in plan.edits for at in range(len(edit.old))}

    for stage in stages_of(plan, STOP).stages:
        edits = stage.plan.edits
        compared = [edit.address + at for edit in edits for at in range(len(edit.old))]

        assert sorted(compared) == sorted(places)
        for edit in edits:
            assert memory.read(edit.address, len(edit.old)) == edit.old
        write(stage.steps, memory)


def test_a_plan_with_nothing_to_write_has_no_stages() -> None:
    assert stages_of(plan_of(Kind.NOP, Mode.NOP, Mode.NOP), STOP) == ((), ())


def test_a_plan_that_needs_all_threads_to_stand_is_none_in_stages() -> None:
    with pytest.raises(ValueError, match="threads stand"):
        stages_of(on([make_state(Kind.JUMP, None)]), STOP)
    assert between(STOP) is MEMBARRIER
    assert between(NONE) is NONE
