"""The strategies of quiescence, by name. Each module says what its strategy proves, and why."""

from __future__ import annotations

from markerjit.quiesce.strategy.base import Strategy
from markerjit.quiesce.strategy.membarrier import MEMBARRIER
from markerjit.quiesce.strategy.none import NONE
from markerjit.quiesce.strategy.signals import SIGNALS
from markerjit.quiesce.strategy.stop import STOP

STRATEGIES = {strategy.name: strategy for strategy in (STOP, MEMBARRIER, SIGNALS, NONE)}

__all__ = ["MEMBARRIER", "NONE", "SIGNALS", "STOP", "STRATEGIES", "Strategy", "default_strategy"]


def default_strategy(*, own: bool) -> Strategy:
    """Stop another process; fence our own."""
    return MEMBARRIER if own else STOP
