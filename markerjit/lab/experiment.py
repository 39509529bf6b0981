"""The values of the lab: an experiment, and what happened in its runs. Rendering is elsewhere.

The facts of a run are read from the child: its counts, the signal it died of, the bytes of its
site.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from markerjit.lab.processes import ALIVE
from markerjit.tuples import NamedTuple
from markerjit.x86.decode import disassemble

Tell = Callable[[str, int, int], None]
"""Progress: what runs, tries so far, and tries at most."""


class Picture(NamedTuple):
    """The bytes at a site at one moment. `address` is of the first; `caption` says the moment."""

    caption: str
    address: int
    code: bytes

    @property
    def assembly(self) -> list[str]:
        """Its instructions; where the bytes are no whole instruction, `no instruction`."""
        instructions = disassemble(self.code, self.address)
        texts = [instruction.text for instruction in instructions]
        whole = sum(len(instruction.code) for instruction in instructions) == len(self.code)
        return texts if whole else [*texts, "no instruction"]


class Bar(NamedTuple):
    """A measured difference with its interval; `differs` where it is not called noise."""

    name: str
    value: float
    low: float
    high: float
    differs: bool


class Chart(NamedTuple):
    """Measured differences, drawn as bars. `floor` is the noise, in the unit of the caption, and
    `noisy` the reason why nothing can be told from these; empty: there is none."""

    caption: str
    bars: tuple[Bar, ...]
    floor: float
    noisy: str

    def bar(self, name: str) -> Bar:
        """The bar of this name."""
        return next(bar for bar in self.bars if bar.name == name)


class Run(NamedTuple):
    """A run of an experiment in one child.

    name     the way in which it made its change
    lacks    the safety that was left out; empty: none, it is the product's own way
    tries    how many times the bytes were changed
    counts   what the child, or its controller, counted, by what it is a count of
    faults   how many of these are executions, or signals, of which there should be none
    ending   `alive`, or the name of the signal that the child died of
    pictures the bytes of the site, in order
    story    what happened, a sentence or two
    chart    what was measured; None: nothing was
    """

    name: str
    lacks: str
    tries: int
    counts: dict[str, int]
    faults: int
    ending: str
    pictures: tuple[Picture, ...]
    story: str
    chart: Chart | None = None

    @property
    def is_safe(self) -> bool:
        """Whether no safety was left out."""
        return not self.lacks

    @property
    def went_well(self) -> bool:
        """Whether nothing went wrong that could be seen."""
        return self.ending == ALIVE and not self.faults


class Experiment(NamedTuple):
    """A guided experiment.

    letter       its name on the command line
    question     with `choices` to predict from
    conduct      makes the runs, each in a child of its own
    happened     the index of the choice that came true in these runs; None: they cannot tell
    forgiven     why a run that went well without its safety is no reason to leave it out
    explanation  paragraphs
    references   manuals, kernel files, papers
    """

    letter: str
    title: str
    question: str
    choices: tuple[str, ...]
    conduct: Callable[[Tell], Iterator[Run]]
    happened: Callable[[tuple[Run, ...]], int | None]
    forgiven: str
    explanation: tuple[str, ...]
    references: tuple[str, ...]


class Outcome(NamedTuple):
    """The runs of an experiment, and the choice that came true."""

    experiment: Experiment
    runs: tuple[Run, ...]

    @property
    def answer(self) -> int | None:
        """The index of the choice that came true; None where the runs cannot tell."""
        return self.experiment.happened(self.runs)

    @property
    def safe_ways_hold(self) -> bool:
        """Whether every run with all its safeties went well."""
        return all(run.went_well for run in self.runs if run.is_safe)


def conduct(experiment: Experiment, tell: Tell) -> Outcome:
    """Make all runs of an experiment. Raises MarkerError where a child cannot be had or changed."""
    return Outcome(experiment, tuple(experiment.conduct(tell)))


def dangerous_runs(runs: tuple[Run, ...]) -> list[Run]:
    """The runs that leave a safety out."""
    return [run for run in runs if not run.is_safe]


def first_or_second(runs: tuple[Run, ...]) -> int:
    """0 where a dangerous run went wrong, 1 where all went well."""
    return int(all(run.went_well for run in dangerous_runs(runs)))
