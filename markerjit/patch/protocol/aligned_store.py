"""Two, four or eight bytes by one store, in our own process where they can be stored to.

Why it is safe: an aligned store is one access (Intel SDM volume 3, "Guaranteed Atomic Operations";
AMD APM volume 2, 7.3.2), and of code inside one naturally aligned quadword AMD promises that
another processor fetches all of it or nothing (APM volume 2, 7.6.1). Intel promises that of data
only; for code it was measured (docs/explanation/torture.md), and a strategy that fences puts an end
to the time in which it has to be believed.

Refused from outside: the kernel does not promise to copy into another process by a single store.
Refused for bytes that cross an aligned quadword: those were seen torn. A change that does not fill
a word of 2, 4 or 8 bytes has to be widened by its planner with the bytes around it.
"""

from __future__ import annotations

from markerjit.errors import Reason
from markerjit.model import Change, Edit
from markerjit.patch.protocol.base import Context, Refusal, judged, one_edit, refusal

SIZES = (2, 4, 8)


def plan(change: Change, context: Context) -> tuple[Edit, ...] | Refusal:
    """One edit, made by a store."""
    size = len(change.old)
    if not change.code or size < 2:
        return refusal(change, Reason.NOT_ITS_CHANGE, "no span of code")
    if size not in SIZES or change.address % size:
        return refusal(
            change,
            Reason.NO_PROTOCOL,
            f"{size} bytes at {change.address:#x} are not an aligned word",
        )
    if not context.own or not context.writable:
        return refusal(
            change,
            Reason.NO_PROTOCOL,
            "only writable memory of this process can be stored to",
        )
    return judged(change, context, atomic=True) or one_edit(change, store=True)
