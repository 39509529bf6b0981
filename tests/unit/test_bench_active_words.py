"""What `markerjit bench active` says: figures of any size, sentences, and its part of the page."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from markerjit.apps.bench import html
from markerjit.apps.bench.active.listened import FORMS
from markerjit.apps.bench.active.words import answer, better
from markerjit.apps.bench.sampling import results
from markerjit.apps.bench.sampling.compare import Comparison
from markerjit.apps.bench.sampling.figures import figure, signed, times
from markerjit.apps.bench.sampling.form import AGAIN, BASELINE
from markerjit.apps.bench.sampling.shapes import CONTROLS, OURS, PEERS, report
from markerjit.errors import Refused


@pytest.mark.parametrize(
    ("value", "words"),
    [(0.204, "0.20"), (-0.5, "-0.50"), (99.99, "99.99"), (99.996, "100.0"), (542.73, "542.7"),
     (999.96, "1,000"), (1_977.4, "1,977"), (366_797.6, "366,798")],
)  # fmt: skip
def test_a_figure_has_as_many_digits_as_say_something(value: float, words: str) -> None:
    assert figure(value) == words
    assert signed(value) == (words if value < 0 else f"+{words}")


@pytest.mark.parametrize(
    ("ratio", "words"),
    [(1.04, "1.0"), (9.96, "10.0"), (91.4, "91"), (334, "330"), (61_642, "62,000")],
)
def test_a_ratio_has_two_digits(ratio: float, words: str) -> None:
    assert times(ratio) == words


COSTS = {
    "no marker, again": 0.0, "call": 0.9, "jump, dormant": 0.1, "jump, empty probe": 16.0,
    "jump, count": 6.0, "jump, record": 17.0, "int3, count": 2_000.0,
    "uprobe, 1-byte no-op": 870.0, "uprobe, record": 1_200.0, "int3, record": 2_010.0,
    "gdb": 360_000.0,
}  # fmt: skip


def made_run(threads: tuple[int, ...] = (1, 4), costs: dict[str, float] = COSTS) -> dict[str, Any]:
    jitter = np.linspace(0, 0.01, 24)
    samples = {name: 1.0 + cost * (1 + jitter[None, :]) for name, cost in costs.items()}
    samples[BASELINE] = np.full((1, 24), 1.0)
    comparison = Comparison(samples, dict.fromkeys(samples, BASELINE), 100)
    forms = [way.form for way in FORMS]
    parts = [
        results.part(
            "active",
            f"listened by {number}",
            {"threads": number},
            comparison,
            forms,
            {},
            control=None,
        )
        for number in threads
    ]
    return results.whole({"processor": "p"}, results.Measured(parts, [], []))


def test_who_is_who_is_known_from_the_name() -> None:
    (part, _) = report(made_run()).parts

    groups = {form.name: form.group for form in part.forms}
    assert {groups["jump, count"], groups["int3, count"]} == {OURS}
    assert {groups["uprobe, 1-byte no-op"], groups["gdb"]} == {PEERS}
    assert part.threads == 1


def test_the_answer_says_how_many_times_as_much_the_others_cost() -> None:
    of_one, of_four = answer(report(made_run()).parts)

    assert of_one.startswith("1 thread: jump, the default, costs 16.")
    assert "counting and 17." in of_one
    assert "uprobe at a 1-byte no-op 874" in of_one
    assert "(140 times as much)" in of_one
    assert "gdb" in of_one
    assert of_four.startswith("4 threads")


def test_a_cheaper_peer_is_named_with_what_it_is_cheaper_than() -> None:
    count, record = better(report(made_run((1,))).parts)

    assert "uprobe at a 1-byte no-op" in count
    assert "less than int3, count" in count
    assert "gdb" not in count
    assert "uprobe 1,2" in record
    assert "less than int3, record" in record
    dear = dict.fromkeys(("uprobe, 1-byte no-op", "uprobe, record"), 9_000.0)
    assert list(better(report(made_run((1,), COSTS | dear)).parts)) == [
        "To count, no peer is cheaper than any form of markerjit by more than the noise.",
        "To record, no peer is cheaper than any form of markerjit by more than the noise.",
    ]


def test_where_the_noise_is_too_great_nothing_is_told_of_peers() -> None:
    dear = dict.fromkeys(("uprobe, 1-byte no-op", "uprobe, record"), 9_000.0)
    first, second = report(made_run((1, 2), COSTS | dear)).parts
    noisy = "the noise is too great"

    sentences = [*better([first, second._replace(noisy=noisy)])]
    neither = [*better([part._replace(noisy=noisy) for part in (first, second)])]

    assert sentences[0] == (
        "To count, no peer is cheaper than any form of markerjit by more than the noise; of 2 "
        "threads, each on a CPU it cannot be told."
    )
    assert neither == [
        "To count: the noise is too great to tell whether a peer is cheaper.",
        "To record: the noise is too great to tell whether a peer is cheaper.",
    ]


def test_the_page_draws_each_number_of_threads_and_the_way_from_one_to_the_other() -> None:
    page = html.page(made_run())

    assert page.count("<svg") == 3
    assert "Cost against threads" in page
    assert all(f"<b>{form.name}:</b> " in page for form in report(made_run()).parts[0].forms)
    assert "a marker that is off" not in page
    assert html.page(made_run((1,))).count("<svg") == 1


@pytest.mark.parametrize("threads", [0, -1, "2", None])
def test_a_part_without_a_number_of_threads_is_refused(threads: object) -> None:
    run = made_run()
    run["parts"][0]["setting"]["threads"] = threads

    with pytest.raises(Refused, match="threads"):
        report(run)


def test_functions_are_compared_with_each_other_alone() -> None:
    costs = {
        AGAIN: 0.0, "call": 0.9, "jump, count": 6.0, "function": 1.0,
        "function, entry counted": 5.0, "function by uprobe, entry counted": 3.0,
    }  # fmt: skip
    (part,) = report(made_run((1,), costs)).parts

    groups = {form.name: form.group for form in part.forms}
    assert groups["function"] == CONTROLS
    assert groups["function, entry counted"] == OURS
    assert groups["function by uprobe, entry counted"] == PEERS
    assert list(better([part])) == []
    assert "uprobe" not in " ".join(answer([part]))
