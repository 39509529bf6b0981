"""What the strategies of quiescence have in common."""

from __future__ import annotations

from typing import NamedTuple, Protocol

from markerjit.model import Change


class Refuse(Protocol):
    """Says why a strategy does not cover a change made as a protocol makes it, or None."""

    def __call__(self, change: Change, *, atomic: bool, own: bool) -> str | None:
        """`atomic`: the change is one store, or one byte; `own`: of our own process."""


class Strategy(NamedTuple):
    """A way to be sure that no thread is harmed by a change.

    number     as the native part knows it (stop.h)
    explained  what it does, a line for people
    stops      whether threads of the target stand still
    borrows    whether it needs a thread of another process, for system calls
    refusal    why it does not cover a change
    """

    name: str
    number: int
    explained: str
    stops: bool
    borrows: bool
    refusal: Refuse
