"""A request to switch markers: on or off, how, and with which probe.

The door and the command line make these values of what they are given, once. Nothing below compares
names of probes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from markerjit.arena.hashes import fnv1a
from markerjit.errors import BadArgument
from markerjit.model import Mode
from markerjit.patch.where import Where
from markerjit.quiesce.strategies import Strategy
from markerjit.ring.types import Options
from markerjit.tuples import NamedTuple

if TYPE_CHECKING:  # imported where something is asked
    from markerjit.questions.aggregates import Asked, KeyPart, Shape
    from markerjit.questions.latencies import Timed

_ONLY_COUNTED = Options(counted=False)


class Count(NamedTuple):
    """Count the executions of a site, and nothing else. With a question, count only those for which
    the answer is yes."""

    question: Where | None = None

    @property
    def options(self) -> Options:
        """How the runtime's entry of the marker is."""
        return _ONLY_COUNTED


class Record(NamedTuple):
    """Record each event into a ring; with a question, only those for which the answer is yes.
    `counted` says that the recorder counts, because there is no reader."""

    options: Options = Options()
    question: Where | None = None


class AddUp(NamedTuple):
    """Add each event to an aggregate. `shape` is what its markers have in common; `question` is its
    text, and the number of all that its code depends on."""

    asked: Asked
    shape: Shape
    question: Where
    options: Options = _ONLY_COUNTED

    @classmethod
    def of(cls, asked: Asked, shape: Shape, options: Options = _ONLY_COUNTED) -> AddUp:
        """What this aggregate does."""
        number = fnv1a(repr((asked, shape)).encode(errors="surrogatepass"))
        return cls(asked, shape, Where(str(asked), number), options)


class Pair(NamedTuple):
    """Begin or end a pair of events. `key` is what its markers have in common, `group` the key of a
    group of begins, and `counter` says that its clock is the time stamp counter; `question` is its
    text, and the number of all that its code depends on."""

    timed: Timed
    ends: bool
    key: tuple[KeyPart, ...]
    counter: bool
    question: Where
    options: Options = _ONLY_COUNTED
    group: tuple[KeyPart, ...] = ()

    @classmethod
    def of(
        cls,
        timed: Timed,
        key: tuple[KeyPart, ...],
        options: Options = _ONLY_COUNTED,
        *,
        ends: bool,
        counter: bool,
        group: tuple[KeyPart, ...] = (),
    ) -> Pair:
        """One side of a latency."""
        number = fnv1a(repr((timed, ends, key, counter, group)).encode(errors="surrogatepass"))
        return cls(timed, ends, key, counter, Where(str(timed), number), options, group)


class HeapStep(NamedTuple):
    """Take an event for a step of an allocator. `select` has the numbers of a step, `kinds` what
    the events of each name are (MJ_STEP_*), `gives` the rule of the bytes given (MJ_GIVES_*), and
    `counter` says that its clock is the time stamp counter; `question` is as of Pair."""

    select: str
    kinds: tuple[tuple[str, int], ...]
    gives: int
    counter: bool
    question: Where
    options: Options = _ONLY_COUNTED

    @classmethod
    def of(
        cls, select: str, kinds: Mapping[str, int], gives: int, *, counter: bool, by: str
    ) -> HeapStep:
        """The steps of an allocator, whose sites are told apart `by` this."""
        rows = tuple(sorted((name, int(kind)) for name, kind in kinds.items()))
        number = fnv1a(repr((select, rows, gives, counter)).encode(errors="surrogatepass"))
        return cls(select, rows, gives, counter, Where(f"allocations by {by}", number))


class InC(NamedTuple):
    """Call a function of a file of probes in C. `options` are those of the marker's entry: what the
    probe emits is recorded as its own events are. `digest` is that of the objects; "" before the
    file is compiled. Where it `replaces` the marker's function it is not called, but jumped to."""

    file: str
    function: str
    options: Options = _ONLY_COUNTED
    digest: str = ""
    replaces: bool = False

    @property
    def question(self) -> None:
        """There is none: a probe in C asks for itself."""

    def __str__(self) -> str:
        return f"{self.file}:{self.function}"


Probe = Count | Record | AddUp | Pair | HeapStep | InC
"""The code that runs when an open site is reached. The type tells the kinds apart; no two of them
are equal."""


class Request(NamedTuple):
    """Off, or on by a mode (None: as compiled) with a probe. `breakpoints` says that breakpoints
    were asked for where nothing else opens code that nobody prepared."""

    on: bool
    strategy: Strategy
    mode: Mode | None = None
    probe: Probe = Count()
    breakpoints: bool = False

    @property
    def takes_breakpoints(self) -> bool:
        """Whether breakpoints were asked for, be it by their mode."""
        return self.breakpoints or self.mode is Mode.INT3

    @property
    def calls(self) -> bool:
        """Whether a probe in C is called, so that its calls are counted."""
        return self.on and isinstance(self.probe, InC) and not self.probe.replaces

    @property
    def replaces(self) -> bool:
        """Whether a function is replaced."""
        return self.on and isinstance(self.probe, InC) and self.probe.replaces


def as_mode(mode: Mode | str | None) -> Mode | None:
    """The mode, given as a Mode or by its name. Raises BadArgument for anything else."""
    try:
        return None if mode is None else Mode(mode)
    except ValueError:
        raise BadArgument("mode", mode, f"one of {', '.join(map(str, Mode))}") from None
