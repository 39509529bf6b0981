"""What tests of running programs share."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from tests.support.c_probes import write_probe


@pytest.fixture
def probe(tmp_path: Path, needs_tool: Callable) -> Callable[..., str]:
    """Write a probe in C: `probe(TURNS, "count")` is what --probe calls it."""
    needs_tool("gcc", "gcc")
    return partial(write_probe, tmp_path)
