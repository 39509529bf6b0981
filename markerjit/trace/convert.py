"""Conversion of a trace, or of some of its markers, to another format."""

from __future__ import annotations

import contextlib
import os
from collections import Counter
from collections.abc import Callable

from markerjit.arguments import check_callable, check_flag, check_is, check_path
from markerjit.errors import MarkerError, Refused
from markerjit.trace.batch import Batch
from markerjit.trace.open import format_of, open_sink
from markerjit.trace.reading import Trace


def convert(
    trace: Trace,
    path: str,
    select: Callable[[str], bool] = lambda name: True,
    *,
    force: bool = False,
) -> int:
    """Write a trace to another file; returns the number of events.

    `select` chooses markers by name. If the trace is damaged in the middle, the events before the
    damage are written and can be read.
    """
    from markerjit.trace.encode import with_packets
    from markerjit.trace.records import pieces

    check_is("trace", trace, Trace)
    check_path("path", path)
    check_callable("select", select)
    check_flag("force", force)
    path = os.fspath(path)
    with contextlib.suppress(OSError):  # a file that stat cannot reach: writing it raises the error
        if os.path.samefile(trace.path, path):
            raise Refused(f"{path} is the trace itself; take another name")
    takes_packets = format_of(path).is_directory
    kinds = tuple(kind for kind in trace.info.types if select(kind.marker))
    sink = open_sink(path, trace.info._replace(types=kinds), force=force)
    count = 0
    try:
        for batch in trace.batches():
            chosen = [columns for columns in batch if select(columns.type.marker)]
            for piece in pieces(chosen, trace.info.clock):
                records = Batch((), piece, {})
                sink.write(with_packets(records) if takes_packets else records)
                count += sum(len(columns.time) for columns in piece)
    finally:
        # CTF counts losses by CPU, and has no negative CPU.
        lost: Counter[tuple[int, str]] = Counter()
        with contextlib.suppress(MarkerError):  # known by now, unless the trace is damaged
            for (cpu, name), number in trace.lost.items():
                if not name or select(name):
                    lost[max(cpu, 0) if takes_packets else cpu, name] += number
        sink.close(lost)
    return count
