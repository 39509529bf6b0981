"""The ways to switch a site that are compared: by which door, in which mode, and with which
strategy of quiescence."""

from __future__ import annotations

from markerjit.apps.bench.sampling.form import Form
from markerjit.model import Mode
from markerjit.tuples import NamedTuple

CONTROLLER = "controller"
LIBRARY = "library"
OWN = "own"

BUSY, ASLEEP = "busy", "asleep"
"""The load: all threads run, or all but one wait for ever."""
ON, OFF = "on", "off"
DIRECTIONS = (ON, OFF)


class Way(NamedTuple):
    """A way to switch.

    door       a controller, libmarkerjit.a in the program, or Python in the program
    compiled   the mode that the sites are compiled in
    mode       the mode in which they are switched on, None for as compiled
    quiesce    the strategy; "" where the library chooses
    protocol   one of markerjit.patch.protocol, in words
    at_many    whether it is looked at with very many sites, too: some hold up a run for minutes,
               and differ from others in what is done once and not for each site
    """

    door: str
    compiled: str
    mode: Mode | None
    quiesce: str
    protocol: str
    at_many: bool = True

    @property
    def name(self) -> str:
        """The name in tables."""
        mode = self.mode.value if self.mode else self.compiled
        if self.door == CONTROLLER:
            return f"{mode}, {self.quiesce}"
        return f"{mode}, {self.door}{', ' * bool(self.quiesce)}{self.quiesce}"

    @property
    def stops(self) -> bool:
        """Whether threads stand still."""
        return self.quiesce == "stop"

    @property
    def what(self) -> str:
        """The way in a few words."""
        by = {
            CONTROLLER: "from another process",
            LIBRARY: "by libmarkerjit.a in the program",
            OWN: "by Python in the program",
        }[self.door]
        return f"{self.protocol}, {by}"


FLIP, SWAP, BREAK = "byte flip", "pointer swap", "byte flip to a breakpoint"

DEFAULT = Way(CONTROLLER, "jump", None, "stop", FLIP)
WAYS = (
    DEFAULT,
    Way(CONTROLLER, "nop", None, "stop", FLIP, False),
    Way(CONTROLLER, "pointer", None, "stop", SWAP),
    Way(CONTROLLER, "jump", Mode.INT3, "stop", BREAK),
    Way(CONTROLLER, "jump", None, "membarrier", FLIP),
    Way(CONTROLLER, "jump", None, "none", FLIP),
    Way(LIBRARY, "jump", None, "", FLIP),
    Way(OWN, "jump", None, "membarrier", FLIP, False),
    Way(OWN, "jump", None, "signals", FLIP, False),
    Way(OWN, "jump", None, "none", FLIP, False),
)
FIRST = tuple(way for way in WAYS if way == DEFAULT or way.protocol != FLIP or way.door == LIBRARY)
"""The ways of a first look: each kind of patch, and the program that switches itself."""

AGAIN = f"{DEFAULT.name}, again"
"""The default once more: what it differs by from itself is the noise."""
FENCE = "membarrier alone"
"""The time of the library's fence alone, just before each of its switches. A switch cannot take
less."""
QUIET = "no switch"
QUIET_AGAIN = "no switch, again"
"""The controller computes for as long as the default's last switch took, and switches nothing."""


def form_name(way: str, direction: str) -> str:
    """The name of one direction of a way."""
    return f"{way}: {direction}"


def as_form(name: str, what: str, baseline: str) -> Form:
    """The way as results keep it."""
    return Form(name, (), what, baseline=baseline)
