"""The time of a whole run of the bench: how much of it a step gets, and how far the run is.

A run ends at about the time that was asked for, with all that is done besides measuring: compiling,
starting programs, counting instructions. What these take is an estimate at first. Once some are
done, the others are expected to take as many times their estimates: on a machine with other load,
or one that has compiled all this before, the estimates are wrong by a factor. What is left is
shared among the steps that measure.

The bar is the time that has passed beside what is still expected. Of a run that leaves out what
does not fit, that is no more than the asked time, or the piece at hand. The bar never goes back.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from markerjit.apps.bench.sampling.plan import Piece, Step

Show = Callable[[str, float], None]
"""Called with what is being done, and the part of the whole run that is done, from 0 to 1."""
_ENOUGH = 0.25
"""The part of a step's planned time with which it is worth beginning."""
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
        self._left = [step for piece in pieces for step in piece.steps]
        self._ends = {piece.steps[-1] for piece in pieces}
        self._may_leave = may_leave
        self._seconds = seconds
        self._show = show
        self._clock = clock
        self._began = self._step_began = clock()
        self._estimated = self._took = 0.0
        self._done = 0.0

    def tell(self, title: str, done: float) -> None:
        """So much of a step is done. What is no step counts as a part of the one before it."""
        self._reach(title)
        passed = self._clock() - self._began
        ahead = self._expected(self._left)
        if self._may_leave:
            ahead = min(ahead, max(self._seconds - passed, self._expected(self._at_hand())))
        # The last step ends the run, however long it was expected to take.
        if done >= 1 and [step.title for step in self._left] == [title]:
            self._done = 1.0
        elif passed + ahead > 0:
            self._done = max(self._done, passed / (passed + ahead))
        self._show(title, self._done)

    def grant(self, title: str, planned: float) -> float:
        """The seconds for a step that measures: its part of what is left. It may be asked for
        before the step has begun."""
        measuring = [step for step in self._left if not step.is_fixed]
        if all(step.title != title for step in measuring):
            return planned
        return self._for_measuring() * planned / sum(step.seconds for step in measuring)

    def has_room(self, steps: Sequence[Step]) -> bool:
        """Whether these steps can be expected to end in time, also where they measure for less time
        than was planned."""
        left = self._seconds - (self._clock() - self._began)
        measuring = sum(step.seconds for step in steps if not step.is_fixed)
        return self._fixed(steps) + measuring * _ENOUGH <= left

    def leave(self, steps: Sequence[Step]) -> None:
        """Leave steps out."""
        self._left = [step for step in self._left if step not in steps]

    def _reach(self, title: str) -> None:
        """Take what comes before a step as done, and learn from it."""
        if not self._left or title == self._left[0].title:
            return
        if all(step.title != title for step in self._left):
            return
        now = self._clock()
        if self._left[0].is_fixed:
            self._took += now - self._step_began
            self._estimated += self._left[0].seconds
        while self._left[0].title != title:
            del self._left[0]
        self._step_began = now

    def _at_hand(self) -> list[Step]:
        """What is left of the piece at hand."""
        for number, step in enumerate(self._left, 1):
            if step in self._ends:
                return self._left[:number]
        return []

    def _expected(self, steps: list[Step]) -> float:
        """The seconds that steps will still take, as far as one can tell now: the first of all that
        are left, or all."""
        whole = sum(step.seconds for step in self._left if not step.is_fixed)
        own = sum(step.seconds for step in steps if not step.is_fixed)
        share = own / whole if whole else 0.0
        return self._fixed_ahead(steps) + share * self._for_measuring()

    def _for_measuring(self) -> float:
        passed = self._clock() - self._began
        return max(self._seconds - passed - self._fixed_ahead(self._left), 0.0)

    def _fixed_ahead(self, steps: list[Step]) -> float:
        """The seconds of those steps that do not measure, the one at hand without what it took."""
        if not steps or not steps[0].is_fixed:
            return self._fixed(steps)
        spent = self._clock() - self._step_began
        return max(self._fixed(steps[:1]) - spent, 0.0) + self._fixed(steps[1:])

    def _fixed(self, steps: Sequence[Step]) -> float:
        slowness = self._took / self._estimated if self._estimated else 1.0
        return max(slowness, _QUICKEST) * sum(step.seconds for step in steps if step.is_fixed)
