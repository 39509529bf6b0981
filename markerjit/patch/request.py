"""A request to switch markers: on or off, how, and with which probe.

The door and the command line make these values of what they are given, once. Nothing below compares
names of probes.
"""

from __future__ import annotations

from typing import NamedTuple

from markerjit.arena.markers import fnv1a
from markerjit.model import Mode
from markerjit.quiesce.strategies import Strategy
from markerjit.ring.types import Options

_ONLY_COUNTED = Options(counted=False)


class Where(NamedTuple):
    """A question that stands before a probe: its text, and a number by which its code is found
    again."""

    text: str
    number: int

    @classmethod
    def of(cls, text: str) -> Where:
        """The question with this text, whatever it is: what is no question is refused later."""
        return cls(text, fnv1a(text.encode(errors="surrogatepass")))


class Count(NamedTuple):
    """Count the executions of a site, and nothing else: of those that a question is answered with
    yes for."""

    question: Where | None = None

    @property
    def options(self) -> Options:
        """How the runtime's entry of the marker is."""
        return _ONLY_COUNTED


class Record(NamedTuple):
    """Record each event into a ring, or each that a question is answered with yes for. `counted`
    where the recorder counts, for want of a reader."""

    options: Options = Options()
    question: Where | None = None


class InC(NamedTuple):
    """Call a function of a file of probes in C. `options` are those of the marker's entry: what the
    probe emits is recorded as its own events are. `digest` is that of the objects; "" before the
    file is compiled."""

    file: str
    function: str
    options: Options = _ONLY_COUNTED
    digest: str = ""

    @property
    def question(self) -> None:
        """There is none: a probe in C asks for itself."""

    def __str__(self) -> str:
        return f"{self.file}:{self.function}"


Probe = Count | Record | InC
"""The code that runs when an open site is reached. The type tells the kinds apart; their tuples
have different lengths, and are never equal, either."""


class Request(NamedTuple):
    """Off, or on by a mode (None: as compiled) with a probe."""

    on: bool
    strategy: Strategy
    mode: Mode | None = None
    probe: Probe = Count()

    @property
    def calls(self) -> bool:
        """Whether a probe in C is called."""
        return self.on and isinstance(self.probe, InC)


def as_mode(mode: Mode | str | None) -> Mode | None:
    """The mode that is meant, by itself or by its name. Raises ValueError for any other."""
    try:
        return None if mode is None else Mode(mode)
    except ValueError:
        names = ", ".join(map(str, Mode))
        raise ValueError(f"{mode!r} is not a mode; there are {names}") from None
