"""Processes that a request left out."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from markerjit.facts import Json

if TYPE_CHECKING:
    from markerjit.fleet.failed import Failed


def failed_facts(failed: Iterable[Failed]) -> list[Json]:
    """The processes that left a fleet, with the reasons."""
    return [{"pid": process.pid, "reason": str(process.error)} for process in failed]
