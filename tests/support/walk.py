"""The walk of a command through the house: the files that its calls enter, in their order.

    python -m tests.support.walk on PID PATTERN

runs the command as it is, and then prints the files on standard error, with the number of calls
into each. Bodies of modules and of classes are not counted: they run when a file is imported.
"""

from __future__ import annotations

import inspect
import sys
from types import FrameType
from typing import Any

from markerjit.cli.main import main
from tests.support.programs import ROOT


class Walk:
    """Counts the calls into each file; `crossings` are those that come from another file."""

    def __init__(self) -> None:
        self.calls: dict[str, int] = {}
        self.crossings = 0
        self._last = ""
        self._package = f"{ROOT}/markerjit/"

    def __call__(self, frame: FrameType, event: str, argument: Any) -> None:
        code = frame.f_code
        is_function = code.co_flags & inspect.CO_OPTIMIZED
        if event != "call" or not is_function or not code.co_filename.startswith(self._package):
            return
        self.calls[code.co_filename] = self.calls.get(code.co_filename, 0) + 1
        self.crossings += code.co_filename != self._last
        self._last = code.co_filename


def walk(arguments: list[str]) -> Walk:
    """The walk of one command."""
    steps = Walk()
    sys.setprofile(steps)
    try:
        main(arguments)
    except SystemExit:
        pass
    finally:
        sys.setprofile(None)
    return steps


if __name__ == "__main__":
    steps = walk(sys.argv[1:])
    for path, count in steps.calls.items():
        print(f"{count:6} {path.removeprefix(f'{ROOT}/')}", file=sys.stderr)
    print(
        f"{len(steps.calls)} files, {sum(steps.calls.values())} calls, {steps.crossings} from "
        "another file",
        file=sys.stderr,
    )
