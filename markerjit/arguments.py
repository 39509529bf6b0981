"""Checks of the arguments of public functions.

They run before anything is read or opened, so that a wrong number never reaches the target. A wrong
argument raises BadArgument, which is a MarkerError and a ValueError.

Nothing is converted here, and the meaning of a name is not known.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence

from markerjit.errors import BadArgument


def check_int(name: str, value: object, least: int, most: int | None = None) -> None:
    """Check that `value` is a whole number in a range; True is not a number here."""
    expected = f"a whole number from {least}" + (" on" if most is None else f" to {most}")
    if not isinstance(value, int) or isinstance(value, bool):
        raise BadArgument(name, value, expected)
    if value < least or (most is not None and value > most):
        raise BadArgument(name, value, expected)


def check_power_of_two(name: str, value: object, least: int, most: int) -> None:
    """Check that `value` is a power of two in a range."""
    fits = isinstance(value, int) and least <= value <= most and value.bit_count() == 1
    if not fits:
        raise BadArgument(name, value, f"a power of two from {least} to {most}")


def check_pid(value: object) -> None:
    """Check the type of a pid, and that it has at most 64 bits: messages print it, and str raises
    ValueError for thousands of digits. Whether the process exists is for the kernel to say."""
    if not isinstance(value, int) or isinstance(value, bool) or value.bit_length() > 64:
        raise BadArgument("pid", value, "the number of a process")


def listed_pids(pids: Iterable[int]) -> list[int]:
    """These pids, each checked. Raises BadArgument."""
    try:
        listed = list(pids)
    except TypeError:
        raise BadArgument("pids", pids, "numbers of processes") from None
    for pid in listed:
        check_pid(pid)
    return listed


def check_seconds(name: str, value: object) -> None:
    """Check that `value` is a number of seconds that sleep accepts."""
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if not number or not 0 <= value < 1e9:  # type: ignore[operator]
        raise BadArgument(name, value, "a number of seconds")


def check_share(name: str, value: object) -> None:
    """Check that `value` is a number from 0 to 1."""
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if not number or not 0 <= value <= 1:  # type: ignore[operator]
        raise BadArgument(name, value, "a number from 0 to 1")


def check_text(name: str, value: object) -> None:
    """Check that `value` is a str that a system call takes."""
    if not isinstance(value, str) or not can_be_passed(value):
        is_list = name == "pattern" and isinstance(value, (list, tuple, set, frozenset))
        expected = "one str, with commas between several names" if is_list else "a str without NUL"
        raise BadArgument(name, value, expected)


def check_path(name: str, value: object) -> None:
    """Check that `value` is the path of a file: a str or a Path, not empty, that a system call
    takes."""
    path = os.fspath(value) if isinstance(value, (str, os.PathLike)) else None
    if not isinstance(path, str) or not path or not can_be_passed(path):
        raise BadArgument(name, value, "the path of a file")


def can_be_passed(text: str) -> bool:
    """Whether a system call takes this text: it has no NUL and can be encoded. A surrogate cannot,
    unless it stands for a byte that is no text (os.fsdecode)."""
    try:
        return b"\0" not in text.encode(errors="surrogateescape")
    except UnicodeEncodeError:
        return False


def check_flag(name: str, value: object) -> None:
    """Check that `value` is True or False. Another truthy value is usually a misplaced argument."""
    if not isinstance(value, bool):
        raise BadArgument(name, value, "True or False")


def check_is(name: str, value: object, *types: type) -> None:
    """Check that `value` is an instance of one of these types."""
    if not isinstance(value, types):
        raise BadArgument(name, value, " or ".join(_with_article(type_) for type_ in types))


def check_all(name: str, values: object, type_: type) -> None:
    """Check that `values` is a sequence of instances of this type."""
    fits = isinstance(values, Sequence) and not isinstance(values, (str, bytes))
    if not fits or not all(isinstance(value, type_) for value in _listed(values)):
        raise BadArgument(name, values, f"a sequence, each of it {_with_article(type_)}")


def check_mapping(name: str, values: object, key: type, type_: type) -> None:
    """Check that `values` is a mapping with keys of type `key` and values of type `type_`."""
    fits = isinstance(values, Mapping) and all(
        isinstance(name_, key) and isinstance(value, type_) for name_, value in values.items()
    )
    if not fits:
        raise BadArgument(name, values, f"a mapping from {key.__name__} to {type_.__name__}")


def check_callable(name: str, value: object) -> None:
    """Check that `value` can be called."""
    if not callable(value):
        raise BadArgument(name, value, "a function")


def _listed(values: object) -> Iterable[object]:
    assert isinstance(values, Sequence)
    return values


def _with_article(type_: type) -> str:
    name = type_.__name__
    return f"an {name}" if name[0] in "AEIOUaeio" else f"a {name}"
