"""`stop`: every thread of another process stands from before the comparison until after the check.

What it proves. No thread executes user code while bytes are compared, written and read back. Each
has left user code by an interrupt, and comes back by iret; or it was in a system call, has slept
since, and its core has taken the interrupt that woke it. iret serialises, so none runs bytes that
were fetched before. A thread that will go on inside a span of several bytes is looked for, in its
registers and in the signal frames on its stacks, and the change then waits.

Authority. Intel SDM volume 3, "Handling Self- and Cross-Modifying Code" (8.1.3 in most editions)
asks that the executing processor runs a serialising instruction after the change; "Serializing
Instructions" (8.3) names IRET. AMD APM volume 2, 7.6.1 says the same of cross-modifying code. That
threads stand: ptrace(2), PTRACE_INTERRUPT.

What it does not cover: our own process, which cannot stop itself.
"""

from __future__ import annotations

from markerjit.model import Change, Quiescence
from markerjit.quiesce.strategy.base import Strategy
from markerjit.remote import native


def _refusal(change: Change, *, atomic: bool, own: bool) -> str | None:
    if own:
        return "a process cannot stop all its own threads; use membarrier"
    return None


STOP = Strategy(
    str(Quiescence.STOP),
    native.STOP,
    "stop every thread of the process (ptrace), new ones too, until none is new",
    True,
    False,
    _refusal,
)
