"""Where dormant jumps get dear: the sentence that says so, from runs that were made up."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

from markerjit.apps.bench.dormant import knee
from markerjit.apps.bench.dormant.forms import FORMS
from markerjit.apps.bench.sampling import results
from markerjit.apps.bench.sampling.compare import Comparison
from markerjit.apps.bench.sampling.form import AGAIN, BASELINE, CALL
from markerjit.apps.bench.sampling.shapes import Report, report

NOISE = np.random.default_rng(1).normal(0, 0.05, (4, 40))


def large(sites: int, jump_more: float, *, without: str = "") -> dict[str, Any]:
    base = np.full((4, 40), 3.0)
    more = {BASELINE: 0, AGAIN: 0, "nop": 0.2, "jump": 0.2 + jump_more, CALL: 1.5}
    samples = {name: base + cost for name, cost in more.items() if name != without}
    if "jump" in samples:
        samples["jump"] += NOISE
    comparison = Comparison(samples, dict.fromkeys(samples, BASELINE), 100)
    return results.part("large", f"{sites} sites", {"sites": sites}, comparison, FORMS, {})


def run(*parts: dict[str, Any]) -> Report:
    return report(results.whole({}, results.Measured([*parts], [], [])))


@pytest.mark.parametrize(
    ("costs", "words"),
    [
        ({997: 0.01, 1994: 5.3, 4985: 14.0}, "a knee here between 997 and 1,994 sites. "),
        ({997: 4.0, 1994: 5.3}, "a knee here below 997 sites. "),
        ({997: 0.01, 1994: 0.02}, "no knee here up to 1,994 sites: "),
    ],
)
def test_the_knee_is_between_two_numbers_of_sites(costs: dict[int, float], words: str) -> None:
    parts = [large(sites, more) for sites, more in reversed(costs.items())]

    sentence = knee.sentence(knee.points(run(*parts)))

    assert words in sentence
    assert re.search(r"\d ns (\(|more than nop)", sentence)


def test_one_number_of_sites_has_no_knee() -> None:
    assert knee.sentence(knee.points(run(large(997, 5)))) == ""


def test_nothing_is_said_of_what_was_not_measured_or_only_noise() -> None:
    noisy = large(4985, 5) | {"noisy": "no verdict"}

    assert knee.points(run(large(997, 0, without="jump"), large(1994, 0, without="nop"))) == []
    assert [point.sites for point in knee.points(run(large(997, 5), noisy))] == [997]
