"""Which change is made how: every combination that is allowed, and those that leave a step out.

A combination is a value. Nothing here starts anything, and nothing here knows whether the product
keeps what `ALLOWED` says; that is what running them is for.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

FIVE = ("jmp5", "call5", "mov5")

# Where the first byte is: 0 is an aligned word, (64, 2) two bytes before a cache line ends.
WORD = (0, 0)
LINE = (64, 2)
PAGE = (4096, 2)
IN_A_LINE = ((8, 2), (16, 2), (32, 2))
LINE_SPLITS = tuple((64, split) for split in (1, 2, 3, 4))


@dataclass(frozen=True)
class Crowd:
    """Who executes the places meanwhile."""

    threads: int = 2
    births: bool = False
    signals: bool = False
    libraries: bool = False

    def __str__(self) -> str:
        extras = [name for name in ("births", "signals", "libraries") if getattr(self, name)]
        return "+".join([str(self.threads), *extras])


@dataclass(frozen=True)
class Combination:
    """One shape at one alignment, changed by one protocol under one quiescence.

    `inside` says that the victim changes itself; otherwise another process does. `via` is mem or
    store, and store is for the inside only.
    """

    inside: bool
    shape: str
    across: tuple[int, int]
    protocol: str
    via: str
    quiescence: str
    crowd: Crowd = Crowd()
    places: int = 16

    def __str__(self) -> str:
        where = "in an aligned word" if self.across == WORD else f"across {self.across[0]}"
        if self.across[0] == 64 and self.shape in FIVE:
            where += f" at {self.across[1]}"
        side = "inside" if self.inside else "outside"
        how = f"{self.protocol} via {self.via}, {self.quiescence}"
        return f"{side}: {self.shape} {where}, {how}, threads {self.crowd}"


def inside(
    shape: str, across: tuple[int, int], how: str, quiescence: str, crowd: Crowd = Crowd()
) -> Combination:
    """From inside; `how` is "protocol/via"."""
    protocol, via = how.split("/")
    return Combination(True, shape, across, protocol, via, quiescence, crowd)


def outside(
    shape: str, across: tuple[int, int], protocol: str, quiescence: str, crowd: Crowd = Crowd()
) -> Combination:
    """From another process."""
    return Combination(False, shape, across, protocol, "mem", quiescence, crowd)


def _one_byte() -> Iterator[Combination]:
    """One byte changes, so nothing can tear, wherever it is and with no synchronising at all."""
    for across in (WORD, (64, 1), (4096, 1)):
        for quiescence in ("membarrier", "signals", "none"):
            yield replace(inside("byte", across, "byte/mem", quiescence), places=64)
            yield replace(inside("byte", across, "byte/store", quiescence), places=64)
        for quiescence in ("stop", "membarrier", "none"):
            yield outside("byte", across, "byte", quiescence)


def _words() -> Iterator[Combination]:
    """One aligned store changes all the bytes; a slot is data, and an aligned word always."""
    for quiescence in ("membarrier", "signals", "none"):
        for shape in ("nop2", *FIVE):
            yield replace(inside(shape, WORD, "word/store", quiescence), places=64)
    yield inside("slot", WORD, "word/store", "none")
    yield outside("slot", WORD, "whole", "stop")
    yield outside("slot", WORD, "whole", "none")


def _breakpoints() -> Iterator[Combination]:
    """The int3 protocol, wherever the bytes are."""
    for across in (WORD, (64, 1), (4096, 1)):
        for quiescence in ("membarrier", "signals"):
            yield inside("nop2", across, "int3/mem", quiescence)
        yield outside("nop2", across, "int3", "membarrier")
    for shape in FIVE:
        for across in (WORD, *IN_A_LINE, *LINE_SPLITS, PAGE):
            yield inside(shape, across, "int3/mem", "membarrier")
        for across in (WORD, LINE, PAGE):
            yield inside(shape, across, "int3/store", "membarrier")
            yield inside(shape, across, "int3/mem", "signals")
            yield outside(shape, across, "int3", "membarrier")
        yield outside(shape, LINE, "int3", "stop")


def _stopped() -> Iterator[Combination]:
    """All bytes at once while nobody runs and nobody stands inside."""
    for across in (WORD, (64, 1), (4096, 1)):
        yield outside("nop2", across, "whole", "stop")
    for shape in FIVE:
        for across in (WORD, LINE, PAGE):
            yield outside(shape, across, "whole", "stop")


# The crowds take turns, so each kind of change meets each kind of crowd.
CROWDS = (
    Crowd(2),
    Crowd(2, signals=True),
    Crowd(1, births=True),
    Crowd(8),
    Crowd(2, libraries=True),
    Crowd(4, births=True, signals=True, libraries=True),
)


def _spans() -> Iterator[Combination]:
    """Several instructions at once. In every crowd: a signal decides where a thread goes on."""
    for across in (WORD, LINE, PAGE):
        for crowd in CROWDS:
            yield outside("span5", across, "whole", "stop", crowd)


def _with_crowds(combinations: list[Combination]) -> Iterator[Combination]:
    for index, combination in enumerate(combinations):
        crowd = CROWDS[index % len(CROWDS)]
        if combination.quiescence == "signals":
            # Each new thread has to be told too; where they come by the ten thousand a second
            # the fence gives up, and says so.
            crowd = replace(crowd, births=False)
        yield replace(combination, crowd=crowd)


ALLOWED = (
    *_with_crowds([*_one_byte(), *_words(), *_breakpoints(), *_stopped()]),
    *_spans(),
)


@dataclass(frozen=True)
class LeftOut:
    """A combination that lacks something, what it lacks, and how many flips it gets to fail: so
    many in each of some victims."""

    lacks: str
    combination: Combination
    within: int
    victims: int = 1


def _lacking(
    lacks: str, *combinations: Combination, within: int = 1_000_000, victims: int = 1
) -> Iterator[LeftOut]:
    """Of each crowd only one thread: two on two CPUs leave the controller little of either."""
    for combination in combinations:
        alone = replace(combination.crowd, threads=1)
        yield LeftOut(lacks, replace(combination, crowd=alone), within, victims)


def _one_place(combination: Combination) -> Combination:
    """Nothing else is between the steps."""
    return replace(combination, places=1)


# Each of these must be seen to go wrong on any processor: some order of whole loads and stores
# shows the fault. The number of flips is a hundred times what it took on a loaded machine, where
# most flips are made while no other thread has a CPU. Where fewer than SEEN_ENOUGH flips were
# observed, a run that went well shows nothing.
SEEN_ENOUGH = 100_000
MUST_FAIL = (
    *_lacking(
        "order: the first byte is written before the tail",
        inside("jmp5", LINE, "first/mem", "membarrier"),
        inside("jmp5", WORD, "first/mem", "membarrier"),
    ),
    *_lacking(
        "the breakpoint",
        inside("jmp5", LINE, "whole/mem", "membarrier"),
        inside("jmp5", PAGE, "whole/mem", "membarrier"),
        inside("call5", LINE, "whole/mem", "membarrier"),
        inside("mov5", PAGE, "whole/mem", "membarrier"),
        inside("nop2", (4096, 1), "whole/mem", "membarrier"),
        inside("nop2", WORD, "byte/store", "membarrier"),
        outside("jmp5", PAGE, "whole", "none"),
        within=10_000_000,
    ),
    *_lacking("the look at threads that stand inside", outside("span5", WORD, "byte", "stop")),
    # A thread stays inside a span long enough only where something interrupts it there. On an idle
    # machine nothing does, so signals have to: their handlers return into the span.
    *_lacking(
        "the wait for threads that stand inside",
        inside("span5", WORD, "int3/mem", "membarrier", Crowd(signals=True)),
    ),
    # Seen once not to tear in a million: how the kernel copies eight bytes is its own affair.
    *_lacking("the slot's alignment", inside("slot", LINE, "whole/mem", "none"), within=10_000_000),
)

# These lack as much. Some processors forgive it, although no manual promises that. All are
# printed by `make torture`; none is a test.
SEEN_ONLY = (
    # A race of two fetches with two stores across a page. On one machine one victim tears after a
    # hundred flips and another not after ten million. On another, which was idle, none of 40 tore.
    *_lacking(
        "synchronising between the steps",
        _one_place(inside("jmp5", PAGE, "int3/raw", "none")),
        _one_place(inside("call5", PAGE, "int3/raw", "none")),
        within=500_000,
        victims=40,
    ),
    *_lacking(
        "synchronising between the steps",
        inside("jmp5", LINE, "int3/mem", "none"),
        inside("jmp5", LINE, "int3/store", "none"),
        _one_place(inside("jmp5", LINE, "int3/raw", "none")),
        _one_place(inside("call5", (64, 3), "int3/raw", "none")),
        _one_place(inside("mov5", LINE, "int3/raw", "none")),
        _one_place(inside("mov5", PAGE, "int3/raw", "none")),
        _one_place(inside("mov5", WORD, "int3/raw", "none")),
    ),
    *_lacking(
        "the breakpoint",
        inside("nop2", (64, 1), "whole/mem", "membarrier"),
        inside("mov5", LINE, "whole/mem", "membarrier"),
        inside("mov5", (64, 1), "whole/mem", "membarrier"),
        inside("mov5", WORD, "whole/mem", "membarrier"),
        inside("jmp5", WORD, "whole/mem", "membarrier"),
        outside("mov5", WORD, "whole", "none"),
    ),
)
