"""`membarrier`: threads run on; after each step that changes code, every core has serialised.

What it proves. When membarrier(MEMBARRIER_CMD_PRIVATE_EXPEDITED_SYNC_CORE) returns, every core that
was running a thread of the process has executed a serialising instruction since the call, and any
other will before it runs one. So after each step no thread runs bytes older than that step. It acts
on the process that calls it: for another one a borrowed thread makes the call.

Authority. membarrier(2); arch/x86/include/asm/sync_core.h of Linux. With a breakpoint as the first
step this is what Linux does for its own code (smp_text_poke_batch, arch/x86/kernel/alternative.c),
and what Intel's and AMD's engineers confirmed there.

What it does not prove: anything about the moment between the write and the fence. There a thread
may execute the old bytes or the new ones, so the change itself must be one that cannot be seen in
part: one byte, one aligned store, or a breakpoint first. And nothing about data that threads read
meanwhile: from outside a pointer is written by a copy of the kernel's, of which nobody promises
that it is one store.
"""

from __future__ import annotations

from markerjit.model import Change, Quiescence
from markerjit.quiesce.strategy.base import Strategy
from markerjit.remote import native


def running_refusal(change: Change, *, atomic: bool, own: bool) -> str | None:
    """The same for every strategy under which threads run."""
    if change.code or own or change.quiet:
        return None if atomic else f"{len(change.new)} bytes change while threads run"
    return "threads read it meanwhile, and from outside it is not one store; use --quiesce stop"


MEMBARRIER = Strategy(
    str(Quiescence.MEMBARRIER),
    native.MEMBARRIER,
    "leave threads running; fence every core after each step (membarrier SYNC_CORE in the process)",
    False,
    True,
    running_refusal,
)
