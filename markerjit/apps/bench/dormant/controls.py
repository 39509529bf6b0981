"""Known costs, which every run also measures. A bench that finds them can be trusted.

A loop waits for a chain of eight additions, each of which waits for the one before. Each further
addition makes a round longer by exactly the time of one. Ten more additions give that time. The
measured costs of one, two and five more must agree with it: their intervals must meet.
"""

from __future__ import annotations

from typing import Any

from markerjit.apps.bench.sampling.compare import Comparison
from markerjit.apps.bench.sampling.form import Form

_CHAIN = 8
_MANY = 10
MORE = (1, 2, 5)
BASELINE = f"{_CHAIN} additions"
AGAIN = f"{_CHAIN} additions, again"


def _form(more: int, name: str, what: str) -> Form:
    flags = ("-DBENCH_FORM=adds", f"-DBENCH_ADDS={_CHAIN + more}")
    return Form(name, flags, what, baseline=BASELINE)


FORMS = (
    _form(0, BASELINE, "the baseline"),
    _form(0, AGAIN, "the same once more"),
    *(_form(more, f"{more} more", "a known cost") for more in MORE),
    _form(_MANY, f"{_MANY} more", "what one addition takes"),
)


def check(comparison: Comparison) -> list[dict[str, Any]]:
    """Each known cost, the measured cost, and whether the interval of the latter has the known
    one."""
    many = comparison.cost(f"{_MANY} more")
    checked = []
    for more in MORE:
        cost = comparison.cost(f"{more} more")
        low, expected, high = (value * more / _MANY for value in (many.low, many.value, many.high))
        is_found = cost.low <= high and low <= cost.high
        checked.append({"more": more, "known": expected, "cost": cost._asdict(), "found": is_found})
    return checked
