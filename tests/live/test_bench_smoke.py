"""The benchmark under a stock client runs and accounts for all it did. Its figures are not looked
at here: this machine may do something else meanwhile.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent.parent


def run(script: str, directory: Path, *arguments: str) -> tuple[str, list[dict[str, Any]]]:
    """The table that a benchmark prints, and the samples that it keeps."""
    kept = directory / "samples.json"
    done = subprocess.run(
        [sys.executable, ROOT / "bench" / script, *arguments, "--json", kept],
        env={**os.environ, "PYTHONPATH": str(ROOT), "XDG_CACHE_HOME": str(directory)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout, json.loads(kept.read_text())["samples"]


def test_no_request_fails_while_the_servers_markers_flip(
    build: Path, needs_tool: Callable[[str, str], str], tmp_path: Path
) -> None:
    needs_tool("redis-benchmark", "redis-tools")

    table, slices = run("redis_minute.py", tmp_path, "--seconds", "0.2")

    assert "byte flip" in table
    assert sum(piece["completed"] for piece in slices) > 0
    assert [piece for piece in slices if piece["failed"]] == []
    assert all((piece["flips"] > 0) == (piece["way"][:5] != "quiet") for piece in slices)
