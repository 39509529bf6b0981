"""What allocators do, step by step, as columns of numbers in order of time.

An allocation is a step when it returns, and a free when it begins: between the two, and only then,
the block belongs to the program. So the steps of one address alternate, whatever threads there are.
A reallocation is both: its old block is given up when it begins, and its new one is there when it
returns.
"""

from __future__ import annotations

from enum import IntEnum
from typing import TYPE_CHECKING, Self

import numpy as np

from markerjit.tuples import NamedTuple

if TYPE_CHECKING:
    from markerjit.ring.batch import Array


class Kind(IntEnum):
    """Kinds of steps.

    FREE    a block is given back
    MOVE    a reallocation begins: its old block is given up
    ALLOC   a block was allocated
    OUTER   the same, by a function that may have called another allocating one for it
    MOVED   a reallocation has returned. Without a block, and with a size: the old one is as before
    UNSEEN  a block was allocated, and its address is not known
    RESULT  what a function returned that another one may have left an allocation to
    """

    FREE = 0
    MOVE = 1
    ALLOC = 2
    OUTER = 3
    MOVED = 4
    UNSEEN = 5
    RESULT = 6


UNSEEN, CONTINUED, OWN = 1, 2, 3
"""In the place of a block, which has no such address: it is not known; the next result in the
thread is the block; a function that is jumped to has steps of its own."""


class Steps(NamedTuple):
    """Steps in order of time.

    kind   a Kind
    tid    the thread, and `cpu` the CPU
    time   nanoseconds of CLOCK_MONOTONIC
    block  the address; 0 of an allocation that failed
    asked  bytes that were asked for; 0 of a free
    given  bytes that the allocator gave
    site   the number of the call site
    """

    kind: Array
    tid: Array
    cpu: Array
    time: Array
    block: Array
    asked: Array
    given: Array
    site: Array

    @property
    def rows(self) -> int:
        """How many there are."""
        return len(self.kind)

    def picked(self, rows: Array | slice) -> Self:
        """Those of these rows, in this order."""
        return type(self)(*(column[rows] for column in self))

    @classmethod
    def joined(cls, parts: list[Self]) -> Self:
        """All of these, one part behind the other."""
        if not parts:
            return cls(*(np.zeros(0, kind) for kind in _COLUMNS))
        return cls(*(np.concatenate(column) for column in zip(*parts, strict=True)))


_COLUMNS = (
    np.uint8, np.uint32, np.uint16, np.int64, np.uint64, np.int64, np.int64, np.int64,
)  # fmt: skip


def steps_of(*columns: object) -> Steps:
    """Steps of these columns, in the types that they have. Raises ValueError where they are not as
    long."""
    made = Steps(
        *(np.asarray(column).astype(kind) for column, kind in zip(columns, _COLUMNS, strict=True))
    )
    if len({len(column) for column in made}) > 1:
        raise ValueError("columns are not as long as each other")
    return made


NO_STEPS = Steps.joined([])
