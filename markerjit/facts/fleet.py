"""Several processes: what is on in each, and those that a request left out."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from markerjit.facts import Json
from markerjit.facts.markers import left_out_facts
from markerjit.tuples import NamedTuple

if TYPE_CHECKING:
    from markerjit.fleet.failed import Failed
    from markerjit.fleet.family import Price
    from markerjit.fleet.overview import Overview
    from markerjit.patch.switchable import LeftOut


class Hits(NamedTuple):
    """The hits of a marker in several programs."""

    programs: int
    hits: int
    lost: int


class Stayed(NamedTuple):
    """The outcome of `on` and `flight start` that stayed. `unknown` is the number of programs whose
    hits could not be read, and `on` the processes in which markers are on still."""

    hits: Mapping[str, Hits]
    programs: int
    plain: int
    unknown: int
    on: Sequence[int]
    failed: Sequence[Failed]
    missed: Sequence[str]
    price: Price | None
    left_out: Sequence[LeftOut]


def staying_facts(stayed: Stayed) -> Json:
    """The markers that were on in programs that came and went."""
    facts: Json = {
        "markers": [{"name": name, **hits._asdict()} for name, hits in stayed.hits.items()],
        "programs": stayed.programs,
        "plain": stayed.plain,
        "unknown": stayed.unknown,
        "on": list(stayed.on),
        "failed": failed_facts(stayed.failed),
        "missed": list(stayed.missed),
        "left_out": left_out_facts(stayed.left_out),
    }
    if stayed.price is not None:
        facts["price"] = stayed.price._asdict()
    return facts


def failed_facts(failed: Iterable[Failed]) -> list[Json]:
    """The processes that left a fleet, with the reasons."""
    return [{"pid": process.pid, "reason": str(process.error)} for process in failed]


def overview_facts(view: Overview) -> Json:
    """The processes that have something to be probed, with what is on in each."""
    return {
        "processes": [
            {
                "pid": process.pid,
                "uid": process.uid,
                "command": process.command,
                "markers": len(process.markers),
                "usdt": process.usdt,
                "on": [
                    {
                        "name": marker.name,
                        "mode": str(marker.mode),
                        "probe": marker.probe,
                        "by": marker.by or None,
                        "held": marker.held,
                    }
                    for marker in process.markers
                    if marker.mode
                ],
                "runtime": process.arena is not None,
            }
            for process in view.processes
        ],
        "failed": failed_facts(view.failed),
    }
