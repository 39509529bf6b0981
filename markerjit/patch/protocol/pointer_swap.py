"""An aligned word of data: a slot's probe, or what belongs to it; and the count in a semaphore.

Why it is safe: in our own process it is one store (Intel SDM volume 3, "Guaranteed Atomic
Operations"). From outside the kernel makes the copy, and it does not promise to use a single store.
So either threads stand, or none reads the word now: the slot of a closed site is quiet.
"""

from __future__ import annotations

from markerjit.errors import Reason
from markerjit.model import Change, Edit
from markerjit.patch.protocol.base import Context, Refusal, judged, one_edit, refusal

SIZES = (2, 8)


def plan(change: Change, context: Context) -> tuple[Edit, ...] | Refusal:
    """One edit of the word."""
    if change.code:
        return refusal(change, Reason.NOT_ITS_CHANGE, "code is not an aligned word")
    if len(change.old) not in SIZES or change.address % len(change.old):
        return refusal(change, Reason.NO_PROTOCOL, "not an aligned word")
    return judged(change, context, atomic=True) or one_edit(change, store=context.own)
