"""How many instructions a form takes: counted by callgrind, so exact, in a little of the work."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

from real.programs import Workload
from real.running import started

MISSING = "instructions: valgrind is not here; apt-get install valgrind"


def instructions(path: Path, workload: Workload) -> int | None:
    """Of one run, with its start and its end; None without valgrind."""
    valgrind = shutil.which("valgrind")
    if valgrind is None:
        return None
    prefix = [valgrind, "--tool=callgrind", "--callgrind-out-file=/dev/null"]
    with started(path, workload.little, prefix=prefix) as child:
        child.report()
        child.wait()
        found = re.search(r"Collected : (\d+)", child.said())
        assert found, child.said()
        return int(found[1])
