"""Several processes: what is on in each, and those that a request left out."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from markerjit.facts import Json

if TYPE_CHECKING:
    from markerjit.fleet.failed import Failed
    from markerjit.fleet.overview import Overview


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
