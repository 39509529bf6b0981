"""How fast events can come without one being lost: a program passes them at a pace, on one CPU, and
a reader on another takes them out of the rings.

The reader counts them only ("taken out"), makes columns of them, or writes a file. For each the
pace is made faster until events are lost; said is the fastest at which, in each of some runs of a
second, none was, and how much is lost at full speed. And how fast a full ring is emptied while
nobody writes to it: the median of some times.

    python bench/draining.py [--seconds S] [--ring-size MIB] [--json FILE]
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import markerjit
from markerjit.quiesce.native import tsc_frequency

ROOT = Path(__file__).resolve().parent.parent
MILLIONS = (0.5, 1, 2, 3, 5, 8, 12, 16, 20, 25, 30, 40)
RUNS = 3
EMPTIED = 21
RECORD = 24
"""Bytes of one of paced.c's."""


class Paced:
    """paced.c, running."""

    def __init__(self, directory: Path) -> None:
        program = directory / "paced"
        include = ROOT / "native/include"
        subprocess.run(
            ["cc", "-O2", "-I", include, "-o", program, ROOT / "bench/recording/paced.c"],
            check=True,
        )
        self._process = subprocess.Popen(
            [program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self.pid = self._process.pid
        self._line()

    def run(self, events: int, apart: int) -> float:
        """Pass events so many ticks apart; returns how many a second came."""
        assert self._process.stdin
        self._process.stdin.write(f"run {events} {apart}\n")
        self._process.stdin.flush()
        said = dict(pair.split("=") for pair in self._line().split()[1:])
        return int(said["passed"]) * 1e9 / int(said["ns"])

    def end(self) -> None:
        self._process.kill()
        self._process.communicate()

    def _line(self) -> str:
        assert self._process.stdout
        return self._process.stdout.readline()


Take = Callable[[markerjit.EventStream], object]


def ways(directory: Path, session: markerjit.Session) -> dict[str, Callable[..., Take]]:
    """What is done with the events, by name: functions from a stream to one that polls it."""

    def only_taken(stream: markerjit.EventStream) -> Take:
        return lambda one: one.poll_batch(packets=True, columns=False)

    def columns(stream: markerjit.EventStream) -> Take:
        return lambda one: one.poll_batch()

    def written(suffix: str, number: list[int]) -> Callable[..., Take]:
        def open_(stream: markerjit.EventStream) -> Take:
            number[0] += 1
            info = session.trace_info(tuple(stream.types.values()), stream.clock())
            sink = markerjit.open_sink(str(directory / f"{number[0]}{suffix}"), info)
            packets = markerjit.takes_packets(sink)

            def take(one: markerjit.EventStream) -> object:
                batch = one.poll_batch(packets=packets, columns=not packets)
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
    paced: Paced, session: markerjit.Session, way: Callable[..., Take], rate: float, seconds: float
) -> tuple[float, int, int]:
    """Events a second as they came, how many there were, and how many were lost."""
    events = int(rate * seconds)
    apart = int(tsc_frequency(0.02) / rate) if rate < 1e9 else 0
    came: list[float] = []
    with session.trace("paced", poll_s=0.001) as stream:
        take = way(stream)
        take(stream)
        running = threading.Thread(target=lambda: came.append(paced.run(events, apart)))
        running.start()
        while running.is_alive():
            take(stream)
        take(stream)
        stream.rest(packets=True, columns=False)
        seen = stream.statistics()
    return came[0], events, seen.lost


def emptied(
    paced: Paced, session: markerjit.Session, way: Callable[..., Take], ring_size: int
) -> float:
    """Events a second out of a ring that has been filled."""
    rates = []
    with session.trace("paced") as stream:
        take = way(stream)
        take(stream)
        for _ in range(EMPTIED):
            stream.keep()
            paced.run(ring_size // RECORD * 9 // 10, 0)
            before, start = stream.statistics().events, time.perf_counter()
            take(stream)
            took = time.perf_counter() - start
            rates.append((stream.statistics().events - before) / took)
    return statistics.median(rates)


def measure(seconds: float, ring_size: int) -> dict[str, Any]:
    """The fastest rate without loss for each way, and what is lost at full speed."""
    found: dict[str, Any] = {}
    os.sched_setaffinity(0, set(range(1, os.cpu_count() or 1)) or {0})
    with tempfile.TemporaryDirectory(dir="/dev/shm") as name:
        directory = Path(name)
        paced = Paced(directory)
        try:
            with markerjit.attach(paced.pid, ring_size=ring_size) as session:
                for name, way in ways(directory, session).items():
                    lossless = 0.0
                    for millions in MILLIONS:
                        runs = [
                            lost_at(paced, session, way, millions * 1e6, seconds)
                            for _ in range(RUNS)
                        ]
                        if any(lost for _, _, lost in runs):
                            break
                        lossless = min(came for came, _, _ in runs)
                    full = lost_at(paced, session, way, 1e9, 0.02 * seconds)
                    alone = emptied(paced, session, way, ring_size)
                    found[name] = {
                        "emptied": alone,
                        "lossless": lossless,
                        "at full speed": full[0],
                        "lost there": full[2] / full[1],
                    }
                    print(
                        f"| {name} | {lossless / 1e6:.1f} M/s | {full[0] / 1e6:.0f} M/s | "
                        f"{full[2] / full[1]:.0%} | {alone / 1e6:.0f} M/s |",
                        flush=True,
                    )
        finally:
            paced.end()
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--seconds", type=float, default=1.0)
    parser.add_argument("--ring-size", type=int, default=16, metavar="MIB")
    parser.add_argument("--json", type=Path, metavar="FILE")
    options = parser.parse_args()
    print("| events are | without loss up to | all at once come | of which are lost | alone |")
    print("| --- | ---: | ---: | ---: | ---: |")
    found = measure(options.seconds, options.ring_size << 20)
    if options.json:
        options.json.write_text(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
