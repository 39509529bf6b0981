"""A pause of the collector of reference cycles, while very many values are made.

What this does not do: pause it for other threads' sake, or collect anything.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def uncollected() -> Iterator[None]:
    """Within, the collector of reference cycles rests. A hundred thousand sites become values
    without cycles, and it would go through all of them again and again: up to two fifths of the
    time. It works again when the first one that has paused it ends."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()
