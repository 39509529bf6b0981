"""The words of a slot, struct mj_slot of abi.h, as plans change them and others read them.

What this does not do: say what the words are to be (plan.py).
"""

from __future__ import annotations

import markerjit.abi as abi
from markerjit.elf import Read
from markerjit.model import RemoteAddress

SLOT_PROBE = 0
SLOT_DATA = 8
BINDING_SIZE = 16
"""Of a slot's probe and data, without the counts behind them."""
SLOT_ENTERED = 16
SLOT_LEFT = 24
SLOT_ADAPTER = 32
SLOT_TOKEN, SLOT_STASH = abi.SLOT_TOKEN, abi.SLOT_STASH
"""Of a function's entry: what says that its arguments are kept, and where."""
SLOT_UNMATCHED, SLOT_TAKES = abi.SLOT_UNMATCHED, abi.SLOT_TAKES
"""Of an exit: returns whose entry was not seen, and what its probe takes of what was kept."""
SEMAPHORE_SIZE = 2


def is_entered(read: Read, slot: RemoteAddress) -> bool:
    """Whether a thread is in the probe of a slot, if its calls are counted."""
    entered, left = entries_of(read, slot)
    return entered != left


def entries_of(read: Read, slot: RemoteAddress) -> tuple[int, int]:
    """How often a counted probe of a slot was entered and left."""
    # First how often it was left: between the reads a thread that comes and goes would otherwise
    # balance one that is still inside.
    left = read(RemoteAddress(slot + SLOT_LEFT), 8)
    entered = read(RemoteAddress(slot + SLOT_ENTERED), 8)
    return int.from_bytes(entered, "little"), int.from_bytes(left, "little")
