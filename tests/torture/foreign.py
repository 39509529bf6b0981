"""Foreign sites, switched by the public door while threads and handlers of signals execute them:
USDT probes and functions whose five bytes lie across cache lines and pages.

The program checks each value itself. In between all of it stands still at its gate, so that what
was counted can be compared with the turns that it took, and its code with that from before.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import markerjit
from tests.torture.victims import ROOT, Victim, victim

PROGRAM = ROOT / "build" / "targets" / "truth_foreign"
USDT = "torture:*"
PATTERNS = (
    USDT,
    "func:torture_*",
    f"{USDT},func:torture_*",
    "func:torture_*:return",
    "torture:line*",
    "func:torture_line2",
)
MODES = (None, markerjit.Mode.INT3)
COUNTED_EVERY = 13
"""After so many switches on and off it stands still once, and what was counted is compared."""


@dataclass
class Foreign:
    """The sums of a run. `compared` is how often counts and code were compared, and `different` how
    often they were not as they should be, with the first difference."""

    flips: int = 0
    turns: int = 0
    signals: int = 0
    torn: int = 0
    compared: int = 0
    different: int = 0
    first: str = ""

    @property
    def is_right(self) -> bool:
        """Whether all was executed and counted as it should be, and something was."""
        return not self.torn and not self.different and min(self.turns, self.compared) > 0

    def compare(self, what: str, actual: object, expected: object) -> None:
        """Note a difference."""
        if actual != expected:
            self.different += 1
            self.first = self.first or f"{what}: {actual}, and not {expected}"


def switch_foreign(is_over: Callable[[Foreign], bool]) -> Foreign:
    """Switch sites of a program on and off, in all ways in turns, until it is over."""
    seen = Foreign()
    with victim([], PROGRAM) as target, markerjit.attach(target.pid, breakpoints=True) as session:
        before = code_of(session)
        target.command("resume")
        while not seen.flips or not is_over(seen):
            turn = seen.flips // 2
            pattern = PATTERNS[turn % len(PATTERNS)]
            mode = MODES[turn // len(PATTERNS) % len(MODES)]
            session.on(pattern, mode=mode)
            session.off(pattern)
            seen.flips += 2
            if turn % COUNTED_EVERY == COUNTED_EVERY - 1:
                compare_counts(seen, target, session, pattern, mode)
                seen.compare("code", code_of(session), before)
        after = target.ask("pause")
        seen.compare("code", code_of(session), before)
    seen.turns, seen.signals, seen.torn = after["turns"], after["signals"], after["torn"]
    seen.compare("semaphore", after["raised"], 0)
    return seen


def compare_counts(
    seen: Foreign, target: Victim, session: markerjit.Session, pattern: str,
    mode: markerjit.Mode | None,
) -> None:  # fmt: skip
    """Have all of it run for a while with sites on that come and go while it stands still."""
    before = target.ask("pause")["turns"]
    session.on(pattern, mode=mode)
    target.command("resume")
    turns = target.ask("pause")["turns"] - before
    hits = {status.name: status.hits for status in session.statistics(pattern) if status.mode}
    seen.compare(f"hits of {pattern}", hits, dict.fromkeys(hits, turns))
    seen.compare("sites that are on", bool(hits), True)
    session.off(pattern)
    target.command("resume")
    seen.compared += 1


def code_of(session: markerjit.Session) -> bytes:
    """The code of the program's file."""
    with markerjit.View(session.pid) as view:
        return b"".join(
            view.read(each.start, each.end - each.start)
            for each in view._target.seen.maps
            if each.executable and each.path == str(PROGRAM)
        )
