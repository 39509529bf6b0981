"""Steps of plans on made-up sites: their order, what each proves, and their English."""

from __future__ import annotations

from itertools import product

import pytest

from markerjit.memory import FakeMemory
from markerjit.model import Kind, Mode, RemoteAddress
from markerjit.patch.plan import Edit, Plan, plan_on
from markerjit.patch.steps import Step, Verb
from markerjit.quiesce.strategies import MEMBARRIER, NONE, SIGNALS, STOP, Strategy
from tests.support.made_sites import OURS, SWITCHABLE, make_state, memory_of, modes, off, on

CHANGES = [
    (kind, current, goal)
    for kind in SWITCHABLE
    for current, goal in product((None, *modes(kind)), modes(kind))
]


def verbs(steps: list[Step]) -> list[Verb]:
    return [step.verb for step in steps]


def play(steps: list[Step], memory: FakeMemory) -> None:
    """Write what the steps write; the old bytes must be there."""
    for step in steps:
        if step.verb is Verb.WRITE:
            assert step.place is not None
            assert memory.read(step.place, len(step.old)) == step.old
            memory.write(step.place, step.new)


def test_switching_on_from_outside_step_by_step() -> None:
    steps = list(on([make_state(Kind.JUMP, None)]).steps())

    assert [step.sentence for step in steps] == [
        "enter 1 head into the arena's table of patches",
        "write the 3 edits into the journal",
        f"quiesce: {STOP.explained}",
        "compare the old bytes at 3 places; give up if any differs",
        "write 0x9008: 00 00 00 00 00 00 00 00 -> 00 80 00 00 00 00 00 00  (kv_get: slot.data)",
        "read 1 place back; if any differs, put all old bytes back",
        "write 0x9000: 00 00 00 00 00 00 00 00 -> 00 70 00 00 00 00 00 00  (kv_get: slot.probe)",
        "read 1 place back; if any differs, put all old bytes back",
        "write 0x1001: 05 -> 00  (kv_get: jump site jump)",
        "read 1 place back; if any differs, put all old bytes back",
        "resume: every thread goes on where it stood",
        "empty the journal",
    ]


def test_a_breakpoint_protocol_synchronises_after_each_write_of_code() -> None:
    """From jump to int3 two bytes change: the breakpoint first, and then the tail."""
    steps = list(on([make_state(Kind.JUMP, Mode.JUMP)], Mode.INT3, strategy=MEMBARRIER).steps())

    assert verbs(steps) == [
        Verb.ENTER, Verb.TELL, Verb.JOURNAL, Verb.QUIESCE, Verb.COMPARE,
        Verb.WRITE, Verb.READ_BACK, Verb.SYNCHRONISE,
        Verb.WRITE, Verb.READ_BACK, Verb.SYNCHRONISE,
        Verb.CLOSE,
    ]  # fmt: skip
    assert [(step.place, step.old, step.new) for step in steps if step.place] == [
        (0x1000, b"\xeb", b"\xcc"),
        (0x1001, b"\x00", b"\x05"),
    ]


def test_the_way_back_from_a_breakpoint_compares_its_byte_only_when_it_is_due() -> None:
    """The tail first: the first byte is int3, and stays until the tail is written."""
    steps = list(on([make_state(Kind.JUMP, Mode.INT3)], Mode.JUMP, strategy=MEMBARRIER).steps())

    assert [(step.place, step.new) for step in steps if step.place] == [
        (0x1001, b"\x00"),
        (0x1000, b"\xeb"),
    ]


def test_what_an_earlier_step_writes_is_compared_again() -> None:
    place = RemoteAddress(0x1000)
    plan = Plan(
        "three steps",
        (
            Edit(place, b"\x0f", b"\xcc", "int3", True, step=0),
            Edit(RemoteAddress(place + 1), b"\x1f", b"\x12", "tail", True, step=1),
            Edit(place, b"\xcc", b"\xe9", "first byte", True, step=2, again=True),
        ),
        MEMBARRIER,
    )

    steps = list(plan.steps())
    compared = [step.what for step in steps if step.verb is Verb.COMPARE]

    assert compared == ["2 places", "1 place"]
    assert verbs(steps).index(Verb.WRITE) < verbs(steps).index(Verb.COMPARE, 4)
    assert verbs(steps).count(Verb.SYNCHRONISE) == 3


@pytest.mark.parametrize(("kind", "current", "goal"), CHANGES)
@pytest.mark.parametrize("strategy", [STOP, MEMBARRIER])
def test_the_steps_write_what_the_plan_writes(
    kind: Kind, current: Mode | None, goal: Mode, strategy: Strategy
) -> None:
    state = make_state(kind, current)
    plan = plan_on([state], None, mode=goal, ours=OURS, strategy=strategy)
    if not isinstance(plan, Plan) or plan.needs_runtime:
        plan = on([state], goal)
    by_steps, by_edits = memory_of(state), memory_of(state)

    play(list(plan.steps()), by_steps)
    for edit in plan.edits:
        by_edits.write(edit.address, edit.new)

    for edit in plan.edits:
        read = by_steps.read(edit.address, len(edit.new))
        assert read == by_edits.read(edit.address, len(edit.new))


@pytest.mark.parametrize("strategy", [STOP, MEMBARRIER, SIGNALS, NONE])
def test_each_write_is_in_the_journal_and_is_read_back(strategy: Strategy) -> None:
    own = strategy is SIGNALS
    steps = list(on([make_state(Kind.JUMP, None)], strategy=strategy, own=own).steps())
    written = [number for number, step in enumerate(steps) if step.verb is Verb.WRITE]

    assert written
    assert verbs(steps)[1:4] == [Verb.JOURNAL, Verb.QUIESCE, Verb.COMPARE]
    assert all(steps[number + 1].verb is Verb.READ_BACK for number in written)
    assert verbs(steps).count(Verb.SYNCHRONISE) == bool(strategy.fence)
    assert verbs(steps).count(Verb.RESUME) == strategy.stops
    assert steps[-1].verb is Verb.CLOSE


def test_steps_are_numbered_and_each_proves_something() -> None:
    steps = list(on([make_state(Kind.NOP, None)], Mode.INT3).steps())

    assert [step.number for step in steps] == list(range(1, len(steps) + 1))
    assert all(step.proves for step in steps)


def test_the_handler_is_told_before_a_breakpoint_is_written() -> None:
    steps = list(on([make_state(Kind.NOP, None)], Mode.INT3).steps())

    tell = next(step for step in steps if step.verb is Verb.TELL)
    first = next(step for step in steps if step.verb is Verb.WRITE)
    assert tell.number < first.number
    assert tell.sentence == (
        "tell the SIGTRAP handler where to go from 1 breakpoint; install it if it is not there"
    )
    assert Verb.TELL not in verbs(list(on([make_state(Kind.JUMP, None)]).steps()))


def test_a_plan_to_look_at_begins_with_the_runtime() -> None:
    plan = plan_on([make_state(Kind.JUMP, None)], None)
    assert isinstance(plan, Plan)

    steps = list(plan.steps())

    assert steps[0].verb is Verb.LOAD
    assert "its address in the runtime  (kv_get: slot.data)" in next(
        step.sentence for step in steps if step.verb is Verb.WRITE
    )


def test_a_plan_of_nothing_says_so() -> None:
    steps = list(off([make_state(Kind.JUMP, None)]).steps())

    assert [step.sentence for step in steps] == ["nothing to write: it is so already"]
