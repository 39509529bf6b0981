"""Switching off at the end of a trace or an aggregate, which has to be done."""

from __future__ import annotations

from collections.abc import Callable
from time import monotonic, sleep

from markerjit.errors import MarkerError, NoSuchProcess, NotPermitted, Refused, TargetGone
from markerjit.session.switch import Switcher
from markerjit.session.turn import Turn
from markerjit.sites import ProbeName

_TRY_AGAIN_S = 30


def insist(switcher: Switcher, name: ProbeName, end: Callable[[Turn], None]) -> None:
    """Do it in a turn, and try again for half a minute where that may help: another controller or
    tracer is at work, or a thread waits in the kernel. No later caller would try again."""
    deadline = monotonic() + _TRY_AGAIN_S
    while True:
        try:
            with switcher.turn() as turn:
                end(turn)
            return
        except (TargetGone, NoSuchProcess):
            raise
        except MarkerError as error:
            passing = isinstance(error, Refused) and error.try_again
            may_help = passing or isinstance(error, NotPermitted)
            if not may_help or monotonic() > deadline:
                raise Refused(
                    f"{error}; STILL ON: markerjit off {switcher.target.pid} '{name}' ends it",
                    try_again=may_help,
                ) from None
        sleep(0.05)
