"""The protocols: ordered steps that make a change safe while threads run. One module each.

`plan_change` chooses among them; which one covers what, and on whose word, is in their docstrings.
"""

from __future__ import annotations

from collections.abc import Callable

from markerjit.model import Change, Edit
from markerjit.patch.protocol import (
    aligned_store,
    breakpoint,
    byte_flip,
    pointer_swap,
    whole_span,
)
from markerjit.patch.protocol.base import Context, Refusal

__all__ = ["PROTOCOLS", "Context", "Refusal", "plan_change"]

Planner = Callable[[Change, Context], "tuple[Edit, ...] | Refusal"]

PROTOCOLS: dict[str, Planner] = {
    "byte flip": byte_flip.plan,
    "pointer swap": pointer_swap.plan,
    "aligned store": aligned_store.plan,
    "breakpoint": breakpoint.plan,
    "whole span": whole_span.plan,
}


def plan_change(change: Change, context: Context) -> tuple[Edit, ...] | Refusal:
    """The edits of the safest protocol that covers the change; the last one's reason otherwise."""
    if not change.new:  # a word that is not known yet: planned as any other, and filled in later
        known = change._replace(new=bytes(len(change.old)))
        word = pointer_swap.plan(known, context)
        return word if isinstance(word, Refusal) else tuple(one._replace(new=b"") for one in word)
    if len(change.old) != len(change.new):
        raise ValueError(f"{change.what}: {len(change.old)} bytes cannot become {len(change.new)}")
    if not change.code:
        return pointer_swap.plan(change, context)
    if len(change.old) == 1:
        return byte_flip.plan(change, context)
    planned: tuple[Edit, ...] | Refusal = Refusal("")
    for planner in (aligned_store.plan, breakpoint.plan, whole_span.plan):
        planned = planner(change, context)
        if not isinstance(planned, Refusal):
            break
    return planned
