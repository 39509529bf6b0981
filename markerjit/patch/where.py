"""A question before a probe, as it is asked for and as an arena has it written down.

What this does not do: read the question (probes/asking.py).
"""

from __future__ import annotations

from markerjit.arena.hashes import fnv1a
from markerjit.ring.brakes import NO_BRAKES, Brakes
from markerjit.tuples import NamedTuple


class Where(NamedTuple):
    """A question that stands before a probe: the text of its condition, a number by which its code
    is found again, the text of what is recorded in place of the fields, and brakes behind the
    condition. Without a condition, which only a selection or brakes can be, its text is empty."""

    text: str
    number: int
    select: str | None = None
    brakes: Brakes = NO_BRAKES

    @classmethod
    def of(cls, text: str, select: str | None = None, brakes: Brakes = NO_BRAKES) -> Where:
        """The question with this text, unchecked: a text that is not a question is refused
        later."""
        selection = None if select is None else select.replace("\n", " ")
        where = cls(text.replace("\n", " "), 0, selection, brakes)
        return where._replace(number=fnv1a(where.whole.encode(errors="surrogatepass")))

    @classmethod
    def again(cls, whole: str, number: int) -> Where:
        """The question that was written down as these lines."""
        text, *more = whole.split("\n", 2)
        select = more[0] if more and (more[0] or len(more) == 1) else None
        return cls(text, number, select, Brakes.again(more[1]) if len(more) > 1 else NO_BRAKES)

    @property
    def whole(self) -> str:
        """The text to be written down, in lines."""
        if self.brakes.are_any:
            return f"{self.text}\n{self.select or ''}\n{self.brakes}"
        return self.text if self.select is None else f"{self.text}\n{self.select}"

    @property
    def shown(self) -> str:
        """The question in a line, for people."""
        parts = (
            str(self.brakes),
            "" if self.select is None else f"select {self.select}",
            f"where {self.text}" if self.text else "",
        )
        return " ".join(filter(None, parts))

    @property
    def has_condition(self) -> bool:
        """Whether there is a question, valid or not."""
        return bool(self.text) or (self.select is None and not self.brakes.are_any)
