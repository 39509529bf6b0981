"""Aggregates whose readers are gone, and the sites that still add to them. It only reads."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

from markerjit.errors import MemoryFault
from markerjit.model import Site
from markerjit.session.turn import Turn
from markerjit.tuples import NamedTuple


class LeftAggregates(NamedTuple):
    """What readers that are gone have left: sites that are on, and the tickets of aggregates."""

    sites: Sequence[Site]
    tickets: frozenset[int]


def left_aggregates(turn: Turn) -> LeftAggregates:
    """What there is of them now."""
    arena = turn.seen.arena
    left = [aggregate for aggregate in arena.aggregates.all() if aggregate.is_left] if arena else []
    tickets = frozenset(aggregate.ticket for aggregate in left)
    sites = []
    for site in turn.seen.sites if tickets else ():
        with suppress(MemoryFault):  # changed by another tool, and not in our way
            state = turn.target.state(site)
            aggregate = arena.aggregate(state.probe, state.data) if arena and state.mode else None
            if aggregate and aggregate.ticket in tickets:
                sites.append(site)
    return LeftAggregates(sites, tickets)
