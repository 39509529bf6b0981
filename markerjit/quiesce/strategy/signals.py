"""`signals`: threads run on; after each step that changes code, each runs a handler of ours.

What it proves. A real-time signal is sent to every thread of our own process; its handler executes
CPUID, which serialises, and reports. When all have reported, none runs bytes older than the step. A
thread that is new meanwhile was started by one of them.

Authority. Intel SDM volume 3, "Serializing Instructions"; AMD APM volume 2, 7.6.4; tgkill(2).

It is for kernels without membarrier's SYNC_CORE (before 4.16, or where it is configured out). It is
cooperative: a thread that blocks the signal or does not get a CPU makes the step fail, and the
change is taken back. Another process has no handler of ours, so it is refused there.
"""

from __future__ import annotations

from markerjit.model import Change, Quiescence
from markerjit.quiesce.strategy.base import Strategy
from markerjit.quiesce.strategy.membarrier import running_refusal
from markerjit.remote import native


def _refusal(change: Change, *, atomic: bool, own: bool) -> str | None:
    if not own:
        return "another process has no handler of ours; use stop or membarrier"
    return running_refusal(change, atomic=atomic, own=own)


SIGNALS = Strategy(
    str(Quiescence.SIGNALS),
    native.SIGNALS,
    "leave threads running; after each step run a handler in every thread (a real-time signal)",
    False,
    False,
    _refusal,
)
