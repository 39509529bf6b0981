"""A plan in stages. After each stage the process may be left alone for any time.

The edits of a plan carry steps (`Edit.step`). A stage has those of one step, and is a transaction
of its own: compare, write, read back, synchronise. So threads of the process run between stages,
and other tools may change code there: each stage also compares what the others write.

Why that is safe: the plan is one for a strategy under which threads run (`between`). Under such a
strategy threads meet the bytes between two steps in any case, for as long as the controller waits
for a CPU, and for ever where it is killed. A protocol that needs all threads to stand from the
first step to the last (whole_span.py) is refused there. Each stage may then be made under any
strategy: one that stops proves more than the plan needs.

What this does not do: write (apply.py), or keep the journal open (session/stepping.py).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby, takewhile
from operator import attrgetter

from markerjit.model import Edit, RemoteAddress
from markerjit.patch.plan import Plan
from markerjit.patch.steps import Step, Verb, steps_of
from markerjit.quiesce.strategies import MEMBARRIER, Strategy
from markerjit.tuples import NamedTuple

__all__ = ["Stage", "Stages", "between", "stages_of"]


class Stage(NamedTuple):
    """A part of a plan, as a plan of its own, and its steps."""

    plan: Plan
    steps: tuple[Step, ...]


class Stages(NamedTuple):
    """A plan in stages, and the steps before the first of them. None for a plan that has nothing to
    write."""

    opening: tuple[Step, ...]
    stages: tuple[Stage, ...]


def between(strategy: Strategy) -> Strategy:
    """The strategy that a plan in stages is made for, each of which `strategy` makes."""
    return MEMBARRIER if strategy.stops else strategy


def stages_of(plan: Plan, strategy: Strategy) -> Stages:
    """The stages of a plan that was made for `between(strategy)`. Raises ValueError for one that
    was made for a strategy that stops."""
    if plan.strategy.stops:
        raise ValueError("threads stand from the first step of this plan to its last one")
    parts = list(_parts(plan.edits))
    if not parts:
        return Stages((), ())
    steps = tuple(plan.steps())
    opening = tuple(takewhile(lambda step: step.verb is not Verb.QUIESCE, steps))
    stages: list[Stage] = []
    number = len(opening)
    for part in parts:
        own = [
            step for step in steps_of(part, strategy) if step.verb not in (Verb.JOURNAL, Verb.CLOSE)
        ]
        if part is parts[-1]:
            own.append(steps[-1])
        numbered = tuple(step._replace(number=number + at) for at, step in enumerate(own, 1))
        number += len(own)
        stages.append(Stage(plan._replace(edits=part, strategy=strategy), numbered))
    return Stages(opening, tuple(stages))


def _parts(edits: Sequence[Edit]) -> Iterator[tuple[Edit, ...]]:
    """The edits of each step that change something, with edits for all other places of the plan
    that change nothing."""
    now: dict[RemoteAddress, Edit] = {}
    for edit in edits:
        for byte in _pieces(edit):
            now.setdefault(byte.address, byte._replace(new=byte.old))
    for step, group in groupby(edits, attrgetter("step")):
        # `again` is for places of an earlier step in the same transaction, and there is none.
        changing = [edit._replace(again=False) for edit in group if edit.old != edit.new]
        if not changing:
            continue
        written = {piece.address: piece for edit in changing for piece in _pieces(edit)}
        others = [edit._replace(step=step) for at, edit in now.items() if at not in written]
        yield (*others, *changing)
        for at, piece in written.items():
            now[at] = piece._replace(old=piece.new, again=False)


def _pieces(edit: Edit) -> Iterator[Edit]:
    """Code byte by byte: edits of one place may have different lengths, and a thread may stand
    inside what is only compared."""
    if not edit.code:
        yield edit
        return
    for at, (old, new) in enumerate(zip(edit.old, edit.new, strict=True)):
        yield edit._replace(
            address=RemoteAddress(edit.address + at), old=bytes([old]), new=bytes([new])
        )
