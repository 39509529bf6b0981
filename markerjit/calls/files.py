"""Files of a call graph, or of samples of stacks, by their suffix.

    .folded, .collapsed   collapsed stacks: a line for each chain of callers with its own time in
                          nanoseconds, or its number of samples, as flamegraph.pl and others read it
    .speedscope.json      for speedscope.app: the same chains, by weight
    .html                 a page with a flame graph that needs nothing else (page.py)
    .svg                  the flame graph by itself, as a picture

A file is written whole, at the end, so no half of one is left. Perfetto shows single calls, in the
order of time (slices.py).
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from contextlib import suppress

from markerjit.arguments import check_flag, check_is, check_path
from markerjit.calls.flames import Flames, flames_of
from markerjit.calls.graph import CallGraph
from markerjit.calls.samples import StackSamples, WeighedStacks
from markerjit.errors import Refused
from markerjit.trace.files import create, exists

SLICES = (".pftrace", ".perfetto-trace")
"""Suffixes of files that are written while the calls are traced."""


def check_calls_file(path: str, *, force: bool = False, slices: bool = True) -> bool:
    """Raise Refused where a file of this name cannot be written: an unknown suffix, or a file that
    exists, unless `force`; without `slices` also for the suffix of single calls. Returns whether
    the file is one of single calls, which are written while they are traced."""
    check_path("path", path)
    check_flag("force", force)
    check_flag("slices", slices)
    path = os.fspath(path)
    known = (*_WRITERS, *SLICES) if slices else (*_WRITERS,)
    if not path.endswith(known):
        suffixes = ", ".join(known)
        raise Refused(f"{path}: calls are written to files with one of the suffixes {suffixes}")
    check_new_file(path, force=force)
    return path.endswith(SLICES)


def check_new_file(path: str, *, force: bool) -> None:
    """Raise Refused where no file of this name can be written, or one is there, unless `force`."""
    folder = os.path.dirname(path) or "."
    if not os.path.isdir(folder):
        raise Refused(f"cannot write {path}: {folder} is not a directory")
    if os.path.exists(path):
        if not force:
            raise exists(path)
        if not os.path.isfile(path):
            raise Refused(f"cannot write {path}: it is not a regular file")


def write_calls(
    graph: CallGraph | StackSamples | WeighedStacks, path: str, *, force: bool = False
) -> None:
    """Write calls, samples of stacks, or the stacks of events to a file. Raises Refused as
    `check_calls_file` does, for a full disk, and for the suffix of slices, which a graph does not
    have."""
    check_is("graph", graph, CallGraph, StackSamples, WeighedStacks)
    if check_calls_file(path, force=force):
        raise Refused(
            f"{path}: Perfetto shows single calls, which a graph no longer has; they are written "
            "while the calls are traced"
        )
    write_flames(flames_of(graph), os.fspath(path), force=force)


def write_flames(flames: Flames, path: str, *, force: bool) -> None:
    """Write flames to a file whose suffix says how. Raises Refused for a full disk."""
    make = next(make for suffix, make in _WRITERS.items() if path.endswith(suffix))
    content = make(flames).encode("utf-8", "backslashreplace")
    try:
        with create(path, force=force) as file:
            file.write(content)
    except OSError as error:
        with suppress(OSError):  # half of a file cannot be read
            os.unlink(path)
        raise unwritten(path, error) from error


def unwritten(path: str, error: OSError) -> Refused:
    """The error for a file that cannot be written to its end."""
    return Refused(f"cannot write {path}: {error.strerror}")


def chains(flames: Flames) -> Iterator[tuple[tuple[str, ...], int]]:
    """The functions of each stack, the outermost first, and the weight of the last one without its
    callees."""
    of_node: list[tuple[str, ...]] = [()]
    for node in flames.nodes[1:]:
        names = (*of_node[node.parent], node.name)
        of_node.append(names)
        if node.own > 0:
            yield names, node.own


def folded(flames: Flames) -> str:
    """Collapsed stacks. A semicolon in a name would end it, so it is written as a colon."""
    return "".join(
        f"{';'.join(name.replace(';', ':') for name in names)} {own}\n"
        for names, own in chains(flames)
    )


def speedscope(flames: Flames) -> str:
    """A profile of weighted stacks: speedscope.app/file-format-schema.json."""
    frames: dict[str, int] = {}
    samples: list[list[int]] = []
    weights: list[int] = []
    for names, own in chains(flames):
        samples.append([frames.setdefault(name, len(frames)) for name in names])
        weights.append(own)
    profile = {
        "type": "sampled", "name": flames.title,
        "unit": flames.unit, "startValue": 0, "endValue": sum(weights),
        "samples": samples, "weights": weights,
    }  # fmt: skip
    return json.dumps({
        "$schema": "https://www.speedscope.app/file-format-schema.json",
        "name": flames.title,
        "exporter": "markerjit",
        "activeProfileIndex": 0,
        "shared": {"frames": [{"name": name} for name in frames]},
        "profiles": [profile],
    }) + "\n"  # fmt: skip


def _page(flames: Flames) -> str:
    from markerjit.calls.page import page

    return page(flames)


def _picture(flames: Flames) -> str:
    from markerjit.calls.page import picture

    return picture(flames)


_WRITERS: dict[str, Callable[[Flames], str]] = {
    ".folded": folded,
    ".collapsed": folded,
    ".speedscope.json": speedscope,
    ".html": _page,
    ".svg": _picture,
}
