"""Several bytes of code at once, while all threads stand.

Why it is safe: no thread runs, and the native part refuses while a thread would resume between the
first byte and the end: by its own instruction pointer, or by one in a signal frame on its stacks
(native/src/stop/stacks.c says which frames it finds). It does not survive the controller's death
between the bytes; so they may not cross a page, at whose border the kernel's copy can be
interrupted. Where a breakpoint can be completed, that protocol is chosen first.
"""

from __future__ import annotations

from markerjit.abi import PAGE
from markerjit.errors import Reason
from markerjit.model import Change, Edit
from markerjit.patch.protocol.base import Context, Refusal, judged, one_edit, refusal


def plan(change: Change, context: Context) -> tuple[Edit, ...] | Refusal:
    """One edit of the whole span."""
    if not change.code or len(change.old) < 2:
        return refusal(change, Reason.NOT_ITS_CHANGE, "no span of code")
    if not context.strategy.stops:
        return refusal(
            change,
            Reason.QUIESCENCE,
            f"{len(change.old)} bytes change at once, and threads run; use --quiesce stop",
        )
    if change.address // PAGE != (change.address + len(change.old) - 1) // PAGE:
        return refusal(
            change,
            Reason.NO_PROTOCOL,
            "the span crosses a page, and has no breakpoint to lean on",
        )
    return judged(change, context, atomic=False) or one_edit(change)
