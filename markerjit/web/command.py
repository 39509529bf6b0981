"""The commands of a browser, which is not trusted: a command may hold anything."""

from __future__ import annotations

from typing import Any

Json = dict[str, Any]


class NotACommand(ValueError):
    """A command that the page does not send."""


def text(command: Json, key: str) -> str:
    """A text in a command. Raises NotACommand where there is none."""
    value = command.get(key)
    if not isinstance(value, str):
        raise NotACommand(f"{key} is no text")
    return value


def number(command: Json, key: str) -> int:
    """A whole number in a command. Raises NotACommand where there is none."""
    value = command.get(key)
    if not isinstance(value, int) or isinstance(value, bool):
        raise NotACommand(f"{key} is no number")
    return value
