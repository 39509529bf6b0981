"""Several bytes of code under threads that run: a breakpoint first.

    step 0   int3 on the first byte, then synchronise: a thread that arrives now traps
    step 1   the tail, then synchronise: no thread executes it, at any alignment
    step 2   the first byte, then synchronise

The SIGTRAP handler completes the instruction for a thread that traps: it goes on at `completion`.
So this is for a span that is one instruction before and after, and whose effect is a place to go on
at: a jump, a call, a no-op, a marker's site.

Authority: arch/x86/kernel/alternative.c of Linux (smp_text_poke_batch), whose comments name the
vendors' word; the Intel SDM's own text (volume 3, 8.1.3) promises less. Without the
synchronisation it tears: seen, and kept as a test (tests/races).

It is also used while all threads stand, where its first byte matters only if we are killed in the
middle: then they run on with a breakpoint in place, and not with half an instruction.

Steps that change nothing are left out: where the first byte already is, or is to stay, int3.
"""

from __future__ import annotations

from markerjit.errors import Reason
from markerjit.model import Change, Edit
from markerjit.patch.protocol.base import Context, Refusal, judged, refusal
from markerjit.x86.forms import INT3

_TRAP = bytes([INT3])


def plan(change: Change, context: Context) -> tuple[Edit, ...] | Refusal:
    """Up to three edits, a step each."""
    if not change.code or len(change.old) < 2:
        return refusal(change, Reason.NOT_ITS_CHANGE, "no span of code")
    if change.completion is None or not context.handler:
        return refusal(
            change,
            Reason.NO_PROTOCOL,
            "nothing would complete the instruction at a breakpoint",
        )
    refused = judged(change, context, atomic=True)
    if refused:
        return refused
    steps = (
        (0, change.old[:1], _TRAP),
        (1, change.old[1:], change.new[1:]),
        (0, _TRAP, change.new[:1]),
    )
    edits: list[Edit] = []
    for number, (offset, old, new) in enumerate(steps):
        if old != new:
            place = type(change.address)(change.address + offset)
            again = number == 2 and change.old[:1] != _TRAP
            edits.append(Edit(place, old, new, change.what, True, step=number, again=again))
    if len(edits) > 1 and not (context.strategy.stops or context.strategy.fence):
        return refusal(
            change,
            Reason.QUIESCENCE,
            f"{len(edits)} steps need the cores synchronised between them, and quiescence "
            f"{context.strategy.name} does not; use stop or membarrier",
        )
    return tuple(edits)
