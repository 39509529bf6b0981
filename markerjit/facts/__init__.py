"""Facts of every kind as dictionaries that JSON can hold, and the words in which people read them.

The command line's `--json` prints these documents; a terminal view or a web page reads the same
ones. Keys are stable: docs/reference/commands.md describes them.

This does not look at anything: a caller hands in what it has seen. Nor does it lay out text, and it
is imported by commands whose start-up counts, so that a module here imports another room only for
its types, or where the command has imported it already.
"""

from __future__ import annotations

import math
from typing import Any, TypeVar

T = TypeVar("T")

Json = dict[str, Any]
"""A document, or a part of one."""


def as_json(value: T) -> T | str:
    """The value as one that JSON has: as the lines of events have it, a float that is infinite or
    no number is a text."""
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value
