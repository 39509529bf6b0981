"""Whether a loop had its core to itself: figures are of one state of the machine, and say which."""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from rich.console import Console

from markerjit.apps.bench import html, table
from markerjit.apps.bench.sampling import core, results
from markerjit.apps.bench.sampling.compare import Comparison, comparison_of
from markerjit.apps.bench.sampling.core import MOST_ALONE, Taken
from markerjit.apps.bench.sampling.form import AGAIN, BASELINE, CALL, Form
from markerjit.apps.bench.sampling.shapes import report
from markerjit.apps.bench.sampling.statistics import FEWEST, over_rounds

ALONE, SHARED = 101, 170
LAYOUTS = 3
COSTS = {BASELINE: (0.0, 0.0), AGAIN: (0.0, 0.0), CALL: (0.9, 1.6), "jump": (3.0, 5.5)}
"""By form, what it costs alone and beside another thread, in ns."""
FORMS = [Form(name, (), "") for name in COSTS]


def compared(shares: Sequence[int], costs: dict[str, tuple[float, float]] = COSTS) -> Comparison:
    """A comparison of rounds in which the core was shared or not, as given."""
    chance = np.random.default_rng(7)
    taken = {}
    for name, (alone, shared) in costs.items():
        times = [0.7 + alone if share <= MOST_ALONE else 1.5 + shared for share in shares]
        jitter = 0.01 * chance.standard_normal((len(shares), LAYOUTS))
        of_rounds = np.array(times)[:, None] + jitter
        taken[name] = np.stack([of_rounds, np.repeat(np.array(shares)[:, None], LAYOUTS, 1)], 2)
    return comparison_of(taken, dict.fromkeys(costs, BASELINE), 100)


def part_of(comparison: Comparison) -> dict[str, Any]:
    return results.part("active", "a loop", {"threads": 1}, comparison, FORMS, {})


def shown(part: dict[str, Any], width: int = 80) -> str:
    text = io.StringIO()
    Console(file=text, width=width).print(table.table(part, width))
    return text.getvalue()


def test_what_a_program_says_is_a_time_and_a_share_for_each_run() -> None:
    assert core.read("200100/101 250000/168") == [(200100, 101), (250000, 168)]


@pytest.mark.parametrize(
    ("runs", "chosen"),
    [
        ([(5, ALONE), (4, SHARED), (6, ALONE)], (5, ALONE)),
        ([(5, SHARED), (4, SHARED)], (4, SHARED)),
        ([(9, MOST_ALONE), (4, MOST_ALONE + 1)], (9, MOST_ALONE)),
    ],
)
def test_the_least_is_of_the_runs_that_were_alone(runs: Any, chosen: tuple[int, int]) -> None:
    assert core.least([Taken(*run) for run in runs]) == chosen


@pytest.mark.parametrize("of_three", [1, 2])
def test_figures_are_of_runs_that_were_alone_and_the_others_are_apart(of_three: int) -> None:
    comparison = compared([ALONE if at % 3 < of_three else SHARED for at in range(60)])

    for name, (alone, shared) in COSTS.items():
        assert comparison.cost(name).value == pytest.approx(alone, abs=0.02)
        beside = comparison.shared(name)
        assert beside and beside.cost.value == pytest.approx(shared, abs=0.02)
    assert comparison.level(BASELINE).value == pytest.approx(0.7, abs=0.02)
    own = comparison.shared(BASELINE)
    assert own and own.level.value == pytest.approx(1.5, abs=0.02)
    assert comparison.alone == pytest.approx(of_three / 3)
    assert comparison.floor(AGAIN) < 0.02


@pytest.mark.parametrize(("alone", "shared"), [(60, 0), (FEWEST - 1, 60), (0, 60)])
def test_figures_are_of_all_runs_where_none_or_nearly_all_were_shared(
    alone: int, shared: int
) -> None:
    comparison = compared([ALONE] * alone + [SHARED] * shared)

    assert not comparison.others
    assert comparison.shared("jump") is None
    assert all(np.isfinite(times).all() for times in comparison.samples.values())
    assert comparison.alone == pytest.approx(alone / (alone + shared))
    expected = COSTS["jump"][shared > 0]
    assert comparison.cost("jump").value == pytest.approx(expected, abs=0.02)


def test_a_few_shared_runs_are_left_out_and_have_no_figure() -> None:
    comparison = compared([ALONE] * 40 + [SHARED] * 5)

    assert comparison.shared("jump") is None
    assert comparison.cost("jump").value == pytest.approx(3.0, abs=0.02)
    text = " ".join(shown(part_of(comparison)).split())
    assert "Figures are of the 89 % of the runs that had the core to themselves." in text
    assert "core shared" not in text


@pytest.mark.parametrize("kept", [3, 10, 25])
def test_a_round_that_is_not_taken_changes_nothing(kept: int) -> None:
    """The interval of what is left is that of a series of these rounds, but for which rounds the
    bootstrap draws."""
    chance = np.random.default_rng(3)
    values = chance.standard_normal((1, 50))
    holed = np.where(np.arange(50) < kept, values, np.nan)

    whole, left = over_rounds(values[:, :kept]), over_rounds(holed)

    assert left.value == whole.value
    assert (left.low, left.high) == pytest.approx((whole.low, whole.high), abs=0.25)
    assert left.low >= values[0, :kept].min() and left.high <= values[0, :kept].max()


def test_the_table_has_both_states_in_80_columns() -> None:
    text = shown(part_of(compared([ALONE, SHARED] * 30)))

    (row,) = (line for line in text.splitlines() if "jump" in line.split())
    assert "+3.00" in row and "+5.50" in row
    assert "50 % of the runs that had the core to themselves" in " ".join(text.split())
    assert max(map(len, text.splitlines())) <= 80


@pytest.mark.parametrize(
    ("shares", "words"),
    [
        ([ALONE] * 30, ""),
        ([SHARED] * 30, "Only 0 % of the runs had the core to themselves, so figures are of all"),
        ([ALONE, SHARED] * 30, "Figures are of the 50 % of the runs"),
    ],
)
def test_a_file_keeps_every_sample_and_which_figures_are_of_it(
    shares: Sequence[int], words: str
) -> None:
    comparison = compared(shares)
    run = results.whole({"processor": "p"}, results.Measured([part_of(comparison)], [], []))

    (part,) = report(run).parts

    jump = part.form("jump")
    assert jump and jump.shared == comparison.shared("jump")
    assert np.isfinite(np.array(run["parts"][0]["forms"][3]["samples"])).all()
    assert (np.isnan(jump.samples) == np.isnan(comparison.samples["jump"])).all()
    assert part.of_core.startswith(words) and bool(part.of_core) == bool(words)
    assert words in html.page(run)
