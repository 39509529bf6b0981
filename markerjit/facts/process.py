"""A process: its arena, its markers, a switch of them, and the events of its flight recorder."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from markerjit.facts import Json
from markerjit.facts.markers import left_out_facts, marker_facts

if TYPE_CHECKING:
    from markerjit.events.flight import Picture
    from markerjit.patch.apply import Applied
    from markerjit.probes.loaded import Values
    from markerjit.session.status import ArenaStatus, MarkerStatus
    from markerjit.session.strays import StrayHead


def status_facts(
    pid: int,
    arena: ArenaStatus | None,
    markers: Iterable[MarkerStatus],
    values: Iterable[Values],
    strays: Iterable[StrayHead],
) -> Json:
    """The markers of a process, its arena, the values of its probes in C, and its stray heads."""
    return {
        "pid": pid,
        "arena": arena and arena_facts(arena),
        "markers": [marker_facts(marker) for marker in markers],
        "probes": [values_facts(of_file) for of_file in values],
        "stray_heads": [stray_facts(stray) for stray in strays],
    }


def stray_facts(stray: StrayHead) -> Json:
    """A stray head; bytes are in hexadecimal. A fact that is not known is None."""
    return {
        "address": stray.address,
        "object": stray.object,
        "mode": str(stray.mode) if stray.mode else None,
        "now": None if stray.now is None else stray.now.hex(),
        "before": stray.before.hex(),
        "marker": stray.marker or None,
        "by": stray.by or None,
        "remedy": str(stray.remedy),
        "advice": stray.advice,
    }


def arena_facts(arena: ArenaStatus) -> Json:
    """An arena, with the pids of its maker, its reader and a writer of code, None where there is
    none."""
    reader = arena.reader
    return {
        "owner": arena.owner.pid,
        "since": arena.since,
        "runtime": f"{arena.runtime:016x}",
        "reader": reader.owner.pid if reader else None,
        "lease_s": round(reader.left_s, 1) if reader and reader.left_s is not None else None,
        "writer": arena.writer.pid if arena.writer else None,
        "paused_s": round(max(arena.pause.left_s, 0), 1) if arena.pause else None,
        "to_mend": arena.to_mend,
    }


def values_facts(values: Values) -> Json:
    """The counters and histograms of one file of probes in C. A histogram has its buckets with
    values."""
    return {
        "source": values.source,
        "counters": dict(values.counters),
        "histograms": {
            name: [bucket._asdict() for bucket in histogram.buckets()]
            for name, histogram in values.histograms.items()
        },
    }


def switch_facts(pid: int, markers: Iterable[MarkerStatus], applied: Applied) -> Json:
    """The outcome of a switch, and the markers after it."""
    return {
        "pid": pid,
        "markers": [marker_facts(marker) for marker in markers],
        "threads": applied.threads,
        "stopped_ns": applied.stop + applied.held + applied.resume,
        "left_out": left_out_facts(applied.left_out),
        "taken": applied.taken,
        "ended": applied.ended,
    }


def picture_facts(path: str, picture: Picture) -> Json:
    """The file that a picture of a flight recorder was saved in, and of each marker with events how
    many were saved, overwritten before and lost."""
    return {
        "file": path,
        "markers": [
            {"name": name, **kept._asdict()}
            for name, kept in sorted(picture.kept.items())
            if any(kept)
        ],
    }
