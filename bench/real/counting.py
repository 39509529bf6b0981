"""How many instructions a form takes: counted by callgrind, so exact, in a little of the work."""

from __future__ import annotations

import re
from pathlib import Path

from markerjit.apps.bench.api import NotCounted, valgrind
from markerjit.errors import MarkerError
from real.programs import Workload
from real.running import started


def instructions(path: Path, workload: Workload) -> int:
    """Of one run, with its start and its end. Raises NotCounted."""
    prefix = [valgrind(), "--tool=callgrind", "--callgrind-out-file=/dev/null"]
    try:
        with started(path, workload.little, prefix=prefix) as child:
            child.report()
            child.wait()
            output = child.printed()
    except MarkerError as error:
        raise NotCounted(f"under valgrind {error}") from None
    match = re.search(r"Collected : (\d+)", output)
    if not match:
        raise NotCounted("valgrind does not say how many")
    return int(match[1])
