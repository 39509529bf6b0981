"""The parts of this kind as lines: one measure, against the number of sites or of threads."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from markerjit.apps.bench.sampling.figures import counted
from markerjit.apps.bench.sampling.shapes import Measured, Part
from markerjit.apps.bench.toggle.parts import KIND, MEASURES
from markerjit.apps.bench.toggle.ways import ASLEEP, BUSY
from markerjit.tuples import NamedTuple

SITES, THREADS = "sites", "threads"


class Series(NamedTuple):
    """Parts of one measure in order, each at the value of its `axis`; `title` says what is the same
    in all of them."""

    measure: str
    axis: str
    title: str
    load: str
    points: tuple[tuple[float, Part], ...]

    def names(self) -> list[str]:
        """The names of all forms."""
        return list(dict.fromkeys(form.name for _, part in self.points for form in part.forms))

    def line(self, name: str) -> list[tuple[float, Part, Measured]]:
        """A form through the parts that have it."""
        candidates = ((at, part, part.form(name)) for at, part in self.points)
        return [(at, part, form) for at, part, form in candidates if form]


def all_series(parts: Sequence[Part]) -> Iterator[Series]:
    """The series of each measure: against sites, against threads that run, and against threads that
    sleep. Those against threads have more than one number of them."""
    for measure in MEASURES:
        chosen = [part for part in parts if part.kind == KIND and part.measure == measure]
        if not chosen:
            continue
        threads, sites = min(part.threads for part in chosen), min(part.sites for part in chosen)
        running = [part for part in chosen if part.threads == threads and part.load == BUSY]
        yield _series(measure, SITES, f"{counted(threads, 'thread')} that run", BUSY, running)
        for load, does in ((BUSY, "threads that run"), (ASLEEP, "1 thread runs, others sleep")):
            same = [
                part for part in chosen
                if part.sites == sites and (part.load == load or part.threads == 1)
            ]  # fmt: skip
            if len(same) > 1:
                yield _series(measure, THREADS, f"{counted(sites, 'site')}, {does}", load, same)


def _series(measure: str, axis: str, title: str, load: str, parts: Sequence[Part]) -> Series:
    points = sorted(((getattr(part, axis), part) for part in parts), key=lambda point: point[0])
    return Series(measure, axis, title.replace("1 thread that run", "1 thread that runs"), load,
                  tuple(points))  # fmt: skip
