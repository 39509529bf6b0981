"""The steps of an allocator, of which the runtime makes blocks (native/src/runtime/heap.c).

An allocation is a step when it returns, and a free when it begins: between the two, and only then,
the block belongs to the program. So the steps of one address alternate, whatever threads there are.
A reallocation is both: its old block is given up when it begins, and its new one is there when it
returns.
"""

from __future__ import annotations

from enum import IntEnum

import markerjit.abi as abi


class Kind(IntEnum):
    """Kinds of steps.

    FREE    a block is given back
    MOVE    a reallocation begins: its old block is given up
    ALLOC   a block was allocated
    OUTER   the same, by a function that may have called another allocating one for it
    MOVED   a reallocation has returned. Without a block, and with a size: the old one is as before
    RESULT  what a function returned that another one may have left an allocation to
    """

    FREE = abi.STEP_FREE
    MOVE = abi.STEP_MOVE
    ALLOC = abi.STEP_ALLOC
    OUTER = abi.STEP_OUTER
    MOVED = abi.STEP_MOVED
    RESULT = abi.STEP_RESULT


UNSEEN, CONTINUED, OWN = abi.BLOCK_UNSEEN, abi.BLOCK_CONTINUED, abi.BLOCK_OWN
"""In the place of a block, which has no such address: it is not known; the next result in the
thread is the block; a function that is jumped to has steps of its own."""

GIVES = {"glibc": abi.GIVES_GLIBC, "jemalloc": abi.GIVES_JEMALLOC, "": abi.GIVES_ASKED}
"""The rule of the bytes that an allocator gives, by its name; "" of others."""
