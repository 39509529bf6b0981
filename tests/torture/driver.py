"""Runs one combination on a fresh victim and says what was seen.

The judge is `Seen.wrong`: everything by which a run of an allowed combination shows that something
is broken. Flips issued are not flips observed, so a run in which the victim saw too few is wrong
too: it proves nothing.
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
            mine, more = getattr(self, field.name), getattr(other, field.name)
            setattr(self, field.name, (mine or more) if field.type == "str" else mine + more)

    def wrong(self, *, stale_allowed: bool = False) -> list[str]:
        """What is wrong with it; nothing, if the product is right."""
        found = []
        if self.ended:
            found.append(self.ended)
        elif self.executions != self.old + self.new + self.torn:
            found.append(f"{self.executions} executions, {self.old} old, {self.new} new")
        if self.torn:
            found.append(f"{self.torn} torn executions")
        if self.stale and not stale_allowed:
            found.append(f"{self.stale} executions of a form that was gone")
        if self.unsettled:
            found.append(self.unsettled)
        if not self.transitions:
            found.append("no flip was observed")
        return found

    def as_dict(self) -> dict[str, object]:
        return asdict(self)


def allowed_wrongs(combination: Combination, seen: Seen) -> list[str]:
    """What is wrong with a run of something allowed. With nothing synchronised a thread may run
    the old form for a moment more."""
    return seen.wrong(stale_allowed=combination.quiescence == "none")


def failed(seen: Seen) -> bool:
    """Whether what was left out was missed: a torn execution, or one that nobody survived."""
    return bool(seen.torn) or seen.ended.startswith("died SIG")


# After a chunk: is it enough?
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
    """Flip in chunks until it is enough, or something is torn, or the victim died."""
    seen = Seen(runs=1)
    began = time.monotonic()
    try:
        with victim(arguments(combination)) as target:
            if combination.inside:
                _run_inside(target, combination, enough, seen)
            else:
                _run_outside(target, combination, enough, seen)
    except (Died, Refused) as why:
        seen.ended = str(why)
    seen.seconds = time.monotonic() - began
    return seen


def run_left_out(left_out: LeftOut) -> Seen:
    """Until it fails, or until it should long have failed."""
    seen = Seen()
    for _ in range(left_out.victims):
        seen.add(run(left_out.combination, lambda seen: seen.flips >= left_out.within))
        if failed(seen):
            break
    return seen


def _run_inside(target: Victim, combination: Combination, enough: Enough, seen: Seen) -> None:
    how = f"{combination.protocol} {combination.via} {combination.quiescence}"

    def flip(transactions: int) -> Flipped:
        said = target.ask(f"flip {transactions} {how}")
        if said["status"]:
            raise Refused(f"mj_apply: {said}")
        return Flipped(said["transactions"], said["places"], said["refused"])

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
            target.ask("counts")  # if it died, that is what there is to say
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
