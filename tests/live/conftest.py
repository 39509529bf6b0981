"""What tests of running programs share."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from markerjit.session import stubs
from markerjit.session.planning import Planner
from markerjit.session.turn import Turns
from tests.support.c_probes import write_probe


@pytest.fixture
def probe(tmp_path: Path, needs_tool: Callable) -> Callable[..., str]:
    """Write a probe in C: `probe(TURNS, "count")` is what --probe calls it."""
    needs_tool("gcc", "gcc")
    return partial(write_probe, tmp_path)


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What was asked: turns, plans, and looks at sites without a stub."""
    asked: list[str] = []

    def counted(place: object, name: str, what: str) -> None:
        function = getattr(place, name)

        def counting(*arguments: object, **options: object) -> object:
            asked.append(what)
            return function(*arguments, **options)

        monkeypatch.setattr(place, name, counting)

    counted(Turns, "take", "turn")
    counted(Planner, "plan", "plan")
    counted(stubs, "looked_at", "look")
    return asked
