"""A switch made stage by stage, while the process runs between them.

    1  as every switch: the plan, the runtime, the heads in the table. Then the journal, which has
       the whole change, and a lease
    2  the stages (patch/stages.py), one for each call of `step`. Each takes a turn of its own, sees
       that the journal still has this change, and renews the lease
    3  the table of breakpoints, the journal empty, the entries

Between two calls the lock is free, so that `status` and other commands do not wait for us. The
lease says that we come back: other controllers refuse to switch while it lasts, and so does
`repair`. Where we die, or let it end, the next controller or `repair` takes the change back, or
finishes it where all of its edits stand.

What this does not do: decide between which edits the process may be left (patch/stages.py).
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress

from markerjit.arena.journal import Journal
from markerjit.arena.pack import pack
from markerjit.errors import Reason, Refused, TargetGone
from markerjit.model import Site
from markerjit.patch.request import Request
from markerjit.patch.stages import Stages, stages_of
from markerjit.patch.steps import Step
from markerjit.printable import counted
from markerjit.probes.recorders import Recorders
from markerjit.proc.owner import ourselves
from markerjit.quiesce.strategies import Strategy
from markerjit.session.entries import Entries, slots_by_entry
from markerjit.session.holding import take
from markerjit.session.notes import left_out_by_notes
from markerjit.session.switch import Ready, Switcher
from markerjit.session.turn import Turn
from markerjit.sites import ProbeName


class Stepper:
    """A switch in stages; see `Session.stepping`. `stages` is the plan in stages, and `done` is how
    many of them are made. `left_out` are markers that matched and are left as they are."""

    def __init__(
        self,
        switcher: Switcher,
        name: ProbeName,
        request: Request,
        strategy: Strategy,
        *,
        lease_s: int,
    ) -> None:
        """Do 1. `request` is for the strategy between the stages, each of which `strategy` makes.
        Raises what a switch raises."""
        self.done = 0
        self._switcher = switcher
        self._lease_s = lease_s
        self._renewed_at = time.monotonic()
        with switcher.turn() as turn:
            take(turn.target, switcher.recorders, name, request)
            sites = turn.target.matching(name)
            states, plan, recorders = _made_ready(switcher, turn, sites, request)
            self.stages: Stages = stages_of(plan, strategy)
            self.left_out = (*left_out_by_notes(turn.target, name), *plan.left_out)
            self._plan = plan
            self._packed = bytes(pack(plan.edits))
            self._is_open = bool(self.stages.stages)
            if not self._is_open:
                return
            if recorders is None:
                raise Refused(
                    f"process {turn.target.pid} has no runtime of ours, and so no journal for a "
                    "change in stages; switch with on or off"
                )
            entries = Entries(turn, recorders)
            slots = slots_by_entry(sites, request, recorders)
            self._switched = entries.switched(states, plan, request, slots)
            self._before = entries.before(slots, calls=False)
            self._mapped = switcher.mapped_at(turn, plan)
            Journal(recorders.arena).open(self._packed, lease_s=lease_s)

    def __repr__(self) -> str:
        stages = counted(len(self.stages.stages), "stage")
        return f"<Stepper of process {self._switcher.target.pid}: {self.done} of {stages} made>"

    @property
    def is_finished(self) -> bool:
        """Whether all stages are made."""
        return self.done == len(self.stages.stages)

    @property
    def made(self) -> tuple[Step, ...]:
        """The steps that are made, those before the first stage too."""
        stages = self.stages.stages[: self.done]
        return (
            *self.stages.opening,
            *(step for stage in stages for step in stage.steps),
        )

    @property
    def ahead(self) -> tuple[Step, ...]:
        """The steps of the next stage; none when all are made."""
        return () if self.is_finished else self.stages.stages[self.done].steps

    def step(self) -> tuple[Step, ...]:
        """Make the next stage, and return its steps; none when all are made.

        Raises what a switch raises; the process is then as it was before the call. Raises Refused
        also if another controller has taken the change back, because its lease had ended.
        """
        if self.is_finished:
            return ()
        stage = self.stages.stages[self.done]
        with self._turn() as turn:
            self._switcher.write(turn, stage.plan, self._mapped)
            self.done += 1
            if self.is_finished:
                self._end(turn)
        return stage.steps

    def finish(self) -> None:
        """Make all stages that are left. Raises what `step` raises."""
        while not self.is_finished:
            self.step()

    def renew(self) -> None:
        """Renew the lease, as `step` does, for a caller that waits between two steps. Does nothing
        while most of the lease is left. Raises Refused if the change was taken back, and while
        another controller is at work."""
        if self._is_open and time.monotonic() - self._renewed_at > self._lease_s / 4:
            with self._turn():
                pass

    def take_back(self) -> tuple[str, ...]:
        """Take back the stages that are made, unless all are. Does nothing if another controller
        has done so, or the process has ended. The result says which places were left alone, because
        they hold bytes of another tool or are gone. Raises what a switch raises; the journal then
        stays open."""
        left_alone: tuple[str, ...] = ()
        if self._is_open:
            with suppress(TargetGone), self._switcher.turn(stepping=True) as turn:
                if self._is_ours():
                    left_alone = self._switcher.settle(turn).left_alone
            self._is_open = False
        return left_alone

    @contextmanager
    def _turn(self) -> Iterator[Turn]:
        with self._switcher.turn(stepping=True) as turn:
            if not self._is_open or not self._is_ours():
                self._is_open = False
                raise Refused(
                    f"the change of process {turn.target.pid} was taken back: its lease of "
                    f"{self._lease_s} s had ended"
                )
            self._journal().renew(self._lease_s)
            self._renewed_at = time.monotonic()
            yield turn

    def _is_ours(self) -> bool:
        """Whether the journal has this change still."""
        left = self._journal().left()
        if left is None or left.pause is None:
            return False
        return left.owner == ourselves() and left.packed == self._packed

    def _journal(self) -> Journal:
        return Journal(self._recorders().arena)

    def _recorders(self) -> Recorders:
        recorders = self._switcher.recorders
        if recorders is None:
            raise Refused(f"the runtime in process {self._switcher.target.pid} has gone")
        return recorders

    def _end(self, turn: Turn) -> None:
        """Do 3."""
        journal = self._journal()
        traps = [address for address, _ in self._plan.traps]
        journal.note_breakpoints(traps, self._plan.untraps)
        journal.close()
        self._is_open = False
        Entries(turn, self._recorders()).note(self._switched, self._before)


@contextmanager
def stepping(
    switcher: Switcher, name: ProbeName, request: Request, strategy: Strategy, *, lease_s: int
) -> Iterator[Stepper]:
    """A switch in stages, which are taken back at the end of the context unless all are made."""
    stepper = Stepper(switcher, name, request, strategy, lease_s=lease_s)
    try:
        yield stepper
    finally:
        stepper.take_back()


def _made_ready(switcher: Switcher, turn: Turn, sites: Sequence[Site], request: Request) -> Ready:
    """Raises Refused with another advice where the change needs all threads to stand."""
    try:
        return switcher.make_ready(turn, sites, request)
    except Refused as refused:
        if refused.reason is not Reason.QUIESCENCE:
            raise
        raise Refused(
            "this change cannot be made in stages: all threads must be stopped from its first step "
            "to its last one; switch with on or off",
            reason=refused.reason,
        ) from None
