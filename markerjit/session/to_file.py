"""The events of a stream in a file, until the stream ends.

What this does not do: switch anything, or know when to end.
"""

from __future__ import annotations

from markerjit.events.stream import EventStream
from markerjit.session.target import Target
from markerjit.session.trace import trace_info
from markerjit.trace.open import open_sink, takes_packets


def write_events(
    target: Target, stream: EventStream, path: str, *, exact: bool, force: bool
) -> None:
    """Write all events that a stream brings. `exact`: the stream ends in the middle of a packet, so
    that packets cannot be written as they were recorded."""
    info = trace_info(target, tuple(stream.types.values()), stream.clock())
    sink = open_sink(path, info, force=force, of_columns=exact)
    try:
        packets = takes_packets(sink)
        for batch in stream.record_batches(packets=packets, columns=not packets):
            sink.write(batch)
    finally:
        sink.close(stream.lost())
