"""Code is changed under running threads: never torn, and torn when a step is left out.

A short choice of what `make torture` runs for long. Everything is bounded by flips and not by time,
and flips count when a thread of the victim saw them. What is left out is left out in a victim of
its own, which may die of it.
"""

from __future__ import annotations

import pytest

from tests.support.choice import spacing
from tests.support.programs import make
from tests.torture.combinations import (
    ALLOWED,
    LINE,
    MUST_FAIL,
    PAGE,
    SEEN_ENOUGH,
    WORD,
    Combination,
    Crowd,
    LeftOut,
    inside,
    outside,
)
from tests.torture.driver import Seen, allowed_wrongs, arguments, failed, run, run_left_out
from tests.torture.foreign import switch_foreign
from tests.torture.marks import switch_marks
from tests.torture.victims import victim

pytestmark = [pytest.mark.races, pytest.mark.slow]

SHORTER = spacing(4)
"""So much less is observed where the tests are chosen: `make torture` goes on for long."""

FULL_HOUSE = Crowd(2, births=True, signals=True, libraries=True)

CHOICE = (
    (inside("byte", (64, 1), "byte/mem", "membarrier"), 2000),
    (inside("byte", (4096, 1), "byte/store", "none"), 5000),
    (inside("byte", WORD, "byte/mem", "signals"), 200),
    (inside("nop2", WORD, "word/store", "none"), 5000),
    (inside("nop2", (64, 1), "int3/mem", "membarrier"), 1000),
    (inside("mov5", WORD, "word/store", "membarrier"), 2000),
    (inside("jmp5", LINE, "int3/mem", "membarrier"), 1000),
    (inside("call5", PAGE, "int3/store", "membarrier"), 1000),
    (inside("jmp5", LINE, "int3/mem", "signals"), 100),
    (inside("slot", WORD, "word/store", "none"), 5000),
    (outside("byte", (64, 1), "byte", "stop"), 300),
    (outside("byte", (64, 1), "byte", "none"), 1000),
    (outside("mov5", LINE, "whole", "stop"), 300),
    (outside("span5", LINE, "whole", "stop"), 100),
    (outside("jmp5", LINE, "int3", "membarrier"), 100),
    (outside("slot", WORD, "whole", "none"), 500),
)


@pytest.fixture(scope="module", autouse=True)
def _victim() -> None:
    make("native", "build/torture/victim", "build/targets/truth_plugin.so")


@pytest.mark.parametrize(("combination", "observed"), CHOICE, ids=lambda value: str(value))
def test_no_execution_is_torn(combination: Combination, observed: int) -> None:
    seen = run(combination, lambda seen: seen.transitions >= observed // SHORTER)

    assert allowed_wrongs(combination, seen) == []


def test_no_execution_is_torn_while_threads_signals_and_libraries_come_and_go() -> None:
    combination = inside("jmp5", LINE, "int3/mem", "membarrier", FULL_HOUSE)

    def enough(seen: Seen) -> bool:
        return min(seen.transitions, seen.births, seen.signals, seen.libraries) >= 50

    seen = run(combination, enough)

    assert allowed_wrongs(combination, seen) == []


def test_a_marker_switched_among_all_this_counts_every_hit() -> None:
    with victim(arguments(inside("jmp5", LINE, "int3/mem", "membarrier", FULL_HOUSE))) as target:
        marked = switch_marks(target, 10, "flip 10 int3 mem membarrier")

    assert marked.hits == marked.evaluated > 0
    assert marked.recorded_and_lost == marked.evaluated_while_read > 0


def test_foreign_sites_across_lines_and_pages_are_switched_and_are_as_before() -> None:
    """USDT probes, functions and their returns, by jumps and by breakpoints."""
    make("build/targets/truth_foreign")

    seen = switch_foreign(lambda seen: seen.compared >= 6 // spacing(3))

    assert seen.is_right, seen
    assert seen.signals > 0


@pytest.mark.parametrize("across", [WORD, LINE, PAGE])
def test_no_execution_is_torn_while_handlers_return_into_a_span(across: tuple[int, int]) -> None:
    combination = outside("span5", across, "whole", "stop", Crowd(2, signals=True))

    seen = run(
        combination,
        lambda seen: seen.signals >= 10_000 // SHORTER and seen.transitions >= 2000 // SHORTER,
    )

    assert allowed_wrongs(combination, seen) == []


@pytest.mark.parametrize("left_out", MUST_FAIL, ids=lambda left: f"{left.combination}")
def test_what_is_left_out_is_missed(left_out: LeftOut) -> None:
    seen = run_left_out(left_out)

    if not failed(seen) and seen.transitions < SEEN_ENOUGH:
        pytest.skip(f"too little ran at once: {seen.transitions} of {seen.flips} flips observed")
    assert failed(seen), f"{seen.flips} flips, and nobody missed {left_out.lacks}"


def test_every_combination_is_listed_once() -> None:
    assert len(set(ALLOWED)) == len(ALLOWED)


def test_a_run_that_observed_nothing_counts_as_wrong() -> None:
    assert Seen(executions=10, old=10).wrong() == ["no flip was observed"]


@pytest.mark.parametrize(
    "seen",
    [
        Seen(executions=3, old=1, new=1, torn=1, transitions=1),
        Seen(executions=3, old=1, new=1, transitions=1),
        Seen(executions=2, old=1, new=1, transitions=1, stale=1),
        Seen(executions=2, old=1, new=1, transitions=1, ended="died SIGSEGV"),
        Seen(executions=2, old=1, new=1, transitions=1, unsettled="left 0, executed 1"),
    ],
)
def test_whatever_does_not_add_up_counts_as_wrong(seen: Seen) -> None:
    assert len(seen.wrong()) == 1
