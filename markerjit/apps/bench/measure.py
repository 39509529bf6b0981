"""A whole run of the bench: each kind of cost that is asked for, one after the other."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import markerjit
from markerjit.apps.bench.active import measure as active
from markerjit.apps.bench.dormant import check, own
from markerjit.apps.bench.dormant import measure as dormant
from markerjit.apps.bench.sampling import machine, results
from markerjit.apps.bench.sampling.build import CFLAGS
from markerjit.apps.bench.sampling.place import Place
from markerjit.apps.bench.sampling.plan import Plan, Progress
from markerjit.apps.bench.toggle import measure as toggle
from markerjit.errors import Refused

NATIVE = Path(markerjit.__file__).parent / "_native"


class Kind(NamedTuple):
    """A kind of cost: what measures it, and its share of the time. A usual one is measured
    unless something else is asked for."""

    measure: Callable[[Plan, Place, Progress], results.Found]
    share: float
    is_usual: bool = True


KINDS = {
    "dormant": Kind(dormant.measure, 2),
    "active": Kind(active.measure, 1),
    "toggle": Kind(toggle.measure, 1),
    "check": Kind(check.measure, 1, is_usual=False),
}
"""By name, in the order of a report."""
USUAL = tuple(name for name, kind in KINDS.items() if kind.is_usual)


def run(plan: Plan, progress: Progress) -> dict[str, Any]:
    """Measure; the result is as results.py keeps it. Raises Refused, DoesNotCompile."""
    if shutil.which(plan.compiler) is None:
        raise Refused(f"{plan.compiler} is not here; apt-get install gcc, or name one with --cc")
    kinds = [Kind(own.measure, 1)] if plan.source else [KINDS[one] for one in plan.kinds or USUAL]
    whole = sum(one.share for one in kinds)
    found = results.Found([], [], [])
    load = machine.load()
    with place_for(plan.compiler) as place:
        for kind in kinds:
            part = plan._replace(seconds=plan.seconds * kind.share / whole)
            found = found.with_more(kind.measure(part, place, progress))
    compilers = {one: list(CFLAGS) for one in dict.fromkeys([plan.compiler, *found.compilers])}
    loads = {"load": load, "load at the end": machine.load()}
    return results.whole(machine.about(compilers) | loads, found)


@contextmanager
def place_for(compiler: str) -> Iterator[Place]:
    """Where things are; what is built there goes away with it."""
    with tempfile.TemporaryDirectory(prefix="markerjit-bench-") as name:
        yield Place(
            NATIVE / "bench", NATIVE / "include", NATIVE / "bench", Path(name), compiler,
            machine.quiet_cpu(),
        )  # fmt: skip
