"""A trace in another format, whole or some of its markers."""

from __future__ import annotations

import contextlib
import os
from collections import Counter
from collections.abc import Callable

from markerjit.arguments import check_callable, check_flag, check_is, check_path
from markerjit.errors import MarkerError, Refused
from markerjit.ring.batch import Batch
from markerjit.trace.open import format_of, open_sink
from markerjit.trace.reading import Trace


def convert(
    trace: Trace,
    path: str,
    wanted: Callable[[str], bool] = lambda name: True,
    *,
    force: bool = False,
) -> int:
    """Write a trace again; returns how many events. What was written stays, and can be read, where
    the trace turns out to be damaged in the middle."""
    from markerjit.trace.encode import with_packets
    from markerjit.trace.records import pieces

    check_is("trace", trace, Trace)
    check_path("path", path)
    check_callable("wanted", wanted)
    check_flag("force", force)
    path = os.fspath(path)
    with contextlib.suppress(OSError):  # of a file that cannot be seen: writing it says why
        if os.path.samefile(trace.path, path):
            raise Refused(f"{path} is the trace itself; take another name")
    takes_packets = format_of(path).is_directory
    kinds = tuple(kind for kind in trace.info.types if wanted(kind.marker))
    sink = open_sink(path, trace.info._replace(types=kinds), force=force)
    count = 0
    try:
        for batch in trace.batches():
            chosen = [columns for columns in batch if wanted(columns.type.marker)]
            for piece in pieces(chosen, trace.info.clock):
                records = Batch((), piece, {})
                sink.write(with_packets(records) if takes_packets else records)
                count += sum(len(columns.time) for columns in piece)
    finally:
        # CTF counts losses by CPU, and knows no CPU below 0.
        lost: Counter[tuple[int, str]] = Counter()
        with contextlib.suppress(MarkerError):  # known by now, unless the trace is damaged
            for (cpu, name), number in trace.lost.items():
                if not name or wanted(name):
                    lost[max(cpu, 0) if takes_packets else cpu, name] += number
        sink.close(lost)
    return count
