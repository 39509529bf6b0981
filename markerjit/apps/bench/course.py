"""How far a whole run of the bench is, by the seconds that its steps are expected to take.

A step that ends early, or an estimate of compiling that is wrong, makes the bar jump or wait. It
never goes back, and it is full at the end of the last step.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from markerjit.apps.bench.sampling.plan import Step

Show = Callable[[str, float], None]
"""Called with what is being done, and the part of the whole run that is done, from 0 to 1."""


class Course:
    """The steps of a run in order, of which `show` tells."""

    def __init__(self, steps: Sequence[Step], show: Show) -> None:
        self._steps = steps
        self._whole = sum(step.seconds for step in steps) or 1.0
        self._show = show
        self._at = 0
        self._done = 0.0

    def tell(self, title: str, done: float) -> None:
        """So much of a step is done. What is no step counts as a part of the one before it."""
        for number in range(self._at, len(self._steps)):
            if self._steps[number].title == title:
                self._at = number
                before = sum(step.seconds for step in self._steps[:number])
                part = (before + self._steps[number].seconds * done) / self._whole
                self._done = max(self._done, min(part, 1.0))
                break
        self._show(title, self._done)
