"""Running a recipe while something happens."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import markerjit
from tests.support.timing import wait_until


def asked(recipe: str, pid: int, happen: Callable[[], None]) -> list[dict[str, Any]]:
    """The documents that a recipe prints of a process in which something happens meanwhile."""
    command = [sys.executable, "-m", "markerjit", "recipe", "run", recipe, str(pid), "--json"]
    ends = 2 if _has_two_ends(recipe) else 1
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            wait_until(lambda: process.poll() is not None or _is_on(pid, ends), "it is on")
            happen()
        finally:
            process.send_signal(signal.SIGTERM)
        printed, _ = process.communicate()
    assert process.returncode == 0
    return [json.loads(line) for line in printed.splitlines()]


def _is_on(pid: int, ends: int) -> bool:
    with markerjit.View(pid) as view:
        entries = view._target.seen.arena
        on = [entry for entry in entries.markers.entries() if entry.since] if entries else []
    return len(on) >= ends


def _has_two_ends(recipe: str) -> bool:
    """Whether it is a latency from one marker to another, and not of a function's calls."""
    command = [sys.executable, "-m", "markerjit", "recipe", "show", recipe, "--json"]
    shown = json.loads(subprocess.run(command, capture_output=True, check=True).stdout)
    first, second = shown["arguments"][:2]
    return bool(shown["command"] == "latency" and first[:1] != "-" and second[:1] != "-")
