"""Every decoder on thousands of hostile inputs: real ones, with numbers and bytes changed.

Each harness says what is promised for any bytes; this file feeds it. The same inputs are tried each
time, so that a failure is never a matter of luck: looking further is the business of test_guided.py
and of `FUZZ_EXAMPLES=100000 pytest tests/fuzz`, which draws new ones.
"""

from __future__ import annotations

import os
from collections import Counter

import pytest
from hypothesis import HealthCheck, given, settings

from tests.fuzz.every import HARNESSES
from tests.fuzz.harness import ACCEPTED, Harness
from tests.fuzz.inputs import inputs
from tests.fuzz.steps import at_most
from tests.support.choice import examples

FURTHER = int(os.environ.get("FUZZ_EXAMPLES", "0"))
EXAMPLES = FURTHER or examples(600)

LINES, LINES_A_BYTE = 100_000, 200
"""Ten times what any input has needed."""

every_harness = pytest.mark.parametrize("harness", HARNESSES.values(), ids=HARNESSES)


@every_harness
def test_real_inputs_are_accepted(harness: Harness) -> None:
    for seed in harness.seeds():
        assert harness.check(seed.data) == ACCEPTED


@every_harness
def test_nothing_but_the_documented_errors_comes_of_any_input(harness: Harness) -> None:
    outcomes: Counter[str] = Counter()
    most = EXAMPLES // harness.weight

    @settings(
        max_examples=most,
        deadline=None,
        database=None,
        derandomize=not FURTHER,
        suppress_health_check=[HealthCheck.too_slow],
    )
    @given(inputs(harness))
    def run(data: bytes) -> None:
        with at_most(LINES + LINES_A_BYTE * len(data)):
            outcomes[harness.check(data)] += 1

    run()

    print(harness.name, dict(outcomes))
    assert outcomes[ACCEPTED] > most // 100, "the inputs do not get past the first check"
    assert outcomes.total() - outcomes[ACCEPTED] > most // 100, "the inputs are not hostile"
