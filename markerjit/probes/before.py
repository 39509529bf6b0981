"""The sizes of what stands before a stub, in the order of its addresses.

    two descriptors of restartable sequences (fast.py), of which the second may be empty
    the number of the way of recording that the stub knows, and what fills it up to 16 bytes
    the mark of the site (session/opened.py)

A controller that only finds stubs needs no more than this of how they are made.
"""

from __future__ import annotations

import struct

SEQUENCE = struct.Struct("<IIQQQ")
"""struct mj_restartable."""
WAY_AT = 2 * SEQUENCE.size
"""The offset behind the descriptors of the number that says which records the stub knows."""
BEFORE = WAY_AT + 16
"""Bytes of what belongs to a stub's fast path."""
MARK_SIZE = 32
"""Of the mark of its site, which stands right before a stub."""
BEFORE_STUB = BEFORE + MARK_SIZE
"""Bytes of all that stands before a stub."""
