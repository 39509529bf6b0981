"""How fast events can come without one being lost: a program passes them at a pace, on one CPU, and
a reader on another takes them out of the rings.

The reader counts them only ("taken out"), makes columns of them, or writes a file. For each the
pace is made faster until events are lost; said is the fastest at which, in each of some runs of a
second, none was, and how much is lost at full speed. How fast a full ring is emptied while nobody
writes to it, `markerjit bench reading` says.

    python bench/draining.py [--seconds S] [--ring-size MIB] [--json FILE]
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
import threading
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import markerjit
from markerjit.apps.bench.reading.fill import Fill
from markerjit.remote.native import tsc_frequency

PROGRAM = Path(markerjit.__file__).parent / "_native/bench/reading/fill"
MILLIONS = (0.5, 1, 2, 3, 5, 8, 12, 16, 20, 25, 30, 40)
RUNS = 3
EVENTS = "ints"


Take = Callable[[markerjit.EventStream], object]


def ways(directory: Path, session: markerjit.Session) -> dict[str, Callable[..., Take]]:
    """What is done with the events, by name: functions from a stream to one that polls it."""

    def only_taken(stream: markerjit.EventStream) -> Take:
        return lambda stream: stream.poll_batch(packets=True, columns=False)

    def columns(stream: markerjit.EventStream) -> Take:
        return lambda stream: stream.poll_batch()

    def written(suffix: str, number: list[int]) -> Callable[..., Take]:
        def open_(stream: markerjit.EventStream) -> Take:
            number[0] += 1
            info = session.trace_info(tuple(stream.types.values()), stream.clock())
            sink = markerjit.open_sink(str(directory / f"{number[0]}{suffix}"), info)
            packets = markerjit.takes_packets(sink)

            def take(stream: markerjit.EventStream) -> object:
                batch = stream.poll_batch(packets=packets, columns=not packets)
                if batch:
                    sink.write(batch)
                return batch

            return take

        return open_

    return {
        "taken out": only_taken,
        "columns": columns,
        "CTF": written(".ctf", [0]),
        "Parquet": written(".parquet", [0]),
    }


def lost_at(
    fill: Fill, session: markerjit.Session, way: Callable[..., Take], rate: float, seconds: float
) -> tuple[float, int, int]:
    """Events a second as they came, how many there were, and how many were lost."""
    events = int(rate * seconds)
    apart = int(tsc_frequency(0.02) / rate) if rate < 1e9 else 0
    came: list[float] = []
    with session.trace(f"fill_{EVENTS}", poll_s=0.001) as stream:
        take = way(stream)
        take(stream)
        running = threading.Thread(
            target=lambda: came.append(events * 1e9 / fill.run(0, EVENTS, events, apart))
        )
        running.start()
        while running.is_alive():
            take(stream)
        take(stream)
        stream.rest(packets=True, columns=False)
        seen = stream.statistics()
    return came[0], events, seen.lost


def measure(seconds: float, ring_size: int) -> dict[str, Any]:
    """The fastest rate without loss for each way, and what is lost at full speed."""
    results: dict[str, Any] = {}
    os.sched_setaffinity(0, set(range(1, os.cpu_count() or 1)) or {0})
    with tempfile.TemporaryDirectory(dir="/dev/shm") as name:
        directory = Path(name)
        with (
            closing(Fill(PROGRAM)) as fill,
            markerjit.attach(fill.pid, ring_size=ring_size) as session,
        ):
            for name, way in ways(directory, session).items():
                lossless = 0.0
                for millions in MILLIONS:
                    runs = [
                        lost_at(fill, session, way, millions * 1e6, seconds) for _ in range(RUNS)
                    ]
                    if any(lost for _, _, lost in runs):
                        break
                    lossless = min(came for came, _, _ in runs)
                full = lost_at(fill, session, way, 1e9, 0.02 * seconds)
                results[name] = {
                    "lossless": lossless,
                    "at full speed": full[0],
                    "lost there": full[2] / full[1],
                }
                print(
                    f"| {name} | {lossless / 1e6:.1f} M/s | {full[0] / 1e6:.0f} M/s | "
                    f"{full[2] / full[1]:.0%} |",
                    flush=True,
                )
    return results


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--seconds", type=float, default=1.0)
    parser.add_argument("--ring-size", type=int, default=16, metavar="MIB")
    parser.add_argument("--json", type=Path, metavar="FILE")
    options = parser.parse_args()
    print("| events are | without loss up to | all at once come | of which are lost |")
    print("| --- | ---: | ---: | ---: |")
    results = measure(options.seconds, options.ring_size << 20)
    if options.json:
        options.json.write_text(json.dumps(results, indent=1))


if __name__ == "__main__":
    main()
