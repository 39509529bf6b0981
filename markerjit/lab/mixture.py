"""Changing one instruction into another again and again, until a thread executes a mixture.

An experiment brings the code and the dangerous way to write it. This module has the safe way: the
product's breakpoint protocol, with the cores synchronised after each step, while the thread runs.
"""

from __future__ import annotations

from collections.abc import Callable

from markerjit.lab.child import Child
from markerjit.lab.experiment import Picture, Run, Tell
from markerjit.lab.image import Image
from markerjit.lab.processes import ALIVE
from markerjit.quiesce.strategies import MEMBARRIER
from markerjit.tuples import NamedTuple

SAFE_FLIPS = 200
_DIES_S = 10

Write = Callable[[Child, bytes, int], bool]
"""Makes one change: writes these bytes, whose instruction leads to that address. Returns False
where the child has died."""


class Span(NamedTuple):
    """The bytes that change.

    image      makes a loop through the bytes. It counts `old` and `new`, and after a mixture it
               counts `torn` and dies
    old_end    the address to which the old instruction leads; `new_end` likewise
    mixtures   the bytes that a torn fetch may have
    """

    image: Callable[[], Image]
    site: int
    old: bytes
    old_end: int
    new: bytes
    new_end: int
    mixtures: tuple[bytes, ...]

    def form(self, number: int) -> tuple[bytes, int]:
        """The bytes after change `number`, counted from 0, and the address to which they lead."""
        return (self.old, self.old_end) if number % 2 else (self.new, self.new_end)


def until_torn(span: Span, tell: Tell, name: str, lacks: str, most: int, write: Write) -> Run:
    """The run in which `write` changes the bytes until the child dies, but at most `most` times."""
    flips = 0
    with Child(span.image()) as child:
        while flips < most and not child.word("torn") and child.is_alive():
            if not write(child, *span.form(flips)):
                break
            flips += 1
            tell(name, flips, most)
        return _run_of(span, child, name, lacks, flips, most)


def by_breakpoint(span: Span, tell: Tell) -> Run:
    """The run in which the product's protocol changes the bytes."""
    name = "breakpoint first, the thread running"
    with Child(span.image()) as child:
        for flip in range(SAFE_FLIPS):
            old, _ = span.form(flip + 1)
            new, end = span.form(flip)
            child.change(span.site, old, new, strategy=MEMBARRIER, goes_on=end)
            tell(name, flip + 1, SAFE_FLIPS)
        return _run_of(span, child, name, "", SAFE_FLIPS, SAFE_FLIPS)


def _changes(flips: int) -> str:
    return "1 change" if flips == 1 else f"{flips:,} changes"


def _run_of(span: Span, child: Child, name: str, lacks: str, flips: int, most: int) -> Run:
    """The outcome in a child. After fewer than `most` changes the child is dying, although its
    parent may learn of that only a moment later."""
    counts = child.counts("old", "new", "torn", "trapped")
    ending = child.ending(_DIES_S if counts["torn"] or flips < most else 0)
    if counts["torn"]:
        story = (
            f"Within {_changes(flips)} the thread executed an instruction that was never "
            f"written: one part of the old one and one of the new one. It died by {ending}."
        )
    elif ending != ALIVE:
        story = f"Within {_changes(flips)} the child died by {ending}."
    else:
        story = (
            f"The thread passed {counts['old'] + counts['new']:,} times while the bytes changed "
            f"{flips:,} times, and executed the old instruction or the new one each time. It met "
            f"the breakpoint {counts['trapped']:,} times."
        )
    return Run(
        name,
        lacks,
        flips,
        {
            "executed the old instruction": counts["old"],
            "executed the new one": counts["new"],
            "executed a mixture": counts["torn"],
            "met the breakpoint": counts["trapped"],
        },
        counts["torn"],
        ending,
        (
            Picture("before", span.site, span.old),
            Picture("after", span.site, span.new),
            *(Picture("a mixture", span.site, mixture) for mixture in span.mixtures),
        ),
        story,
    )
