"""The budget of a stream's probes, on counters and clocks that a test moves."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from markerjit.errors import BadArgument
from markerjit.events.budget import MOST_HALVINGS, Budget, Prices, _Share
from markerjit.model import Mode
from markerjit.remote.native import work_ns
from markerjit.ring.brakes import WHOLE, Brakes, Sample
from markerjit.ring.types import RecordType

SECOND = 1_000_000_000
PRICES = Prices(60, 6)


class Process:
    """A process of which so many events of each marker arrive in a second of its processor time."""

    pid = 7

    def __init__(self, rates: dict[int, int], mode: Mode = Mode.JUMP) -> None:
        self.rates = rates
        self.highest = dict.fromkeys(rates, WHOLE - 1)
        self.hits = dict.fromkeys(rates, 0.0)
        self.waiting: dict[int, int] = {}
        self.now = self.used = 0
        self.counters = self.braking = self.markers = self
        self._mode = [*Mode].index(mode) + 1

    def of_all(self, markers: Any) -> dict[int, Any]:
        return {id: SimpleNamespace(hits=int(self.hits[id])) for id in markers}

    def held_back(self, marker: int) -> int:
        return 0

    def set_highest(self, marker: int, highest: int) -> None:
        self.highest[marker] = highest

    def entry(self, marker: int) -> Any:
        return SimpleNamespace(mode=self._mode)

    def budget(
        self, percent: str, sample: str | None = None, prices: Prices | None = PRICES
    ) -> Budget:
        brakes = Brakes.of(budget=percent, sample=sample)
        types = {id: RecordType(id, f"m{id}", "", (), brakes=brakes) for id in self.rates}
        for id in self.rates:
            self.highest[id] = brakes.highest
        return Budget(
            self, types, lambda: self.waiting,  # type: ignore[arg-type]
            processor_ns=lambda pid: self.used, now_ns=lambda: self.now,
            prices=(lambda: prices) if prices else None,
        )  # fmt: skip

    def run(self, budget: Budget, used: int = SECOND) -> None:
        """So much processor time passes, and then somebody looks."""
        for id, rate in self.rates.items():
            self.hits[id] += rate * used / SECOND * (self.highest[id] + 1) / WHOLE
        self.now += SECOND
        self.used += used
        budget.look()

    def share(self) -> float:
        """Of the processor time, by the prices."""
        ns = 0.0
        for id, rate in self.rates.items():
            chance = (self.highest[id] + 1) / WHOLE
            ns += rate * (chance * PRICES.taken + (1 - chance) * PRICES.left_out)
        return ns / SECOND


def test_probes_within_their_budget_are_left_alone() -> None:
    process = Process({1: 100_000})
    budget = process.budget("1%")
    for _ in range(5):
        process.run(budget)

    assert budget.cuts == []
    assert process.highest == {1: WHOLE - 1}


def test_probes_are_thinned_until_they_keep_to_it() -> None:
    process = Process({1: 1_000_000})
    budget = process.budget("1%")
    process.run(budget)
    after = process.share()
    process.run(budget)

    assert [(cut.marker, cut.sample, cut.percent) for cut in budget.cuts] == [("m1", "1/16", 6.0)]
    assert process.highest[1] == Sample(1, 16).highest
    assert after <= 0.01
    assert not budget.is_spent


def test_events_that_came_before_a_smaller_sample_was_in_force_are_not_of_it() -> None:
    """The controller was without a CPU between its look at the counters and its cut."""
    process = Process({1: 1_000_000})
    budget = process.budget("1%")
    late = process.set_highest

    def cut(marker: int, highest: int) -> None:
        process.hits[marker] += 20_000
        late(marker, highest)

    process.set_highest = cut  # type: ignore[method-assign]
    process.run(budget)
    process.run(budget)

    assert [cut.sample for cut in budget.cuts] == ["1/16"]


def test_records_that_wait_in_rings_are_of_the_sample_by_which_they_were_recorded() -> None:
    process = Process({1: 1_000_000})
    budget = process.budget("1%")
    process.waiting = {1: 1_000_000}
    process.hits[1] = -1_000_000  # which come when the reader has taken them out
    process.run(budget)
    process.waiting = {}
    process.hits[1] += 1_000_000
    process.run(budget)

    assert [(cut.sample, cut.percent) for cut in budget.cuts] == [("1/16", 6.0)]


def test_time_that_passes_while_events_are_counted_is_of_the_process() -> None:
    process = Process({1: 100_000})
    budget = process.budget("1%")
    count = process.of_all

    def slow(markers: Any) -> dict[int, Any]:
        process.used += SECOND
        process.hits[1] += 100_000
        return count(markers)

    process.of_all = slow  # type: ignore[method-assign]
    process.run(budget)

    assert budget.cuts == []


def test_a_marker_without_events_is_not_thinned() -> None:
    process = Process({1: 10_000_000, 2: 0})
    budget = process.budget("0.1%")
    process.run(budget)

    assert {cut.marker for cut in budget.cuts} == {"m1"}
    assert process.highest[2] == WHOLE - 1


@pytest.mark.parametrize(
    ("prices", "sample"),
    [(Prices(19, 0), "1/2"), (Prices(60, 6), "1/16"), (Prices(600, 0), "1/64")],
)
def test_a_slow_machine_is_thinned_more(prices: Prices, sample: str) -> None:
    process = Process({1: 1_000_000})
    budget = process.budget("1%", prices=prices)
    process.run(budget)

    assert [cut.sample for cut in budget.cuts] == [sample]


def test_prices_are_those_that_this_machine_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("markerjit.events.budget.work_ns", lambda: 8.0)
    process = Process({1: 1_000_000})
    budget = process.budget("1%", prices=None)
    process.run(budget)

    assert Prices.measured() == Prices(20, 2, 2_500)
    assert [(cut.sample, cut.percent) for cut in budget.cuts] == [("1/4", 2.0)]


def test_work_takes_a_time_of_this_machine() -> None:
    assert 1 < work_ns() < 1000


def test_sample_that_was_asked_for_is_halved() -> None:
    process = Process({1: 1_000_000})
    budget = process.budget("1%", sample="1/3")
    process.run(budget)

    assert [cut.sample for cut in budget.cuts] == ["1/24"]


def test_most_expensive_marker_is_thinned() -> None:
    process = Process({1: 1_000, 2: 1_000_000})
    budget = process.budget("2%")
    process.run(budget)

    assert {cut.marker for cut in budget.cuts} == {"m2"}
    assert process.highest[1] == WHOLE - 1


def test_thousands_of_markers_are_not_looked_at_for_each_halving(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A trace of all functions of a program did not end for minutes, however often Ctrl-C came."""
    markers, looks = 500, 0
    spent_ns = _Share.spent_ns.fget
    assert spent_ns

    def counted(share: _Share) -> float:
        nonlocal looks
        looks += 1
        return float(spent_ns(share))

    process = Process(dict.fromkeys(range(markers), 1_000_000))
    budget = process.budget("1%")
    monkeypatch.setattr(_Share, "spent_ns", property(counted))
    process.run(budget)

    assert {process.highest[id] for id in range(markers)} == {Sample(1, 1 << MOST_HALVINGS).highest}
    assert looks <= markers * (MOST_HALVINGS + 2)


def test_probes_that_cannot_be_thinned_any_more_are_given_up_at_the_next_look() -> None:
    process = Process({1: 100_000_000})
    budget = process.budget("1%")
    process.run(budget)
    first = list(budget.cuts)
    process.run(budget)
    process.run(budget)

    assert [(cut.marker, cut.sample) for cut in first] == [("m1", f"1/{1 << MOST_HALVINGS}")]
    assert [(cut.marker, cut.sample) for cut in budget.cuts[1:]] == [(None, None)]
    assert budget.is_spent


def test_breakpoint_has_its_price_whether_the_event_is_taken_or_not() -> None:
    process = Process({1: 10_000}, Mode.INT3)
    budget = process.budget("1%")
    process.run(budget)
    process.run(budget)

    assert PRICES.breakpoint * 10_000 > 0.01 * SECOND
    assert budget.is_spent


def test_short_time_says_nothing() -> None:
    process = Process({1: 100_000_000})
    budget = process.budget("1%")
    process.run(budget, used=1_000_000)

    assert budget.cuts == []


def test_markers_without_a_budget_have_none() -> None:
    process = Process({1: 1})
    budget = Budget(process, {1: RecordType(1, "m", "", ())})  # type: ignore[arg-type]
    budget.look()

    assert budget.cuts == []


@pytest.mark.parametrize("text", ["0%", "200%", "-1%", "1", "%", "1.%", "0.0%", "100.001%", "1 %"])
def test_part_that_there_cannot_be_is_refused(text: str) -> None:
    with pytest.raises(BadArgument, match=r"^budget is .*such as 1%, from 0.001% to 100%"):
        Brakes.of(budget=text)


@pytest.mark.parametrize("text", ["1%", "0.5%", "100%", "12.125%"])
def test_part_is_written_down_and_read_again(text: str) -> None:
    brakes = Brakes.of(budget=text)

    assert Brakes.again(str(brakes)) == brakes
    assert brakes.facts() == {"budget": text}
