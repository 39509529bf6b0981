"""The protocols byte by byte, and what the strategies let them do. Nothing is touched."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from markerjit.memory import FakeMemory
from markerjit.model import Change, Edit, RemoteAddress
from markerjit.patch.protocol import (
    Context,
    Refusal,
    aligned_store,
    breakpoint,
    byte_flip,
    plan_change,
    pointer_swap,
    whole_span,
)
from markerjit.quiesce.strategies import (
    MEMBARRIER,
    NONE,
    SIGNALS,
    STOP,
    STRATEGIES,
    Strategy,
    default_strategy,
)
from markerjit.x86.forms import INT3

PAGE = 4096
HERE = RemoteAddress(0x401000)
BODY = RemoteAddress(0x402000)
TRAP = bytes([INT3])

# Every strategy where it can be: who, and whether the process is our own.
WAYS = [(STOP, False), (MEMBARRIER, False), (NONE, False), (MEMBARRIER, True), (SIGNALS, True),
        (NONE, True)]  # fmt: skip
SYNCHRONISED = [way for way in WAYS if way[0] is not NONE]
RUNNING = [way for way in WAYS if way[0] is not STOP]
# And where it cannot.
IMPOSSIBLE = [(STOP, True), (SIGNALS, False)]


def code(old: str, new: str, at: int = HERE, *, body: RemoteAddress | None = BODY) -> Change:
    return Change(
        RemoteAddress(at), bytes.fromhex(old), bytes.fromhex(new), "it", True, completion=body
    )


def data(old: int, new: int, at: int = HERE, *, size: int = 8, quiet: bool = False) -> Change:
    words = (number.to_bytes(size, "little") for number in (old, new))
    return Change(RemoteAddress(at), *words, "it", False, quiet)


def planned(answer: tuple[Edit, ...] | Refusal) -> list[tuple[int, str, str, int]]:
    """Offset from HERE, old and new bytes, and the step of each edit."""
    assert not isinstance(answer, Refusal), answer.sentence
    return [(edit.address - HERE, edit.old.hex(), edit.new.hex(), edit.step) for edit in answer]


def refused(answer: tuple[Edit, ...] | Refusal) -> str:
    assert isinstance(answer, Refusal)
    assert not answer.try_again
    return answer.sentence


# ---- byte flip -----------------------------------------------------------------------------------


@pytest.mark.parametrize(("strategy", "own"), WAYS)
@pytest.mark.parametrize("at", [HERE, HERE + 7, HERE + 63, HERE + PAGE - 1])
def test_a_byte_is_one_edit_at_any_place_by_every_strategy(
    strategy: Strategy, own: bool, at: int
) -> None:
    answer = byte_flip.plan(code("05", "00", at), Context(strategy, own))

    assert planned(answer) == [(at - HERE, "05", "00", 0)]
    assert answer[0].code
    assert not answer[0].store  # text is not writable, in our own process either


@pytest.mark.parametrize(("old", "new"), [("", ""), ("eb05", "eb00")])
def test_more_or_less_than_a_byte_is_no_byte_flip(old: str, new: str) -> None:
    assert "are not one" in refused(byte_flip.plan(code(old, new), Context(STOP)))


# ---- pointer swap --------------------------------------------------------------------------------


@pytest.mark.parametrize(("strategy", "own"), [way for way in WAYS if way[1] or way[0] is STOP])
def test_a_pointer_is_one_edit_and_a_store_in_our_own_process(
    strategy: Strategy, own: bool
) -> None:
    answer = pointer_swap.plan(data(1, 2), Context(strategy, own))

    assert planned(answer) == [(0, "01" + 14 * "0", "02" + 14 * "0", 0)]
    assert not answer[0].code
    assert answer[0].store == own


@pytest.mark.parametrize("strategy", [MEMBARRIER, NONE])
def test_from_outside_a_pointer_that_threads_may_read_is_for_threads_that_stand(
    strategy: Strategy,
) -> None:
    assert "from outside it is not one store; use --quiesce stop" in refused(
        pointer_swap.plan(data(1, 2), Context(strategy))
    )
    assert planned(pointer_swap.plan(data(1, 2, quiet=True), Context(strategy)))


@pytest.mark.parametrize(
    "change",
    [data(1, 2, HERE + 4), data(1, 2, HERE + 1), data(1, 2, size=4), code("00" * 8, "01" * 8)],
)
@pytest.mark.parametrize(("strategy", "own"), WAYS)
def test_what_is_no_aligned_word_of_data_is_no_pointer(
    change: Change, strategy: Strategy, own: bool
) -> None:
    assert "not an aligned word" in refused(pointer_swap.plan(change, Context(strategy, own)))


# ---- aligned store -------------------------------------------------------------------------------


@pytest.mark.parametrize(("strategy", "own"), [way for way in WAYS if way[1]])
@pytest.mark.parametrize("size", [2, 4, 8])
@pytest.mark.parametrize("at", [0, 8, 56, PAGE - 8])
def test_an_aligned_word_of_writable_code_is_one_store(
    strategy: Strategy, own: bool, size: int, at: int
) -> None:
    change = code("90" * size, "cc" * size, HERE + at)

    answer = aligned_store.plan(change, Context(strategy, own, writable=True))

    assert planned(answer) == [(at, "90" * size, "cc" * size, 0)]
    assert answer[0].store
    assert answer[0].code


@pytest.mark.parametrize(
    ("size", "at"), [(2, 1), (2, 63), (4, 2), (4, 62), (8, 4), (8, 60), (3, 0), (5, 0), (16, 0)]
)
def test_a_span_that_is_no_aligned_word_is_not_stored(size: int, at: int) -> None:
    change = code("90" * size, "cc" * size, HERE + at)

    answer = aligned_store.plan(change, Context(MEMBARRIER, True, writable=True))

    assert "are not an aligned word" in refused(answer)


@pytest.mark.parametrize(
    "context",
    [Context(STOP, writable=True), Context(MEMBARRIER, writable=True), Context(MEMBARRIER, True)],
)
def test_only_our_own_writable_memory_is_stored_to(context: Context) -> None:
    assert "only writable memory of this process" in refused(
        aligned_store.plan(code("9090", "eb00"), context)
    )


# ---- breakpoint ----------------------------------------------------------------------------------


@pytest.mark.parametrize(("strategy", "own"), SYNCHRONISED)
@pytest.mark.parametrize(
    ("old", "new", "edits"),
    [
        # breakpoint, tail, first byte
        ("0f1f440000", "e912345678",
         [(0, "0f", "cc", 0), (1, "1f440000", "12345678", 1), (0, "cc", "e9", 2)]),
        ("eb05", "9090", [(0, "eb", "cc", 0), (1, "05", "90", 1), (0, "cc", "90", 2)]),
        # the tail is right already
        ("eb05", "a905", [(0, "eb", "cc", 0), (0, "cc", "a9", 2)]),
        # it begins with a breakpoint, or ends with one, or both
        ("cc05", "eb00", [(1, "05", "00", 1), (0, "cc", "eb", 2)]),
        ("eb00", "cc05", [(0, "eb", "cc", 0), (1, "00", "05", 1)]),
        ("cc00", "cc05", [(1, "00", "05", 1)]),
        ("cc05", "eb05", [(0, "cc", "eb", 2)]),
        ("eb05", "cc05", [(0, "eb", "cc", 0)]),
    ],
)  # fmt: skip
def test_a_breakpoint_is_over_the_tail_while_it_is_written(
    strategy: Strategy, own: bool, old: str, new: str, edits: list[tuple[int, str, str, int]]
) -> None:
    answer = breakpoint.plan(code(old, new), Context(strategy, own, handler=True))

    assert planned(answer) == edits
    assert all(edit.code and not edit.store for edit in answer)


@pytest.mark.parametrize(
    ("old", "new", "again"),
    [("eb05", "9090", [False, False, True]), ("cc05", "eb00", [False, False]),
     ("eb00", "cc05", [False, False]), ("eb05", "a905", [False, True])],
)  # fmt: skip
def test_only_a_byte_that_an_earlier_step_wrote_is_compared_later(
    old: str, new: str, again: list[bool]
) -> None:
    answer = breakpoint.plan(code(old, new), Context(STOP, handler=True))

    assert [edit.again for edit in answer] == again


spans = st.integers(2, 16).flatmap(
    lambda size: st.tuples(*[st.binary(min_size=size, max_size=size)] * 2)
)
first_bytes = st.sampled_from([TRAP, b"\xeb", b"\x90"])


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(spans, first_bytes, first_bytes)
def test_no_step_of_a_breakpoint_shows_a_thread_half_of_an_instruction(
    span: tuple[bytes, bytes], first: bytes, last: bytes
) -> None:
    old, new = first + span[0][1:], last + span[1][1:]
    memory = FakeMemory({HERE: old})

    answer = breakpoint.plan(
        Change(HERE, old, new, "it", True, completion=BODY), Context(STOP, handler=True)
    )

    assert not isinstance(answer, Refusal)
    steps = [edit.step for edit in answer]
    assert steps == sorted(set(steps))  # one edit a step
    for edit in answer:
        assert memory.read(edit.address, len(edit.old)) == edit.old
        memory.write(edit.address, edit.new)
        now = memory.read(HERE, len(old))
        assert now[:1] == TRAP or now in (old, new)
    assert memory.read(HERE, len(old)) == new


@pytest.mark.parametrize(
    ("change", "handler", "why"),
    [
        (code("eb05", "9090"), False, "nothing would complete"),
        (code("eb05", "9090", body=None), True, "nothing would complete"),
        (code("05", "00"), True, "no span of code"),
        (data(1, 2), True, "no span of code"),
    ],
)
def test_a_breakpoint_that_nobody_could_complete_is_refused(
    change: Change, handler: bool, why: str
) -> None:
    assert why in refused(breakpoint.plan(change, Context(STOP, handler=handler)))


@pytest.mark.parametrize("own", [False, True])
def test_steps_with_nothing_between_them_are_refused(own: bool) -> None:
    """Without the fence a thread may run the new tail behind the old first byte."""
    context = Context(NONE, own, handler=True)

    assert "synchronised between them" in refused(breakpoint.plan(code("eb05", "9090"), context))
    answer = breakpoint.plan(code("eb05", "cc05"), context)
    assert planned(answer) == [(0, "eb", "cc", 0)]


# ---- whole span ----------------------------------------------------------------------------------


@pytest.mark.parametrize(("at", "size"), [(0, 2), (3, 5), (60, 16), (PAGE - 5, 5), (PAGE, 16)])
def test_a_span_is_one_edit_while_all_threads_stand(at: int, size: int) -> None:
    change = code("90" * size, "a9" * size, HERE + at)

    assert planned(whole_span.plan(change, Context(STOP))) == [(at, "90" * size, "a9" * size, 0)]


@pytest.mark.parametrize(("at", "size"), [(PAGE - 1, 2), (PAGE - 4, 5), (PAGE - 15, 16)])
def test_a_span_over_the_border_of_a_page_is_refused(at: int, size: int) -> None:
    change = code("90" * size, "a9" * size, HERE + at)

    assert "crosses a page" in refused(whole_span.plan(change, Context(STOP)))


@pytest.mark.parametrize(("strategy", "own"), RUNNING)
def test_a_span_is_not_written_at_once_while_threads_run(strategy: Strategy, own: bool) -> None:
    answer = whole_span.plan(code("9090", "a9a9"), Context(strategy, own, True, True))

    assert "threads run; use --quiesce stop" in refused(answer)


# ---- the choice ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "context", "edits"),
    [
        (code("05", "00"), Context(NONE), 1),
        (data(1, 2), Context(STOP), 1),
        (code("9090", "eb00"), Context(MEMBARRIER, True, True, True), 1),  # one store
        (code("9090", "eb00"), Context(MEMBARRIER, True, True), 3),  # breakpoint
        (code("9090", "eb00"), Context(STOP, handler=True), 3),
        (code("9090", "eb00"), Context(STOP), 1),  # whole span
        (code("9090", "eb00", PAGE - 1), Context(STOP, handler=True), 3),
    ],
)
def test_the_safest_protocol_that_covers_a_change_makes_it(
    change: Change, context: Context, edits: int
) -> None:
    answer = plan_change(change, context)

    assert not isinstance(answer, Refusal)
    assert len(answer) == edits


@pytest.mark.parametrize(
    ("change", "context", "why"),
    [
        (code("9090", "eb00"), Context(MEMBARRIER), "2 bytes change at once, and threads run"),
        (code("9090", "eb00", PAGE - 1), Context(STOP), "has no breakpoint to lean on"),
        (data(1, 2, HERE + 1), Context(STOP), "not an aligned word"),
        (data(1, 2), Context(NONE), "quiescence none does not cover it"),
    ],
)
def test_a_change_that_nothing_covers_is_refused_with_the_last_reason(
    change: Change, context: Context, why: str
) -> None:
    assert why in refused(plan_change(change, context))


@pytest.mark.parametrize(("strategy", "own"), IMPOSSIBLE)
@pytest.mark.parametrize("change", [code("05", "00"), code("9090", "eb00"), data(1, 2)])
def test_no_protocol_goes_round_a_strategy_that_cannot_be(
    strategy: Strategy, own: bool, change: Change
) -> None:
    context = Context(strategy, own, True, True)

    assert f"quiescence {strategy.name} does not cover" in refused(
        plan_change(change, context)
    ) or ("threads run" in refused(plan_change(change, context)))


@pytest.mark.parametrize("own", [False, True])
def test_a_word_that_is_not_known_yet_is_planned_as_any_other(own: bool) -> None:
    change = data(1, 2, HERE)._replace(quiet=True)
    context = Context(MEMBARRIER if own else NONE, own)

    (edit,) = plan_change(change._replace(new=b""), context)

    assert plan_change(change, context) == (edit._replace(new=change.new),)
    assert edit.new == b""


def test_a_word_that_is_not_known_yet_is_refused_as_any_other() -> None:
    """So nothing is put into a process for a switch that is refused."""
    change = data(1, 2, HERE)._replace(quiet=False)

    assert refused(plan_change(change._replace(new=b""), Context(NONE))) == refused(
        plan_change(change, Context(NONE))
    )


def test_a_change_of_another_length_is_a_bug_of_ours() -> None:
    with pytest.raises(ValueError, match="2 bytes cannot become 1"):
        plan_change(code("9090", "cc"), Context(STOP))


# ---- strategies ----------------------------------------------------------------------------------


@pytest.mark.parametrize(("strategy", "own"), WAYS)
@pytest.mark.parametrize("change", [code("05", "00"), data(1, 2, quiet=True)])
def test_one_store_is_covered_by_every_strategy(
    strategy: Strategy, own: bool, change: Change
) -> None:
    assert strategy.refusal(change, atomic=True, own=own) is None


@pytest.mark.parametrize(("strategy", "own"), RUNNING)
@pytest.mark.parametrize("change", [code("9090", "eb00"), data(1, 2, quiet=True)])
def test_what_can_be_seen_in_part_is_covered_by_stopping_alone(
    strategy: Strategy, own: bool, change: Change
) -> None:
    assert STOP.refusal(change, atomic=False, own=False) is None
    refusal = strategy.refusal(change, atomic=False, own=own)
    assert refusal is not None
    assert "bytes change while threads run" in refusal


@pytest.mark.parametrize(("strategy", "own"), IMPOSSIBLE)
@pytest.mark.parametrize("atomic", [True, False])
def test_a_strategy_says_whom_it_is_not_for(strategy: Strategy, own: bool, atomic: bool) -> None:
    refusal = strategy.refusal(code("05", "00"), atomic=atomic, own=own)

    assert refusal is not None
    assert "use" in refusal


def test_strategies_have_their_names_and_one_of_them_stops() -> None:
    assert {name: strategy.name for name, strategy in STRATEGIES.items()} == {
        n: n for n in STRATEGIES
    }
    assert [strategy.name for strategy in STRATEGIES.values() if strategy.stops] == ["stop"]
    assert len({strategy.number for strategy in STRATEGIES.values()}) == len(STRATEGIES)


@pytest.mark.parametrize(("own", "strategy"), [(False, STOP), (True, MEMBARRIER)])
def test_the_strategy_where_none_is_named_is_one_that_covers_it(
    own: bool, strategy: Strategy
) -> None:
    assert default_strategy(own=own) is strategy
    assert strategy.refusal(code("05", "00"), atomic=True, own=own) is None
