"""The common part of the protocols: from a change to its edits, or to a reason for refusing it.

A protocol plans and touches nothing. Its edits carry steps, counted from 0 for each change; after
each step that changes code the cores are synchronised, as the strategy has it.
"""

from __future__ import annotations

from markerjit.errors import Reason
from markerjit.model import Change, Edit
from markerjit.quiesce.strategies import Strategy
from markerjit.tuples import NamedTuple


class Refusal(NamedTuple):
    """No: the reason, the sentence that says it, and whether the same may work later."""

    reason: Reason
    sentence: str
    try_again: bool = False


class Context(NamedTuple):
    """The facts that a protocol needs besides the change.

    own       the target is our own process
    handler   a thread at a breakpoint would find its way: our SIGTRAP handler is, or will be,
              installed
    writable  the address can be stored to
    """

    strategy: Strategy
    own: bool = False
    handler: bool = False
    writable: bool = False


def refusal(change: Change, reason: Reason, why: str) -> Refusal:
    """A refusal that names the change."""
    return Refusal(reason, f"{change.what}: {why}")


def one_edit(change: Change, *, store: bool = False) -> tuple[Edit, ...]:
    """The whole change as one edit."""
    address, old, new, what, code, _, _, early = change
    return (Edit(address, old, new, what, code, store=store, early=early),)


def judged(change: Change, context: Context, *, atomic: bool) -> Refusal | None:
    """A refusal if the strategy does not cover the change, else None."""
    why = context.strategy.refusal(change, atomic=atomic, own=context.own)
    if why is None:
        return None
    return Refusal(
        Reason.QUIESCENCE,
        f"quiescence {context.strategy.name} does not cover {change.what}: {why}",
    )
