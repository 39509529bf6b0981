"""The process in which threads go through the sites: native/bench/toggle/toggle.c, as a program,
or as a library in Python (inside.py). Both answer lines with lines."""

from __future__ import annotations

import os
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Self

import markerjit
from markerjit.apps.bench.sampling.child import Child
from markerjit.errors import MarkerError
from markerjit.tuples import NamedTuple

_SILENT_S = 120
"""A switch of a hundred thousand sites by Python takes some of it."""
_FINE = 3


class CannotStart(MarkerError):
    """The process does not begin, for example because it may not have as many threads."""


class Noticed(NamedTuple):
    """The times of steps that the threads noticed since they were last cleared, in ns.

    counts  the number of steps, by the bucket of their time
    """

    slowest: int
    steps: int
    wrong: int
    hits: int
    counts: Counter[int]


class Walk(NamedTuple):
    """One way through all sites, with the threads at rest."""

    sites: int
    wrong: int
    hits: int


class Crowd(Child):
    """A process with sites and threads. Ended by `close`, or with the block."""

    def __init__(self, command: Sequence[str | Path]) -> None:
        root = str(Path(markerjit.__file__).parent.parent)
        path = os.pathsep.join(filter(None, [root, os.environ.get("PYTHONPATH")]))
        try:
            super().__init__(
                "program", command, environment={"PYTHONPATH": path}, silent_s=_SILENT_S
            )
        except MarkerError as error:
            raise CannotStart(str(error)) from None

    def go(self) -> None:
        """The threads run."""
        self.ask("go")

    def rest(self) -> None:
        """Have all threads wait at the gate."""
        self.ask("rest")

    def clear(self) -> None:
        """Forget the steps that the threads noticed."""
        self.ask("clear")

    def noticed(self) -> Noticed:
        """The steps that the threads noticed since."""
        numbers, counts = _read(self.ask("told"))
        return Noticed(**numbers, counts=counts)

    def walk(self) -> Walk:
        """Go once through all sites, at rest."""
        numbers, _ = _read(self.ask("walk"))
        return Walk(**numbers)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def start(program: Path, threads: int, load: str) -> Crowd:
    """Run a program of toggle.c. Raises CannotStart."""
    return Crowd([program, str(threads), load])


def start_inside(library: Path, threads: int, load: str) -> Crowd:
    """Run Python with that library in it. Raises CannotStart."""
    module = f"{__package__}.inside"
    return Crowd([sys.executable, "-m", module, library, str(threads), load])


def _read(answer: str) -> tuple[dict[str, int], Counter[int]]:
    """`name=NUMBER …` and `BUCKET:NUMBER …`."""
    numbers: dict[str, int] = {}
    counts: Counter[int] = Counter()
    for word in answer.split():
        name, equals, value = word.partition("=")
        if equals:
            numbers[name] = int(value)
        else:
            bucket, _, number = word.partition(":")
            counts[int(bucket)] = int(number)
    return numbers, counts


def bucket_ns(bucket: int) -> int:
    """The least time of a bucket, in ns. Each power of two has eight buckets."""
    fine = 1 << _FINE
    if bucket < fine:
        return bucket
    power, part = divmod(bucket, fine)
    return (fine + part) << (power - 1)


def percentile(counts: Counter[int], part: float) -> int:
    """The time that this part of the steps did not exceed, in ns, as its bucket begins; 0 without
    steps."""
    rank, passed = part * counts.total(), 0
    for bucket in sorted(counts):
        passed += counts[bucket]
        if passed >= rank:
            return bucket_ns(bucket)
    return 0
