"""Running a recipe while something happens."""

from __future__ import annotations

import json
import re
import signal
from collections.abc import Callable, Sequence
from typing import Any

import markerjit
from tests.support.commands import facts, running
from tests.support.markers import has_arena
from tests.support.timing import wait_until


def asked(recipe: str, pid: int, happen: Callable[[], None]) -> list[dict[str, Any]]:
    """The documents that a recipe prints of a process in which something happens meanwhile."""
    names = _names(recipe)
    with running("recipe", "run", recipe, pid, "--json") as process:
        try:
            wait_until(lambda: process.poll() is not None or has_arena(pid), "an arena")
            wait_until(lambda: process.poll() is not None or _are_on(pid, names), "it is on")
            happen()
        finally:
            process.send_signal(signal.SIGTERM)
        printed, errors = process.communicate()
    assert process.returncode == 0, errors
    return [json.loads(line) for line in printed.splitlines()]


def _are_on(pid: int, names: Sequence[str]) -> bool:
    with markerjit.View(pid) as view:
        on = {status.name for status in view.status() if status.mode and status.since}
    return on.issuperset(names)


def _names(recipe: str) -> list[str]:
    """The names of the markers that it has on. Those of functions name an object, too."""
    shown = facts("recipe", "show", recipe)
    if shown["command"] == "alloc":
        return ["func:malloc:return", "func:free"]
    first, second = shown["arguments"][:2]
    if shown["command"] == "latency":  # of calls, whose returns are on, if there is no other end
        first = f"{first}:return" if second[:1] == "-" else f"{first},{second}"
    return re.sub(r"func:[^:,]*\*:", "func:", first).split(",")
