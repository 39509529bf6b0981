"""One byte decides, so one write of one byte is the whole protocol.

Why it is safe: a byte has no parts. A thread executes the old instruction or the new one; both have
the same length, so it goes on at the same place. This holds at any alignment, also where the
instruction crosses a cache line or a page, because its other bytes never change.

From outside, /proc/PID/mem takes the byte to its place; inside, the same, since text is not
writable. Every strategy covers it; each says what it adds.
"""

from __future__ import annotations

from markerjit.errors import Reason
from markerjit.model import Change, Edit
from markerjit.patch.protocol.base import Context, Refusal, judged, one_edit, refusal


def plan(change: Change, context: Context) -> tuple[Edit, ...] | Refusal:
    """One edit of one byte."""
    if not change.code or len(change.old) != 1:
        return refusal(
            change, Reason.NOT_ITS_CHANGE, f"{len(change.old)} bytes are not one of code"
        )
    return judged(change, context, atomic=True) or one_edit(change)
