"""`none`: threads run on, and nothing is synchronised.

What it proves: nothing. It rests on the change being one store that cannot be seen in part, and is
refused for any other.

Authority. AMD APM volume 2, 7.6.1: a store inside a naturally aligned quadword is seen as a whole
by a processor that executes it. Intel promises nothing without a serialising instruction on the
executing processor (SDM volume 3, 8.1.3); there it rests on measurement, by `make torture`
(docs/explanation/torture.md). When a thread first sees the change is not defined; within a
microsecond, it was seen.
"""

from __future__ import annotations

from markerjit.model import Quiescence
from markerjit.quiesce.strategy.base import Strategy
from markerjit.quiesce.strategy.membarrier import running_refusal
from markerjit.remote import native

NONE = Strategy(
    str(Quiescence.NONE),
    native.NONE,
    "leave threads running and synchronise nothing: each edit is one store",
    False,
    False,
    running_refusal,
)
