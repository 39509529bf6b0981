"""What a browser asks for, which may be anything."""

from __future__ import annotations

from typing import Any

Json = dict[str, Any]


class NotACommand(ValueError):
    """The page does not send this."""


def text(command: Json, key: str) -> str:
    """A text of a command. Raises NotACommand."""
    value = command.get(key)
    if not isinstance(value, str):
        raise NotACommand(f"{key} is no text")
    return value


def number(command: Json, key: str) -> int:
    """A whole number of a command. Raises NotACommand."""
    value = command.get(key)
    if not isinstance(value, int) or isinstance(value, bool):
        raise NotACommand(f"{key} is no number")
    return value
