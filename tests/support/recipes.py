"""Running a recipe while something happens."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from typing import Any

import markerjit
from tests.support.timing import wait_until


def asked(recipe: str, pid: int, happen: Callable[[], None]) -> list[dict[str, Any]]:
    """The documents that a recipe prints of a process in which something happens meanwhile."""
    command = [sys.executable, "-m", "markerjit", "recipe", "run", recipe, str(pid), "--json"]
    names = _names(recipe)
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            wait_until(lambda: process.poll() is not None or _are_on(pid, names), "it is on")
            happen()
        finally:
            process.send_signal(signal.SIGTERM)
        printed, _ = process.communicate()
    assert process.returncode == 0
    return [json.loads(line) for line in printed.splitlines()]


def _are_on(pid: int, names: Sequence[str]) -> bool:
    with markerjit.View(pid) as view:
        on = {status.name for status in view.status() if status.mode and status.since}
    return on.issuperset(names)


def _names(recipe: str) -> list[str]:
    """The names of the markers that it has on. Those of functions name an object, too."""
    command = [sys.executable, "-m", "markerjit", "recipe", "show", recipe, "--json"]
    shown = json.loads(subprocess.run(command, capture_output=True, check=True).stdout)
    if shown["command"] == "alloc":
        return ["func:malloc:return", "func:free"]
    first, second = shown["arguments"][:2]
    if shown["command"] == "latency":  # of calls, whose returns are on, if there is no other end
        first = f"{first}:return" if second[:1] == "-" else f"{first},{second}"
    return re.sub(r"func:[^:,]*\*:", "func:", first).split(",")
