"""What a fuzzed decoder is: real seeds, where their numbers stand, and a check for any bytes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from tests.fuzz.edits import Place

ACCEPTED = "accepted"
LINE = 2000
"""More characters than a message, or a number, should have, whatever stands in an image."""


class Seed(NamedTuple):
    """A real input, and where numbers stand in it."""

    data: bytes
    places: Sequence[Place] = ()


class Harness(NamedTuple):
    """A decoder under test.

    seeds   real inputs, which it accepts
    check   from any bytes to what became of them: ACCEPTED, or the name of the documented error.
            It raises what the decoder must not, and AssertionError where a promise is broken
    weight  how much slower than the others it is, and so how many times fewer inputs it gets
    """

    name: str
    seeds: Callable[[], list[Seed]]
    check: Callable[[bytes], str]
    weight: int = 1
