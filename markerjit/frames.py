"""Frames of stacks, with names, and the stack of an event as a text.

An event has its stack as JSON: `{"frames": [{"function": "leaf", "offset": 4, "object": "/bin/x",
"place": 4660, "address": 94…}, …], "end": ""}`, the innermost frame first. So whatever holds a text
holds a stack, and says the names of its functions when the process has gone. `StackText` is such a
text as the value of a field.

What this does not do: walk, and look names up (unwind/).
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from markerjit.errors import BadArgument
from markerjit.tuples import NamedTuple

_MOST = (1 << 64) - 1
UNKNOWN_OBJECT = "[unknown object]"
"""The object of a frame in code of which it is not known what was there when its stack was walked:
another object had come to its address, or may have."""
_BETWEEN = " < "
"""In a line of text, between a frame and its caller."""


class Frame(NamedTuple):
    """A frame of a stack.

    address   where it goes on, in the process
    object    the path of the object, "" where none is there; "[unknown object]" where another one
              came to its address, and nobody knows which one it was
    place     the address in the object file; 0 without an object
    function  its symbol, "" where none is known
    offset    from where the function begins; 0 where that is not known
    """

    address: int
    object: str
    place: int
    function: str
    offset: int

    @property
    def label(self) -> str:
        """The function: its symbol, or its place in the object."""
        if self.function or not self.object:
            return self.function or "[no object]"
        if self.object == UNKNOWN_OBJECT:
            return UNKNOWN_OBJECT
        return f"{os.path.basename(self.object)}+{self.place - self.offset:#x}"


class StackText(str):
    """The stack of an event, as the value of a field: JSON. What makes no sense, as in a damaged
    file, has no frames."""

    __slots__ = ()

    @property
    def frames(self) -> tuple[Frame, ...]:
        """The frames, the innermost first."""
        return _parsed(str(self))[0]

    @property
    def end(self) -> str:
        """Why there are no more frames, such as "[no table]"; "" where nothing has called the last
        one."""
        return _parsed(str(self))[1]

    @classmethod
    def of(cls, frames: Sequence[Frame], end: str) -> StackText:
        """The stack of these frames."""
        are_frames = isinstance(frames, Sequence) and not isinstance(frames, str | bytes)
        if not are_frames or not all(isinstance(frame, Frame) for frame in frames):
            raise BadArgument("frames", frames, "a sequence, each of it a Frame")
        if not isinstance(end, str):
            raise BadArgument("end", end, "a str")
        made = [
            {
                "function": frame.function, "offset": frame.offset, "object": frame.object,
                "place": frame.place, "address": frame.address,
            }
            for frame in frames
        ]  # fmt: skip
        import json

        return cls(json.dumps({"frames": made, "end": end}, separators=(",", ":")))

    @classmethod
    def of_document(cls, document: object) -> StackText:
        """The stack of a document of JSON. Raises BadArgument where that is none."""
        try:
            frames, end = _checked(document)
        except ValueError:
            raise BadArgument("document", document, "that of a stack") from None
        return cls.of(frames, end)

    @classmethod
    def of_labels(cls, text: str) -> StackText:
        """The stack that `shown` has shown, of which nothing but the names is known."""
        if not isinstance(text, str):
            raise BadArgument("text", text, "a str")
        *labels, last = text.split(_BETWEEN)
        label, bracket, end = last.rpartition(" [")
        if not bracket or not end.endswith("]"):
            label, end = last, ""
        frames = [Frame(0, "", 0, each, 0) for each in (*labels, label)]
        return cls.of(frames, f"[{end}" if end else "")

    @property
    def labels(self) -> tuple[str, ...]:
        """What the functions are called, as samples have them: the first caller first, and above it
        why the stack ends there."""
        frames, end = _parsed(str(self))
        return (*((end,) if end else ()), *(frame.label for frame in reversed(frames)))


def shown(labels: Sequence[str], end: str = "") -> str:
    """A stack in a line: the names of its functions, the innermost first."""
    return f"{_BETWEEN.join(labels)}{f' {end}' if end else ''}"


@lru_cache(maxsize=1 << 11)  # some 20 KiB each
def _parsed(text: str) -> tuple[tuple[Frame, ...], str]:
    import json

    try:
        return _checked(json.loads(text))
    except (ValueError, RecursionError):
        return (), ""


def _checked(document: Any) -> tuple[tuple[Frame, ...], str]:
    """The frames and the end. Raises ValueError where they make no sense."""
    if not isinstance(document, dict):
        raise ValueError("it is no stack")
    frames, end = document.get("frames"), document.get("end")
    if not isinstance(frames, list) or not isinstance(end, str):
        raise ValueError("it is no stack")
    return tuple(map(_frame, frames)), end


def _frame(document: Any) -> Frame:
    if not isinstance(document, dict):
        raise ValueError("it is no frame")
    frame = Frame(*(document.get(name) for name in Frame._fields))  # type: ignore[arg-type]
    numbers = frame.address, frame.place, frame.offset
    are_numbers = all(type(number) is int and 0 <= number <= _MOST for number in numbers)
    if not are_numbers or type(frame.object) is not str or type(frame.function) is not str:
        raise ValueError("it is no frame")
    return frame
