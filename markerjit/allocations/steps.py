"""The steps of an allocator, from which the runtime makes blocks (native/src/runtime/heap.c).

The step of an allocation is its return, and that of a free is its beginning. The block belongs to
the program between these two, and only then. So the steps of one address alternate, whatever
threads make them. A reallocation has two steps: it gives up the old block when it begins, and gives
the new one when it returns.
"""

from __future__ import annotations

from enum import IntEnum

import markerjit.abi as abi


class Kind(IntEnum):
    """Kinds of steps.

    FREE    a block is given back
    MOVE    a reallocation begins: its old block is given up
    ALLOC   a block was allocated
    OUTER   a block was allocated, by a function that may have called another one to allocate it
    MOVED   a reallocation has returned. If it has a size and no block, the old block is unchanged
    RESULT  a function has returned, to which another one may have left its allocation by a jump
    """

    FREE = abi.STEP_FREE
    MOVE = abi.STEP_MOVE
    ALLOC = abi.STEP_ALLOC
    OUTER = abi.STEP_OUTER
    MOVED = abi.STEP_MOVED
    RESULT = abi.STEP_RESULT


UNSEEN, CONTINUED, OWN = abi.BLOCK_UNSEEN, abi.BLOCK_CONTINUED, abi.BLOCK_OWN
"""Values in the place of a block, which no block has as its address. UNSEEN: the block is not
known. CONTINUED: the next RESULT of the thread is the block. OWN: the function that is jumped to
has steps of its own."""

GIVES = {"glibc": abi.GIVES_GLIBC, "jemalloc": abi.GIVES_JEMALLOC, "": abi.GIVES_ASKED}
"""The rules for the bytes that an allocator gives, by its name; "" for other allocators."""
