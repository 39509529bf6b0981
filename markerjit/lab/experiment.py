"""The values of the lab: an experiment, its runs and its outcome.

The facts of a run are read from the child: its counts, the signal that it died of, and the bytes of
its site.

What this does not do: render anything (markerjit/cli/lab.py, markerjit/web/page/lab.js).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from markerjit.lab.processes import ALIVE
from markerjit.tuples import NamedTuple
from markerjit.x86.decode import disassemble

Tell = Callable[[str, int, int], None]
"""A callback for progress, with the name of the run, the tries so far, and the most tries."""


class Picture(NamedTuple):
    """The bytes at a site at one moment. `address` is that of the first byte, and `caption` names
    the moment."""

    caption: str
    address: int
    code: bytes

    @property
    def assembly(self) -> list[str]:
        """The instructions, and `no instruction` for bytes at the end that are not a whole one."""
        instructions = disassemble(self.code, self.address)
        texts = [instruction.text for instruction in instructions]
        whole = sum(len(instruction.code) for instruction in instructions) == len(self.code)
        return texts if whole else [*texts, "no instruction"]


class Bar(NamedTuple):
    """A measured difference with its interval. `differs` says that it is above the noise."""

    name: str
    value: float
    low: float
    high: float
    differs: bool


class Chart(NamedTuple):
    """Measured differences, drawn as bars. `floor` is the noise, in the unit of the caption.
    `noisy` is the reason why the measurement tells nothing, empty for a good one."""

    caption: str
    bars: tuple[Bar, ...]
    floor: float
    noisy: str

    def bar(self, name: str) -> Bar:
        """The bar of this name."""
        return next(bar for bar in self.bars if bar.name == name)


class Run(NamedTuple):
    """A run of an experiment in one child.

    name     the way in which the change was made
    lacks    the safety that was left out; empty for the product's own way, which lacks none
    tries    the number of changes of the bytes
    counts   the counts of the child or its controller, by their captions
    faults   the number of things that went wrong, such as torn executions
    ending   `alive`, or the name of the signal that the child died of
    pictures the bytes of the site, in order
    story    the run in a sentence or two
    chart    the measured differences; None where nothing was measured
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
        """Whether the child lives and no fault was seen."""
        return self.ending == ALIVE and not self.faults


class Experiment(NamedTuple):
    """A guided experiment.

    letter       its name on the command line
    question     asks for a prediction, which is one of `choices`
    conduct      makes the runs, each in a child of its own
    happened     returns the index of the choice that came true in these runs, or None where they
                 cannot tell
    forgiven     the reason not to leave the safety out although a run went well without it
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
    """The runs of an experiment, which tell the choice that came true."""

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
    """Make all runs of an experiment. Raises MarkerError where a child cannot be started or
    changed."""
    return Outcome(experiment, tuple(experiment.conduct(tell)))


def dangerous_runs(runs: tuple[Run, ...]) -> list[Run]:
    """The runs that leave a safety out."""
    return [run for run in runs if not run.is_safe]


def first_or_second(runs: tuple[Run, ...]) -> int:
    """0 where a dangerous run went wrong, 1 where all went well."""
    return int(all(run.went_well for run in dangerous_runs(runs)))
