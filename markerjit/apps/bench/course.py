"""The time of a whole run of the bench: the part that a step gets, and the progress of the run.

A run ends at about the time that was asked for, including the work besides measuring: compiling,
starting programs, counting instructions. The times of these steps are estimates at first. On a
machine with other load, or one that has compiled the same before, the estimates are wrong by a
factor. So once some steps of a work are done, their factor is expected of its other steps too. The
rest of the time is shared among the steps that measure.

A piece that turns out to be slow is given up as soon as that is seen, and not at its end. The
objects that it has compiled are kept for the next run. Pieces of rank 0 are always measured.

The bar compares the time that has passed with the time that is still expected. A run that leaves
out pieces expects no more than the asked time, or the current piece. The bar never goes back.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Sequence

from markerjit.apps.bench.sampling.plan import OutOfTime, Piece, Step

Show = Callable[[str, float], None]
"""Called with the title of the current step, and the part of the whole run that is done, from 0 to
1."""
_ENOUGH = 0.25
"""The part of a step's planned time that must be available to begin it."""
_OVER = 1.1
"""The part of the run's time at which a piece that still measures is given up."""
_TELLING = 0.05
"""The part of the run's time after which a step shows how long the whole of it takes."""
_QUICKEST = 0.2
"""The least part of an estimate that is expected, because work that is not cached may follow work
that is."""


class Course:
    """The pieces of a run, in order, and the `seconds` for all of them. `show` is called with the
    progress. With `may_leave`, pieces that do not fit are left out. `began` is when the command
    did, where that was before."""

    def __init__(
        self,
        pieces: Sequence[Piece],
        seconds: float,
        show: Show,
        clock: Callable[[], float] = time.monotonic,
        *,
        may_leave: bool = False,
        began: float | None = None,
    ) -> None:
        self._pieces = list(pieces)
        self._left = [step for piece in pieces for step in piece.steps]
        self._may_leave = may_leave
        self._seconds = seconds
        self._show = show
        self._clock = clock
        self._step_began = clock()
        self._began = self._step_began if began is None else began
        self._estimated: dict[str, float] = defaultdict(float)
        self._took: dict[str, float] = defaultdict(float)
        """The estimated and the real seconds of the steps that do not measure, by their work."""
        self._done = 0.0

    def tell(self, title: str, done: float) -> None:
        """Note that this part of a step is done. A title that is not a step's counts as a part of
        the previous step. Raises OutOfTime where the piece of the step has to be left out."""
        self._reach(title)
        self._check(title, done)
        passed = self._clock() - self._began
        ahead = self._for_measuring() + self._fixed_ahead(self._affordable())
        # The last step ends the run, however long it was expected to take.
        if done >= 1 and [step.title for step in self._left] == [title]:
            self._done = 1.0
        elif passed + ahead > 0:
            self._done = max(self._done, passed / (passed + ahead))
        self._show(title, self._done)

    def end(self, title: str) -> None:
        """Say what is done behind the last piece. The bar stands where it is."""
        self._show(title, self._done)

    def grant(self, title: str, planned: float) -> float:
        """The seconds for a step that measures, which are its share of the time that is left. The
        step need not have begun."""
        measuring = {step.title: step.seconds for step in self._affordable() if not step.is_fixed}
        if title not in measuring:
            return 0.0 if any(step.title == title for step in self._left) else planned
        return self._for_measuring() * planned / sum(measuring.values())

    def has_room(self, steps: Sequence[Step]) -> bool:
        """Whether these steps can be expected to end in time, if need be by measuring for less time
        than was planned."""
        return self._least(steps) <= self._time_left()

    def leave(self, steps: Sequence[Step]) -> None:
        """Leave steps out, even one that has begun."""
        if self._left and self._left[0] in steps:
            self._step_began = self._clock()
        self._left = [step for step in self._left if step not in steps]

    def _check(self, title: str, done: float) -> None:
        """Raise OutOfTime where the current step shows that its piece does not end in time."""
        if not self._may_leave or not self._left or self._left[0].title != title:
            return
        step = self._left[0]
        if not self._piece_of(step).rank:
            return
        if not step.is_fixed:
            if self._time_left() < self._seconds * (1 - _OVER):
                raise OutOfTime(title)
            return
        spent = self._clock() - self._step_began
        if spent < self._seconds * _TELLING or not 0 < done < 1:
            return
        following = self._of_piece_at_hand()[1:]
        if spent / done - spent + self._least(following) > self._time_left():
            self._learn(step.work, spent, step.seconds * done)
            raise OutOfTime(title)

    def _reach(self, title: str) -> None:
        """Note that the steps before this one are done, and learn from their times."""
        if not self._left or title == self._left[0].title:
            return
        if all(step.title != title for step in self._left):
            return
        now = self._clock()
        if self._left[0].is_fixed:
            self._learn(self._left[0].work, now - self._step_began, self._left[0].seconds)
        while self._left[0].title != title:
            del self._left[0]
        self._step_began = now

    def _learn(self, work: str, took: float, estimated: float) -> None:
        self._took[work] += took
        self._estimated[work] += estimated

    def _time_left(self) -> float:
        return self._seconds - (self._clock() - self._began)

    def _piece_of(self, step: Step) -> Piece:
        return next(piece for piece in self._pieces if step in piece.steps)

    def _of_piece_at_hand(self) -> list[Step]:
        """The steps of the current piece that are left."""
        own = self._piece_of(self._left[0]).steps
        return [step for step in self._left if step in own]

    def _affordable(self) -> list[Step]:
        """The steps that are left and can be expected to end in time. Where nothing may be left
        out, these are all."""
        if not self._may_leave or not self._left:
            return self._left
        steps = self._of_piece_at_hand()
        need = self._fixed_ahead(steps) + self._least_measuring(steps)
        for piece in self._pieces:
            own = [step for step in piece.steps if step in self._left and step not in steps]
            if own and (not piece.rank or need + self._least(own) <= self._time_left()):
                need += self._least(own)
                steps += own
        return steps

    def _least(self, steps: Sequence[Step]) -> float:
        """The least seconds of steps that have not begun."""
        return self._fixed(steps) + self._least_measuring(steps)

    def _least_measuring(self, steps: Sequence[Step]) -> float:
        return sum(step.seconds for step in steps if not step.is_fixed) * _ENOUGH

    def _for_measuring(self) -> float:
        return max(self._time_left() - self._fixed_ahead(self._affordable()), 0.0)

    def _fixed_ahead(self, steps: list[Step]) -> float:
        """The seconds of the steps that do not measure, without those that the current step has
        taken."""
        if not steps or not steps[0].is_fixed:
            return self._fixed(steps)
        spent = self._clock() - self._step_began
        return max(self._fixed(steps[:1]) - spent, 0.0) + self._fixed(steps[1:])

    def _fixed(self, steps: Sequence[Step]) -> float:
        return sum(step.seconds * self._slowness(step.work) for step in steps if step.is_fixed)

    def _slowness(self, work: str) -> float:
        """The factor by which a work takes longer than its estimate. For a work that was not done
        yet it is the factor of all work that was."""
        own = work in self._estimated
        estimated = self._estimated[work] if own else sum(self._estimated.values())
        took = self._took[work] if own else sum(self._took.values())
        return max(took / estimated, _QUICKEST) if estimated else 1.0
