"""How far the reading of a trace is, on standard error, where it takes more than a second; and for
how long something else has been done by now.

Readers of all formats read their files from the beginning to the end, so the kernel knows how far
they are: by the places of our descriptors (/proc/self/fdinfo). Readers that use no such place say
it themselves (`Trace.part`). Where nobody knows, only the time is said. Only a terminal gets any of
it.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from markerjit.cli import output

if TYPE_CHECKING:
    from threading import Event

    from markerjit import Trace

_AFTER_S, _EVERY_S = 1.0, 0.25
_BAR = 30
"""Characters of the bar."""


@contextmanager
def shown(traces: Sequence[Trace]) -> Iterator[None]:
    """Within, it is shown how much of these was read."""
    if not sys.stderr.isatty():
        yield
        return
    files = _files([trace.path for trace in traces])
    with _shown_while(lambda seconds: line_of(_part(traces, files), seconds)):
        yield


@contextmanager
def timed(what: str) -> Iterator[None]:
    """Within, a terminal is told after a second what is being done, and for how long."""
    if not sys.stderr.isatty():
        yield
        return
    with _shown_while(lambda seconds: f"{what}: {seconds:.0f} s"):
        yield


@contextmanager
def _shown_while(line: Callable[[float], str]) -> Iterator[None]:
    """Within, a line is shown that is made of the seconds since, by a thread."""
    import threading  # which most commands need not

    over = threading.Event()
    thread = threading.Thread(target=_show, args=(line, over), daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def _show(line: Callable[[float], str], over: Event) -> None:
    begun = time.monotonic()
    wait = _AFTER_S
    is_shown = False
    while not over.wait(wait):
        wait, is_shown = _EVERY_S, True
        output.print_progress(line(time.monotonic() - begun))
    if is_shown:
        output.print_progress("")


def line_of(part: float | None, seconds: float) -> str:
    """The line that is shown; `part` is how much was read, None where nobody knows."""
    if part is None:
        return f"reading for {seconds:.0f} s"
    filled = round(part * _BAR)
    return f"reading [{'#' * filled}{'.' * (_BAR - filled)}] {part:4.0%}, {seconds:.0f} s"


def _files(paths: Sequence[str]) -> dict[str, int]:
    """The sizes of all files, by their paths without links."""
    sizes: dict[str, int] = {}
    for path in paths:
        inner = [os.path.join(folder, name) for folder, _, names in os.walk(path) for name in names]
        for name in inner or [path]:
            with suppress(OSError):
                sizes[os.path.realpath(name)] = os.stat(name).st_size
    return sizes


def _part(traces: Sequence[Trace], files: dict[str, int]) -> float | None:
    """How much was read: of all traces, as far as they say it, or else of the file that is open. A
    trace may be read more than once."""
    parts = [trace.part for trace in traces]
    if any(part is not None for part in parts):
        return sum(part or 0.0 for part in parts) / len(parts)
    best: float | None = None
    for number in os.listdir("/proc/self/fd"):
        with suppress(OSError, ValueError, IndexError):
            size = files.get(os.readlink(f"/proc/self/fd/{number}"), 0)
            if size:
                with open(f"/proc/self/fdinfo/{number}") as info:
                    place = int(info.readline().split()[1])
                best = max(best or 0, min(place / size, 1))
    return best
