"""The time of a whole run of the bench: how much of it a step gets, and how far the run is.

A run ends at about the time that was asked for, with all that is done besides measuring: compiling,
starting programs, counting instructions. What these take is an estimate at first. Once some are
done, the others of the same work are expected to take as many times their estimates: on a machine
with other load, or one that has compiled all this before, the estimates are wrong by a factor. What
is left is shared among the steps that measure.

A piece that was begun and turns out to be slow is given up as soon as that is seen, not at its end:
what it has compiled is kept for the next run. Only pieces of rank 0 are measured in any case.

The bar is the time that has passed beside what is still expected. Of a run that leaves out what
does not fit, that is no more than the asked time, or the piece at hand. The bar never goes back.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Sequence

from markerjit.apps.bench.sampling.plan import OutOfTime, Piece, Step

Show = Callable[[str, float], None]
"""Called with what is being done, and the part of the whole run that is done, from 0 to 1."""
_ENOUGH = 0.25
"""The part of a step's planned time with which it is worth beginning."""
_OVER = 1.1
"""The part of the run's time at which a piece that still measures is given up."""
_TELLING = 0.05
"""The part of the run's time after which a step tells how long the whole of it takes."""
_QUICKEST = 0.2
"""Of an estimate, what is expected at least: what is cached may be followed by what is not."""


class Course:
    """The pieces of a run in order, of which `show` tells, and the `seconds` for all of them."""

    def __init__(
        self,
        pieces: Sequence[Piece],
        seconds: float,
        show: Show,
        clock: Callable[[], float] = time.monotonic,
        *,
        may_leave: bool = False,
    ) -> None:
        self._pieces = list(pieces)
        self._left = [step for piece in pieces for step in piece.steps]
        self._may_leave = may_leave
        self._seconds = seconds
        self._show = show
        self._clock = clock
        self._began = self._step_began = clock()
        self._estimated: dict[str, float] = defaultdict(float)
        self._took: dict[str, float] = defaultdict(float)
        """Of the steps that do not measure, by their work."""
        self._done = 0.0

    def tell(self, title: str, done: float) -> None:
        """So much of a step is done. What is no step counts as a part of the one before it. Raises
        OutOfTime where its piece has to be left out."""
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

    def grant(self, title: str, planned: float) -> float:
        """The seconds for a step that measures: its part of what is left. It may be asked for
        before the step has begun."""
        measuring = {step.title: step.seconds for step in self._affordable() if not step.is_fixed}
        if title not in measuring:
            return 0.0 if any(step.title == title for step in self._left) else planned
        return self._for_measuring() * planned / sum(measuring.values())

    def has_room(self, steps: Sequence[Step]) -> bool:
        """Whether these steps can be expected to end in time, also where they measure for less time
        than was planned."""
        return self._least(steps) <= self._time_left()

    def leave(self, steps: Sequence[Step]) -> None:
        """Leave steps out, also one that was begun."""
        if self._left and self._left[0] in steps:
            self._step_began = self._clock()
        self._left = [step for step in self._left if step not in steps]

    def _check(self, title: str, done: float) -> None:
        """Raise OutOfTime where the step at hand shows that its piece does not end in time."""
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
        """Take what comes before a step as done, and learn from it."""
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
        """What is left of the piece at hand."""
        own = self._piece_of(self._left[0]).steps
        return [step for step in self._left if step in own]

    def _affordable(self) -> list[Step]:
        """What is left and can be expected to end in time: all, where nothing may be left out."""
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
        """The least seconds that steps which have not begun take."""
        return self._fixed(steps) + self._least_measuring(steps)

    def _least_measuring(self, steps: Sequence[Step]) -> float:
        return sum(step.seconds for step in steps if not step.is_fixed) * _ENOUGH

    def _for_measuring(self) -> float:
        return max(self._time_left() - self._fixed_ahead(self._affordable()), 0.0)

    def _fixed_ahead(self, steps: list[Step]) -> float:
        """The seconds of those steps that do not measure, the one at hand without what it took."""
        if not steps or not steps[0].is_fixed:
            return self._fixed(steps)
        spent = self._clock() - self._step_began
        return max(self._fixed(steps[:1]) - spent, 0.0) + self._fixed(steps[1:])

    def _fixed(self, steps: Sequence[Step]) -> float:
        return sum(step.seconds * self._slowness(step.work) for step in steps if step.is_fixed)

    def _slowness(self, work: str) -> float:
        """How many times its estimate a work takes. What was not done yet is as all that was."""
        own = work in self._estimated
        estimated = self._estimated[work] if own else sum(self._estimated.values())
        took = self._took[work] if own else sum(self._took.values())
        return max(took / estimated, _QUICKEST) if estimated else 1.0
