"""The code of a program as it is in memory, to be compared before and after a switch."""

from __future__ import annotations

import markerjit
from tests.support.programs import Target


def code_of(program: Target) -> bytes:
    """All bytes of the program's own code, as they are now."""
    with markerjit.View(program.pid) as view:
        spans = [
            (each.start, each.end) for each in view._target.seen.maps
            if each.executable and each.path.endswith(program.path.name)
        ]  # fmt: skip
        return b"".join(view.read(start, end - start) for start, end in spans)
