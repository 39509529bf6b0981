"""The steps of a plan as values, and each step as an English sentence. Nothing is touched.

The order is that of arena/patches.py, arena/journal.py and native/src/stop: what the runtime has to
know, the journal, words that no thread reads yet, quiescence, then compare, write, read back and
synchronise for each group of edits, and the way back to normal.

What this does not do: choose a protocol or an order. The plan has done both.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from enum import StrEnum
from itertools import groupby, takewhile
from operator import attrgetter

from markerjit.model import Edit, RemoteAddress
from markerjit.printable import counted
from markerjit.quiesce.strategies import Strategy
from markerjit.tuples import NamedTuple, brief
from markerjit.x86.forms import INT3

__all__ = ["Step", "Verb", "steps_of"]


class Verb(StrEnum):
    """What a step does."""

    LOAD = "load"
    ENTER = "enter"
    TELL = "tell"
    JOURNAL = "journal"
    QUIESCE = "quiesce"
    COMPARE = "compare"
    WRITE = "write"
    READ_BACK = "read back"
    SYNCHRONISE = "synchronise"
    RESUME = "resume"
    CLOSE = "close"
    NOTHING = "nothing"


class Step(NamedTuple):
    """A step of a plan.

    number  from 1
    place   the address that is written; None where the step writes nothing into code or a slot
    old     the bytes expected at the place
    new     the bytes that are written there; empty where the runtime is yet to say
    what    the object of the verb
    proves  what holds after the step, and the reason
    """

    number: int
    verb: Verb
    place: RemoteAddress | None
    old: bytes
    new: bytes
    what: str
    proves: str

    def __repr__(self) -> str:
        return brief(self)

    @property
    def sentence(self) -> str:
        """The step in English, without its number and without what it proves."""
        match self.verb:
            case Verb.ENTER:
                return f"enter {self.what} into the arena's table of patches"
            case Verb.TELL:
                return f"tell the SIGTRAP handler {self.what}; install it if it is not there"
            case Verb.JOURNAL:
                return f"write the {self.what} into the journal"
            case Verb.COMPARE:
                return f"compare the old bytes at {self.what}; give up if any differs"
            case Verb.WRITE:
                new = self.new.hex(" ") or "its address in the runtime"
                return f"write {self.place:#x}: {self.old.hex(' ')} -> {new}  ({self.what})"
            case Verb.READ_BACK:
                return f"read {self.what} back; if any differs, put all old bytes back"
            case Verb.CLOSE:
                return "empty the journal"
            case Verb.NOTHING:
                return "nothing to write: it is so already"
        return f"{self.verb}: {self.what}"

    def _repr_html_(self) -> str:
        from markerjit.printable.html import html_of

        return html_of([self])

    def _repr_cells_(self) -> Mapping[str, str]:
        return {
            "step": str(self.number),
            "what is done": self.sentence,
            "what holds afterwards": self.proves,
        }


def steps_of(
    edits: Sequence[Edit],
    strategy: Strategy,
    *,
    heads: int = 0,
    traps: int = 0,
    needs_runtime: bool = False,
) -> Iterator[Step]:
    """The steps of a plan in their order. A plan without edits has one, which says so.

    `heads` is how many heads are open afterwards, and `traps` how many of them by a breakpoint;
    `needs_runtime` is as in `Plan`.
    """
    for number, step in enumerate(_unnumbered(edits, strategy, heads, traps, needs_runtime), 1):
        yield step._replace(number=number)


def _step(verb: Verb, what: str, proves: str) -> Step:
    return Step(0, verb, None, b"", b"", what, proves)


def _unnumbered(
    edits: Sequence[Edit], strategy: Strategy, heads: int, traps: int, needs_runtime: bool
) -> Iterator[Step]:
    if needs_runtime:
        yield _step(
            Verb.LOAD,
            "the runtime, unless it is there (a borrowed thread makes and maps a memfd), which is "
            "then told of the markers",
            "the slots' new words are known, and no site is open",
        )
    if not edits:
        yield _step(Verb.NOTHING, "", "the bytes are those that were asked for")
        return
    if heads:
        yield _step(
            Verb.ENTER,
            counted(heads, "head"),
            "every byte of ours in the code is known to the SIGTRAP handler, `status` and `repair`",
        )
    if traps:
        yield _step(
            Verb.TELL,
            f"where to go from {counted(traps, 'breakpoint')}",
            "a thread that meets a breakpoint goes on in the body of its site",
        )
    yield _step(
        Verb.JOURNAL,
        counted(len(edits), "edit"),
        "if the controller dies from here on, the next one knows what to put back",
    )
    first = sum(1 for _ in takewhile(attrgetter("early"), edits)) if strategy.stops else 0
    if first:
        yield from _written(edits[:first], strategy)
    yield _step(Verb.QUIESCE, strategy.explained, strategy.proves)
    yield from _written(edits[first:], strategy)
    if strategy.stops:
        yield _step(
            Verb.RESUME,
            "every thread goes on where it stood",
            "the return to user code serialises, so no core runs bytes that it fetched before",
        )
    yield _step(Verb.CLOSE, "", "nothing is left to put back")


def _written(edits: Sequence[Edit], strategy: Strategy) -> Iterator[Step]:
    """Edits that are compared together, and then written step by step."""
    yield _comparison([edit for edit in edits if not edit.again])
    for _, group in groupby(edits, attrgetter("step")):
        yield from _group(list(group), strategy)


def _comparison(edits: Sequence[Edit]) -> Step:
    places = counted(len({edit.address for edit in edits}), "place")
    return _step(Verb.COMPARE, places, "the process is as it was when the plan was made")


def _group(edits: Sequence[Edit], strategy: Strategy) -> Iterator[Step]:
    """Edits that are written together."""
    changes = [edit for edit in edits if edit.old != edit.new]
    if not changes:
        return  # they are only compared
    again = [edit for edit in changes if edit.again]
    if again:
        yield _comparison(again)
    for edit in changes:
        proves = _safe_because(edit, strategy)
        yield Step(0, Verb.WRITE, edit.address, edit.old, edit.new, edit.what, proves)
    places = counted(len(changes), "place")
    yield _step(Verb.READ_BACK, places, "the memory of the process has the new bytes")
    if strategy.fence and any(edit.code for edit in changes):
        yield _step(
            Verb.SYNCHRONISE,
            strategy.fence,
            "every core has serialised since the write, so none runs older bytes",
        )


def _safe_because(edit: Edit, strategy: Strategy) -> str:
    """Why no thread is harmed by this write; the protocols (patch/protocol) say it at length."""
    if not edit.code:
        if edit.store:
            return "one aligned store: a thread reads the old word or the new one"
        if strategy.stops and not edit.early:
            return "no thread runs, so none reads half of the word"
        return "no open site leads to the slot, so no thread reads the word"
    if edit.new == bytes([INT3]):
        return "a thread that comes here traps and goes on in the body; it never sees the tail"
    if len(edit.new) == 1:
        return "one byte has no parts: a thread runs the old instruction or the new one"
    if edit.store:
        return "one aligned store: a thread runs the old bytes or the new ones"
    if strategy.stops:
        return "no thread runs, and none goes on inside the span"
    return "the breakpoint before these bytes keeps every thread from them"
