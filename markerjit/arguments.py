"""Are the arguments of a public function what they have to be?

Asked at the door, before anything is looked at or opened: a number that is no size would come out
somewhere in the target. What is wrong raises BadArgument, which is a MarkerError and a ValueError.

What this does not do: convert anything, or know what a name means.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Mapping, Sequence

from markerjit.errors import BadArgument


def check_int(name: str, value: object, least: int, most: int | None = None) -> None:
    """A whole number; True is none."""
    wanted = f"a whole number from {least}" + (" on" if most is None else f" to {most}")
    if not isinstance(value, int) or isinstance(value, bool):
        raise BadArgument(name, value, wanted)
    if value < least or (most is not None and value > most):
        raise BadArgument(name, value, wanted)


def check_power_of_two(name: str, value: object, least: int, most: int) -> None:
    """A power of two in this range."""
    fits = isinstance(value, int) and least <= value <= most and value.bit_count() == 1
    if not fits:
        raise BadArgument(name, value, f"a power of two from {least} to {most}")


def check_pid(value: object) -> None:
    """The type only: whether there is such a process, the kernel says."""
    if not isinstance(value, int) or isinstance(value, bool):
        raise BadArgument("pid", value, "the number of a process")


def check_seconds(name: str, value: object) -> None:
    """A time that sleep takes."""
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if not number or not math.isfinite(value) or not 0 <= value < 1e9:  # type: ignore[arg-type,operator]
        raise BadArgument(name, value, "a number of seconds")


def check_text(name: str, value: object) -> None:
    """A str without NUL."""
    if not isinstance(value, str) or "\0" in value:
        raise BadArgument(name, value, "a str without NUL")


def check_path(name: str, value: object) -> None:
    """The path of a file: a str or a Path, not empty, without NUL."""
    path = os.fspath(value) if isinstance(value, (str, os.PathLike)) else None
    if not isinstance(path, str) or not path or "\0" in path:
        raise BadArgument(name, value, "the path of a file")


def check_flag(name: str, value: object) -> None:
    """True or False; what only counts as true is mostly another argument in the wrong place."""
    if not isinstance(value, bool):
        raise BadArgument(name, value, "True or False")


def check_is(name: str, value: object, *types: type) -> None:
    """An instance of one of these types."""
    if not isinstance(value, types):
        raise BadArgument(name, value, " or ".join(_with_article(one) for one in types))


def check_all(name: str, values: object, type_: type) -> None:
    """Several of this type, in a sequence."""
    fits = isinstance(values, Sequence) and not isinstance(values, (str, bytes))
    if not fits or not all(isinstance(one, type_) for one in _listed(values)):
        raise BadArgument(name, values, f"a sequence, each of it {_with_article(type_)}")


def check_mapping(name: str, values: object, key: type, type_: type) -> None:
    """A mapping of this kind."""
    fits = isinstance(values, Mapping) and all(
        isinstance(one, key) and isinstance(other, type_) for one, other in values.items()
    )
    if not fits:
        raise BadArgument(name, values, f"a mapping from {key.__name__} to {type_.__name__}")


def check_callable(name: str, value: object) -> None:
    """Something that can be called."""
    if not callable(value):
        raise BadArgument(name, value, "a function")


def _listed(values: object) -> Iterable[object]:
    assert isinstance(values, Sequence)
    return values


def _with_article(type_: type) -> str:
    name = type_.__name__
    return f"an {name}" if name[0] in "AEIOUaeio" else f"a {name}"
