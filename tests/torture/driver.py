"""Runs one combination on a fresh victim and counts what was seen.

The judge is `Seen.wrong`. It lists every sign in a run of an allowed combination that something is
broken. A flip that is issued is not a flip that is observed, so a run in which the victim saw none
is wrong, too: it proves nothing.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, fields

from tests.torture.combinations import Combination, LeftOut
from tests.torture.outside import Controller, Flipped, Refused
from tests.torture.victims import PLUGIN, Died, Victim, victim

FIRST_CHUNK = 8
CHUNK_S = 0.25


@dataclass
class Seen:
    """The counts of one run, or of several added up."""

    flips: int = 0  # places changed
    transactions: int = 0
    refused: int = 0  # transactions that were taken back, as they may be
    transitions: int = 0  # flips that some thread observed
    executions: int = 0
    old: int = 0
    new: int = 0
    torn: int = 0
    stale: int = 0
    trapped: int = 0
    births: int = 0
    signals: int = 0
    libraries: int = 0
    runs: int = 0
    seconds: float = 0
    ended: str = ""  # why the victim did not come to its end
    unsettled: str = ""  # forms at the end that are not those that the controller left

    def add(self, other: Seen) -> None:
        for field in fields(self):
            ours, theirs = getattr(self, field.name), getattr(other, field.name)
            setattr(self, field.name, (ours or theirs) if field.type == "str" else ours + theirs)

    def wrong(self, *, stale_allowed: bool = False) -> list[str]:
        """The faults of the run, a sentence each; none, if the product is right."""
        faults = []
        if self.ended:
            faults.append(self.ended)
        elif self.executions != self.old + self.new + self.torn:
            faults.append(f"{self.executions} executions, {self.old} old, {self.new} new")
        if self.torn:
            faults.append(f"{self.torn} torn executions")
        if self.stale and not stale_allowed:
            faults.append(f"{self.stale} executions of a form that was gone")
        if self.unsettled:
            faults.append(self.unsettled)
        if not self.transitions:
            faults.append("no flip was observed")
        return faults

    def as_dict(self) -> dict[str, object]:
        return asdict(self)


def allowed_wrongs(combination: Combination, seen: Seen) -> list[str]:
    """The faults in a run of an allowed combination. Without synchronising a thread may run the old
    form for a moment more."""
    return seen.wrong(stale_allowed=combination.quiescence == "none")


def failed(seen: Seen) -> bool:
    """Whether the variant failed: an execution was torn, or ended the process."""
    return bool(seen.torn) or seen.ended.startswith("died SIG")


# Whether a run may end, asked after each chunk.
Enough = Callable[[Seen], bool]


def arguments(combination: Combination) -> list[str]:
    """The victim's command line."""
    crowd = combination.crowd
    words = [combination.shape, "--places", str(combination.places)]
    words += ["--threads", str(crowd.threads)]
    if combination.across[0]:
        words += ["--across", *map(str, combination.across)]
    if combination.via in ("store", "raw"):
        words.append("--alias")
    if crowd.births:
        words.append("--births")
    if crowd.signals:
        words.append("--signals")
    if crowd.libraries:
        words += ["--plugin", str(PLUGIN)]
    return words


def run(combination: Combination, enough: Enough) -> Seen:
    """Flip in chunks until `enough` holds, an execution is torn, or the victim died."""
    seen = Seen(runs=1)
    began = time.monotonic()
    try:
        with victim(arguments(combination)) as target:
            if combination.inside:
                _run_inside(target, combination, enough, seen)
            else:
                _run_outside(target, combination, enough, seen)
    except (Died, Refused) as error:
        seen.ended = str(error)
    seen.seconds = time.monotonic() - began
    return seen


def run_left_out(left_out: LeftOut) -> Seen:
    """Run the variant until it fails, or until it should long have failed."""
    seen = Seen()
    for _ in range(left_out.victims):
        seen.add(run(left_out.combination, lambda seen: seen.flips >= left_out.within))
        if failed(seen):
            break
    return seen


def _run_inside(target: Victim, combination: Combination, enough: Enough, seen: Seen) -> None:
    words = f"{combination.protocol} {combination.via} {combination.quiescence}"

    def flip(transactions: int) -> Flipped:
        answer = target.ask(f"flip {transactions} {words}")
        if answer["status"]:
            raise Refused(f"mj_apply: {answer}")
        return Flipped(answer["transactions"], answer["places"], answer["refused"])

    _run_chunks(target, flip, enough, seen)
    forms = target.command("settled")
    if forms["forms"] != forms["expected"]:
        seen.unsettled = f"left {forms['expected']}, executed {forms['forms']}"


def _run_outside(target: Victim, combination: Combination, enough: Enough, seen: Seen) -> None:
    with Controller(
        target, combination.places, combination.protocol, combination.quiescence
    ) as controller:
        try:
            _run_chunks(target, controller.flip, enough, seen)
        except Refused:
            target.ask("counts")  # raises Died, which says more, if it died
            raise
        expected = "".join(map(str, controller.forms))
    executed = target.command("settled")["forms"]
    if executed != expected:
        seen.unsettled = f"left {expected}, executed {executed}"


def _run_chunks(target: Victim, flip: Callable[[int], Flipped], enough: Enough, seen: Seen) -> None:
    chunk = FIRST_CHUNK
    target.ask("resume")
    while True:
        began = time.monotonic()
        flipped = flip(chunk)
        seen.flips += flipped.places
        seen.transactions += flipped.transactions
        seen.refused += flipped.refused
        _take_counts(seen, target.ask("counts"))
        if seen.torn or enough(seen):
            break
        if time.monotonic() - began < CHUNK_S:
            chunk *= 2
    _take_counts(seen, target.ask("pause"))


def _take_counts(seen: Seen, counts: dict[str, int]) -> None:
    for name, value in counts.items():
        if hasattr(seen, name):
            setattr(seen, name, value)
