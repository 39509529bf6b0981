"""Whether threads write to the ring of the CPU that they are on, and an end to that.

The word `alive` bounds the numbers of CPUs: a recorder that reads another one leaves the event to
the shared rings. It is the target's own memory, not of the memfd.
"""

from __future__ import annotations

from markerjit.abi import ALIVE
from markerjit.arena.arena import Arena
from markerjit.memory import Memory
from markerjit.model import RemoteAddress

_HALF = 4


def has_own_rings(memory: Memory, arena: Arena) -> bool:
    """Whether a CPU's own ring may be written, in restartable sequences."""
    cpus = memory.read(RemoteAddress(arena.base + ALIVE), _HALF)
    return bool(arena.facts.rseq_offset) and any(cpus)


def close_own_rings(memory: Memory, arena: Arena) -> None:
    """From now on all write to the shared rings. The caller holds the target's lock.

    The upper half of the word first: at no moment is all of it zero, as it is in a fork's child.
    """
    alive = RemoteAddress(arena.base + ALIVE)
    memory.write(RemoteAddress(alive + _HALF), (1).to_bytes(_HALF, "little"))
    memory.write(alive, bytes(_HALF))
