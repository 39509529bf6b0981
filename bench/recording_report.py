"""What bench/recording.py prints: a table of ways, and what the run says about the questions asked.

A sample is a block of one way with bare rdtsc between its pieces: block.h. Medians are over rounds,
their 95 % confidence intervals by bootstrap.
"""

from __future__ import annotations

import random
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import recorders

RESAMPLES = 1_000

Sample = dict[str, Any]
Series = dict[int, float]


class Run(NamedTuple):
    """What came out: `skipped` and `accounts` by the name of a way; the latter for those whose
    events are counted at the end. `daemon` is the process id of LTTng's, which has ended."""

    samples: list[Sample]
    skipped: dict[str, str]
    accounts: dict[str, Sample]
    daemon: int | None = None


def cost_ns(sample: Sample) -> float:
    """Of one event; the mean of the threads."""
    return statistics.fmean(sample["ns"]) / float(sample["events"])


def clock_ns(sample: Sample) -> float:
    """Of one rdtsc beside it."""
    return statistics.fmean(sample["rdtsc_ns"]) / float(sample["events"])


def ratio(sample: Sample) -> float:
    """An event in clock reads: of the same thread, in the time stamp counter."""
    pairs = zip(sample["ticks"], sample["rdtsc_ticks"], strict=True)
    return statistics.fmean(ticks / clock for ticks, clock in pairs)


def interval(values: Sequence[float]) -> tuple[float, float]:
    """The 95 % confidence interval of the median, by bootstrap; the same for the same values."""
    chance = random.Random(0)
    medians = sorted(
        statistics.median(chance.choices(values, k=len(values))) for _ in range(RESAMPLES)
    )
    return medians[RESAMPLES * 25 // 1000], medians[-RESAMPLES * 25 // 1000 - 1]


def percentiles(values: Sequence[float]) -> tuple[float, float]:
    """5 % and 95 %."""
    values = [*values, *values] if len(values) == 1 else values
    low, *_, high = statistics.quantiles(values, n=20, method="inclusive")
    return low, high


def groups(samples: Sequence[Sample]) -> dict[tuple[str, int], list[Sample]]:
    """By way and threads, in the order of WAYS."""
    order = [(way.name, threads) for way in recorders.WAYS for threads in way.threads]
    found: dict[tuple[str, int], list[Sample]] = {key: [] for key in order}
    for one in samples:
        found[one["way"], one["threads"]].append(one)
    return {key: group for key, group in found.items() if group}


def table(run: Run) -> Iterator[str]:
    """Markdown: a row for each way and number of threads."""
    yield (
        "| way | threads | n | ns: median (5 … 95 %) | to rdtsc: median [interval] (5 … 95 %) "
        "| passed | recorded | lost |"
    )
    yield "| :-- | --: | --: | :-- | :-- | --: | --: | --: |"
    for (name, threads), group in groups(run.samples).items():
        costs = [cost_ns(one) for one in group]
        ratios = [ratio(one) for one in group]
        cells = [
            name,
            f"{threads}",
            f"{len(group)}",
            "{:.2f} ({:.2f} … {:.2f})".format(statistics.median(costs), *percentiles(costs)),
            "{:.3f} [{:.3f}, {:.3f}] ({:.2f} … {:.2f})".format(
                statistics.median(ratios), *interval(ratios), *percentiles(ratios)
            ),
            *accounted(group, run.accounts.get(name)),
        ]
        yield "| " + " | ".join(cells) + " |"


def accounted(group: Sequence[Sample], at_end: Sample | None) -> Iterator[str]:
    """Events passed, recorded and lost in all blocks; the warm-up is in it."""
    yield f"{sum(one['passed'] for one in group):,}"
    if at_end:
        yield "see below"
        yield "–"
        return
    for name in ("recorded", "lost"):
        known = [one[name] for one in group if one[name] is not None]
        yield f"{sum(known):,}" if known else "–"


class Claim(NamedTuple):
    """Something to know about the run, by round; `most` is what the recorder was to reach."""

    text: str
    values: Series
    unit: str = ""
    most: float | None = None


def claims(samples: Sequence[Sample]) -> Iterator[Claim]:
    """What the run says about the questions it was made for. Differences are those of ratios of the
    same round, in clock reads of the median price: two processes seldom ran at the same speed."""
    found = groups(samples)
    price_ns = statistics.median(clock_ns(one) for one in samples)

    def series(way: str, threads: int = 1, value: Callable[[Sample], float] = ratio) -> Series:
        return {one["round"]: value(one) for one in found.get((way, threads), ())}

    def quotient(over: Series, under: Series) -> Series:
        return {at: over[at] / under[at] for at in over.keys() & under.keys()}

    def fields(more: str, less: str, number: int) -> Series:
        high, low = series(more), series(less)
        return {at: (high[at] - low[at]) / number * price_ns for at in high.keys() & low.keys()}

    ours, bare = "markerjit 2 ints", "markerjit 2 ints, no time"
    yield Claim("2 ints with time and tid, to rdtsc", series(ours), most=1.1)
    yield Claim("the same with 2 threads", series(ours, 2), most=1.1)
    yield Claim("2 threads to 1 thread", quotient(series(ours, 2), series(ours)))
    yield Claim("2 ints without time", series(bare, value=cost_ns), " ns", 2.5)
    yield Claim("the same with 2 threads", series(bare, 2, cost_ns), " ns", 2.5)
    for without in ("", ", no time"):
        three, two, one, eight = (
            f"markerjit {n} int{'s' * (n > 1)}{without}" for n in (3, 2, 1, 8)
        )
        about = without.lstrip(", ") or "with time"
        yield Claim(f"a field more, 3 less 2, {about}", fields(three, two, 1), " ns", 0.5)
        yield Claim(f"a field more, 8 less 1, {about}", fields(eight, one, 7), " ns", 0.5)
    yield Claim("LTTng to ours, 2 ints", quotient(series("LTTng 2 ints"), series(ours)))
    yield Claim("2 ints to a record by hand", quotient(series(ours), series("record by hand")))
    for size, most in ((5, 1.5), (40, 2.0), (200, None)):
        text = series(f"markerjit string of {size}")
        yield Claim(f"string of {size} to 2 ints", quotient(text, series(ours)), most=most)
    shared, apart = (
        series("locked add, shared line", 2),
        series("locked add, own line", 2),
    )
    yield Claim("control: a shared line to an own one, 2 threads", quotient(shared, apart))


def said(claim: Claim) -> str:
    """One line, with a verdict where something was asked for."""
    values = [*claim.values.values()]
    middle = statistics.median(values)
    low, high = interval(values)
    text = f"- {claim.text}: {middle:.3f}{claim.unit} [{low:.3f}, {high:.3f}]"
    if claim.most is None:
        return text
    verdict = "reached" if high <= claim.most else "not reached"
    if low <= claim.most < high:
        verdict = "not decided"
    return f"{text}; at most {claim.most}{claim.unit} asked: {verdict}"


def report(run: Run, machine: Mapping[str, Any]) -> Iterator[str]:
    """All that is printed."""
    yield from (f"{name}: {value}  " for name, value in machine.items() if name != "noise")
    yield from (f"NOISY: {word}  " for word in machine["noise"])
    yield ""
    yield from table(run)
    yield ""
    yield from (said(claim) for claim in claims(run.samples) if claim.values)
    yield ""
    for name, one in run.accounts.items():
        lost = f", {one['discarded']:,} discarded, which are cheaper" if one["discarded"] else ""
        yield f"- {name}: {one['recorded']:,} events in the trace of {one['passed']:,} passed{lost}"
    for name, reason in run.skipped.items():
        yield f"- SKIPPED {name}: {reason}"
    for name in wrong(run):
        yield f"- WRONG {name}: events are missing, or lost where none should be"


def wrong(run: Run) -> list[str]:
    """Ways whose events are not accounted for."""
    found = dict.fromkeys(one["way"] for one in run.samples if not one["right"])
    return [*found, *(name for name, one in run.accounts.items() if not one["right"])]
