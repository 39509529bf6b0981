"""The strategies of quiescence, by name: each is a way to make a change without harm to any thread.

Each says what it proves, on whose authority, and what it does not prove.

This module does not stop or fence anything. The native part does, by a strategy's number. The
protocols ask which changes a strategy covers.
"""

from __future__ import annotations

from typing import Protocol

from markerjit.model import Change, Quiescence
from markerjit.remote import native
from markerjit.tuples import NamedTuple

__all__ = ["MEMBARRIER", "NONE", "SIGNALS", "STOP", "STRATEGIES", "Strategy", "default_strategy"]


class Refuse(Protocol):
    """A function that returns why a strategy does not cover a change that a protocol makes, or
    None."""

    def __call__(self, change: Change, *, atomic: bool, own: bool) -> str | None:
        """`atomic` says that the change is one store, or one byte. `own` says that it is in our own
        process."""


class Strategy(NamedTuple):
    """A way to be sure that no thread is harmed by a change.

    number     as the native part knows it (stop.h)
    explained  what it does, a line for people
    stops      whether threads of the target stand still
    borrows    whether it needs a thread of another process, for system calls
    proves     what holds once it has begun, a line for people
    fence      how every core is synchronised after each step that changes code; empty if it is not
    refusal    why it does not cover a change
    """

    name: str
    number: int
    explained: str
    stops: bool
    borrows: bool
    proves: str
    fence: str
    refusal: Refuse


def _refuses_itself(change: Change, *, atomic: bool, own: bool) -> str | None:
    if own:
        return "a process cannot stop all its own threads; use membarrier"
    return None


def _refuses_parts(change: Change, *, atomic: bool, own: bool) -> str | None:
    """Refuse a change that running threads could see in part."""
    if change.code or own or change.quiet:
        return None if atomic else f"{len(change.new)} bytes change while threads run"
    return "threads read it meanwhile, and from outside it is not one store; use --quiesce stop"


def _refuses_others(change: Change, *, atomic: bool, own: bool) -> str | None:
    if not own:
        return "another process has no handler of ours; use stop or membarrier"
    return _refuses_parts(change, atomic=atomic, own=own)


STOP = Strategy(
    str(Quiescence.STOP),
    native.STOP,
    "stop every thread of the process (ptrace), new ones too, until none is new",
    True,
    False,
    "no thread executes user code until all threads are resumed",
    "",
    _refuses_itself,
)
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

It does not cover our own process, which cannot stop itself.
"""

MEMBARRIER = Strategy(
    str(Quiescence.MEMBARRIER),
    native.MEMBARRIER,
    "leave threads running; fence every core after each step (membarrier SYNC_CORE in the process)",
    False,
    True,
    "a thread of the process is at hand for the fences; the others run on",
    "membarrier SYNC_CORE in the process",
    _refuses_parts,
)
"""`membarrier`: threads run on; after each step that changes code, every core has serialised.

What it proves. When membarrier(MEMBARRIER_CMD_PRIVATE_EXPEDITED_SYNC_CORE) returns, every core that
was running a thread of the process has executed a serialising instruction since the call, and any
other will before it runs one. So after each step no thread runs bytes older than that step. It acts
on the process that calls it: for another one a borrowed thread makes the call.

Authority. membarrier(2); arch/x86/include/asm/sync_core.h of Linux. With a breakpoint as the first
step this is what Linux does for its own code (smp_text_poke_batch, arch/x86/kernel/alternative.c),
and what Intel's and AMD's engineers confirmed there.

It does not prove anything about the moment between the write and the fence. In that moment a thread
may execute the old bytes or the new ones, so no thread may be able to see part of the change. It
must be one byte, one aligned store, or begin with a breakpoint. Nor does it prove anything about
data that threads read meanwhile. When another process is changed, the kernel copies a pointer, and
it does not promise to use a single store.
"""

SIGNALS = Strategy(
    str(Quiescence.SIGNALS),
    native.SIGNALS,
    "leave threads running; after each step run a handler in every thread (a real-time signal)",
    False,
    False,
    "nothing yet; every thread runs on",
    "a signal handler in every thread executes CPUID",
    _refuses_others,
)
"""`signals`: threads run on; after each step that changes code, each runs a handler of ours.

What it proves. A real-time signal is sent to every thread of our own process; its handler executes
CPUID, which serialises, and reports. When all have reported, none runs bytes older than the step. A
thread that is new meanwhile was started by one of them.

Authority. Intel SDM volume 3, "Serializing Instructions"; AMD APM volume 2, 7.6.4; tgkill(2).

It is for kernels without membarrier's SYNC_CORE (before 4.16, or where it is configured out). It is
cooperative: a thread that blocks the signal or does not get a CPU makes the step fail, and the
change is taken back. Another process has no handler of ours, so it is refused there.
"""

NONE = Strategy(
    str(Quiescence.NONE),
    native.NONE,
    "leave threads running and synchronise nothing: each edit is one store",
    False,
    False,
    "nothing; each edit is one store",
    "",
    _refuses_parts,
)
"""`none`: threads run on, and nothing is synchronised.

It proves nothing. It rests on the change being one store that cannot be seen in part, and is
refused for any other.

Authority. AMD APM volume 2, 7.6.1: a store inside a naturally aligned quadword is seen as a whole
by a processor that executes it. Intel promises nothing without a serialising instruction on the
executing processor (SDM volume 3, 8.1.3); there it rests on measurement, by `make torture`
(docs/explanation/torture.md). When a thread first sees the change is not defined; within a
microsecond, it was seen.
"""

STRATEGIES = {strategy.name: strategy for strategy in (STOP, MEMBARRIER, SIGNALS, NONE)}


def default_strategy(*, own: bool) -> Strategy:
    """Stop another process; fence our own."""
    return MEMBARRIER if own else STOP
