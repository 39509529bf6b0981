"""The protocols: ordered steps that make a change safe while threads run. One module each.

`plan_change` tries them in order; which one covers what, and on whose word, is in their docstrings.
"""

from __future__ import annotations

from collections.abc import Callable

from markerjit.errors import Reason
from markerjit.model import Change, Edit
from markerjit.patch.protocol import (
    aligned_store,
    breakpoint,
    byte_flip,
    pointer_swap,
    whole_span,
)
from markerjit.patch.protocol.base import Context, Refusal
from markerjit.tuples import NamedTuple

__all__ = ["PROTOCOLS", "Context", "Protocol", "Refusal", "is_byte_flip", "plan_change"]


class Protocol(NamedTuple):
    """A protocol, by its name; `plan` gives the edits, or says why it does not cover a change."""

    name: str
    plan: Callable[[Change, Context], tuple[Edit, ...] | Refusal]


PROTOCOLS = (
    Protocol("byte flip", byte_flip.plan),
    Protocol("pointer swap", pointer_swap.plan),
    Protocol("aligned store", aligned_store.plan),
    Protocol("breakpoint", breakpoint.plan),
    Protocol("whole span", whole_span.plan),
)
"""The protocols in the order in which they are tried: the safest first."""


def is_byte_flip(change: Change) -> bool:
    """Whether a byte flip is the protocol of a change. If one flip can be planned in a context, so
    can any other flip, by one edit of the same bytes."""
    return change.code and len(change.old) == len(change.new) == 1


def plan_change(change: Change, context: Context) -> tuple[Edit, ...] | Refusal:
    """The edits of the safest protocol that covers the change; the last one's reason otherwise."""
    if not change.new:  # a word that is not known yet: planned as any other, and filled in later
        known = change._replace(new=bytes(len(change.old)))
        word = pointer_swap.plan(known, context)
        return word if isinstance(word, Refusal) else tuple(edit._replace(new=b"") for edit in word)
    if len(change.old) != len(change.new):
        raise ValueError(f"{change.what}: {len(change.old)} bytes cannot become {len(change.new)}")
    refused = Refusal(Reason.NO_PROTOCOL, f"{change.what}: no protocol is for such a change")
    for protocol in PROTOCOLS:
        planned = protocol.plan(change, context)
        if not isinstance(planned, Refusal):
            return planned
        if planned.reason is not Reason.NOT_ITS_CHANGE:
            refused = planned
    return refused
