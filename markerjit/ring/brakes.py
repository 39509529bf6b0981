"""Brakes: limits on the events that a probe takes of those that a question lets through.

A sample is a part of them, chosen at random. A rate is how many there may be in a second. A budget
is a part of the processor time, for which the reader of a trace makes the sample smaller
(events/budget.py). What this does not do: the code (probes/braking.py), and its memory in the arena
(arena/braking.py).
"""

from __future__ import annotations

import re

from markerjit.arguments import check_int, check_is
from markerjit.errors import BadArgument
from markerjit.tuples import NamedTuple

# Compiled when they are used: most commands have no brakes.
_SAMPLE = r"(\d{1,18})/(\d{1,18})"
_RATE = r"([1-9]\d{0,7})([kM]?)(?:/s)?"
_UNITS = {"": 1, "k": 1000, "M": 1_000_000}
_PERCENT = r"(\d{1,3}(?:\.\d{1,3})?)%"
_WRITTEN = (
    r"(?:sample (?P<sample>\S+))?(?: ?at most (?P<at_most>\S+))?(?: ?budget (?P<budget>\S+))?"
)
_MOST_PER_S = 10_000_000
_BURSTS = 10
"""The divisor of a second's events that gives how many may come at once."""
_LONGER = 1001
"""The length of a second in thousandths: clocks differ."""
WHOLE = 1 << 64
"""How many numbers the generator of a sample has; a sample takes a part of them."""


class Sample(NamedTuple):
    """A part of the events: `taken` of `each`, such as 1 of 100."""

    taken: int
    each: int

    @classmethod
    def of(cls, text: str) -> Sample:
        """The part that a text such as "1/100" says. Raises BadArgument."""
        check_is("sample", text, str)
        matched = re.fullmatch(_SAMPLE, text, re.ASCII)
        sample = cls(int(matched[1]), int(matched[2])) if matched else cls(0, 0)
        if not 0 < sample.taken <= sample.each:
            raise BadArgument("sample", text, "a share such as 1/100, above 0 and at most 1")
        return sample

    def __str__(self) -> str:
        return f"{self.taken}/{self.each}"

    def halved(self, times: int) -> Sample:
        """The sample, halved so many times. Raises BadArgument for less than 0 or more than 64."""
        check_int("times", times, 0, 64)
        return Sample(self.taken, self.each << times)

    @property
    def highest(self) -> int:
        """The highest number of the generator that takes an event."""
        return WHOLE * self.taken // self.each - 1


class Pace(NamedTuple):
    """The spacing of events that keeps every second within a rate. Each event takes `step` ticks of
    a clock, and an event may come up to `ahead` ticks before its time. A time that is more than
    `far` ahead was written by another clock."""

    step: int
    ahead: int
    far: int

    @classmethod
    def of(cls, per_s: int, ticks_per_s: int) -> Pace:
        """The pace of a rate, by a clock. Of n events a second, b may come at once, and then as
        many as n - b + 1 follow in a second: so no second has more than n."""
        second = ticks_per_s * _LONGER // 1000
        burst = max(1, per_s // _BURSTS)
        step = -(-second // (per_s - burst + 1))
        return cls(step, (burst - 1) * step, second + burst * step)


class Brakes(NamedTuple):
    """The brakes of a probe: a part of the events, the most events in a second, and per cent of the
    processor time. A brake that is not set is None."""

    sample: Sample | None = None
    at_most: int | None = None
    budget: float | None = None

    @classmethod
    def of(
        cls,
        *,
        sample: str | None = None,
        at_most: int | str | None = None,
        budget: str | None = None,
    ) -> Brakes:
        """The brakes that arguments of the public API ask for. Raises BadArgument."""
        return cls(
            None if sample is None else Sample.of(sample),
            None if at_most is None else per_second(at_most),
            None if budget is None else per_cent(budget),
        )

    @classmethod
    def again(cls, text: str) -> Brakes:
        """The brakes written down in this text; none where it makes no sense."""
        matched = re.fullmatch(_WRITTEN, text, re.ASCII)
        try:
            return cls.of(**matched.groupdict()) if matched else cls()
        except BadArgument:  # the process has written over it
            return cls()

    def __str__(self) -> str:
        sample = f"sample {self.sample}" if self.sample else ""
        rate = f"at most {self.at_most}/s" if self.at_most else ""
        budget = f"budget {self.percent}" if self.percent else ""
        return " ".join(filter(None, (sample, rate, budget)))

    def facts(self) -> dict[str, str | int]:
        """The brakes for JSON, without those that are not set."""
        facts = {
            "sample": str(self.sample) if self.sample else None,
            "at_most": self.at_most,
            "budget": self.percent,
        }
        return {name: value for name, value in facts.items() if value is not None}

    @property
    def percent(self) -> str | None:
        """The budget as it is written, such as "1%"; None without one."""
        return f"{self.budget:g}%" if self.budget else None

    @property
    def highest(self) -> int:
        """The highest number of the generator that takes an event."""
        return self.first.highest

    @property
    def first(self) -> Sample:
        """The initial sample, before a budget made it smaller."""
        return self.sample or Sample(1, 1)

    @property
    def are_any(self) -> bool:
        """Whether any brake is set."""
        return self != NO_BRAKES


NO_BRAKES = Brakes()
"""Every event."""


def per_second(value: int | str) -> int:
    """The rate that a number, or a text such as "1000/s" or "1k/s", says. Raises BadArgument."""
    check_is("at_most", value, int, str)
    rate = value if isinstance(value, int) and not isinstance(value, bool) else 0
    if isinstance(value, str) and (matched := re.fullmatch(_RATE, value, re.ASCII)):
        rate = int(matched[1]) * _UNITS[matched[2]]
    if not 0 < rate <= _MOST_PER_S:
        raise BadArgument("at_most", value, f"a rate such as 1000/s, from 1 to {_MOST_PER_S}")
    return rate


def per_cent(value: str) -> float:
    """The part of the processor time that a text such as "1%" says. Raises BadArgument."""
    check_is("budget", value, str)
    matched = re.fullmatch(_PERCENT, value, re.ASCII)
    if not matched or not 0 < float(matched[1]) <= 100:
        must = "a share of the processor time such as 1%, from 0.001% to 100%"
        raise BadArgument("budget", value, must)
    return float(matched[1])
