"""A pause of the collector of reference cycles, while very many values are made.

What this does not do: pause it for other threads' sake, or collect anything.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

_MANY = 1 << 15
"""The collector goes through as many values in some hundredths of a second."""


@contextmanager
def uncollected() -> Iterator[None]:
    """Within, the collector of reference cycles rests. A hundred thousand sites become values
    without cycles, and it would go through all of them again and again: up to two fifths of the
    time. It works again when the first one that has paused it ends. If there are very many values
    then, they count as old ones, which it goes through with all others and not at once."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            if gc.get_count()[0] >= _MANY and not gc.get_freeze_count():
                # Together they put all values into the oldest generation. What the program itself
                # has frozen would not be frozen any more.
                gc.freeze()
                gc.unfreeze()
            gc.enable()
