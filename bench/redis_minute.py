"""A server switched on and off under the stock redis-benchmark, a minute for each protocol.

Fifty connections ask for keys at random, one request at a time or sixteen; meanwhile the server's
markers flip, as fast as one controller can or ten times a second. Slices of all protocols come in
turn in each round and in a new order, so that what else the machine does meets them all alike.
`quiet` flips nothing, and every ratio is to it in the same round. `no target` is the second
control: a controller that spins beside the load and touches nobody, for on few cores the time that
the controller takes from the server is most of what shows.

A request has failed when redis-benchmark says so, when it ends with an error, or when the server
did not count it. Percentiles are medians over slices, the slowest request is of all slices.

    python bench/redis_minute.py [--seconds N] [--json FILE] [--markdown FILE]

Ctrl-C or SIGTERM ends it early, and the table shows what was measured until then.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import random
import re
import signal
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

import markerjit
from markerjit import Mode
from markerjit.apps import showcase

CONNECTIONS = 50
PIPELINES = (1, 16)
PERIODS_S = {"as fast as it can": 0.0, "10 a second": 0.1}
SLICE_S = 2.5
KEYS = 10_000
MARKERS = "kv_*"
COMMAND = ("get", "key:__rand_int__")
ASIDE = 2  # CONFIG GET save, CONFIG GET appendonly: redis-benchmark asks before it begins

Flip = Callable[[markerjit.Session], object]
Sample = dict[str, Any]


class Way(NamedTuple):
    """A protocol under a strategy: the two switches that are made in turn; none for a control."""

    name: str
    strategy: str
    build: str
    flips: tuple[Flip, ...]


def ways() -> list[Way]:
    """All of them; the first is the baseline."""

    def on(strategy: str, mode: Mode | None = None) -> Flip:
        return lambda session: session.enable(MARKERS, mode=mode, quiesce=strategy)

    def off(strategy: str) -> Flip:
        return lambda session: session.disable(MARKERS, quiesce=strategy)

    ways = [
        Way("quiet", "", "kvserver", ()),
        Way("no target", "", "kvserver", (lambda session: None,)),
        Way("quiet, pointer", "", "kvserver-pointer", ()),
        Way("pointer swap", "stop", "kvserver-pointer", (on("stop"), off("stop"))),
    ]
    for strategy in ("stop", "membarrier", "none"):
        ways.append(Way("byte flip", strategy, "kvserver", (on(strategy), off(strategy))))
    for strategy in ("stop", "membarrier"):
        trap = on(strategy, Mode.INT3)
        ways.append(Way("jump and int3", strategy, "kvserver", (on(strategy, Mode.JUMP), trap)))
        ways.append(Way("int3 on and off", strategy, "kvserver", (trap, off(strategy))))
    return ways


class Target:
    """A server, a session with it, and what the server itself has counted."""

    def __init__(self, server: showcase.Server, session: markerjit.Session) -> None:
        self.server = server
        self.session = session

    def commands(self) -> int:
        """Requests that the server has answered; this one is the last of them."""
        with socket.create_connection(("127.0.0.1", self.server.port)) as client:
            client.sendall(b"INFO\r\n")
            text = b""
            while b"deletes:" not in text:
                got = client.recv(1 << 16)
                if not got:
                    raise RuntimeError("the server closed the connection")
                text += got
        match = re.search(rb"\bcommands:(\d+)", text)
        assert match
        return int(match[1])

    def hits(self) -> int:
        """Executions of our probes."""
        return sum(statistic.total for statistic in self.session.statistics(MARKERS))


@contextmanager
def running(build: str) -> Iterator[Target]:
    """A server full of keys, and a session in which both states have been switched once."""
    with (
        showcase.server(build) as server,
        markerjit.attach(server.pid) as session,
    ):
        finish(start(server, requests=4 * KEYS, pipeline=16, command=("set", COMMAND[1], "value")))
        session.enable(MARKERS)
        session.disable(MARKERS)
        yield Target(server, session)


def start(
    server: showcase.Server, *, requests: int, pipeline: int, command: Sequence[str] = COMMAND
) -> subprocess.Popen[str]:
    """The stock client. It tries for ever without a server, so the server has to be there."""
    return subprocess.Popen(
        [
            "redis-benchmark", "-p", str(server.port), "-c", str(CONNECTIONS),
            "-n", str(requests), "-P", str(pipeline), "-r", str(KEYS), "--precision", "3", *command,
        ],
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    )  # fmt: skip


def finish(load: subprocess.Popen[str]) -> Sample:
    """What it said: how many requests were completed and how long they took."""
    output, _ = load.communicate()
    spectrum = [
        (float(percent), float(ms), int(count))
        for percent, ms, count in re.findall(
            r"([\d.]+)% <= ([\d.]+) milliseconds \(cumulative count (\d+)\)", output
        )
    ]
    seconds = re.search(r"requests completed in ([\d.]+) seconds", output)
    rate = re.search(r"throughput summary: ([\d.]+)", output)
    sample: Sample = {
        "code": load.returncode,
        "errors": [line for line in output.splitlines() if "rror" in line],
        "completed": max((count for *_, count in spectrum), default=0),
        "seconds": float(seconds[1]) if seconds else 0.0,
        "rate": float(rate[1]) if rate else 0.0,
        "max": max((ms for _, ms, _ in spectrum), default=0.0),
    }
    for name, least in (("p50", 50.0), ("p99", 99.0), ("p99.9", 99.9)):
        sample[name] = min((ms for percent, ms, _ in spectrum if percent >= least), default=0.0)
    return sample


def flip_until(
    load: subprocess.Popen[str], session: markerjit.Session, flips: Sequence[Flip], period_s: float
) -> int:
    """Switch in turn until the load has ended, and once at least; returns how often. A switch that
    is refused for the moment (a thread could not be borrowed now) counts for nothing and is tried
    again."""
    made = 0
    due = time.monotonic()
    while not made or load.poll() is None:
        try:
            flips[made % len(flips)](session)
            made += 1
        except markerjit.Refused as refused:
            if not refused.try_again:
                raise
        due = max(due + period_s, time.monotonic())
        time.sleep(max(0.0, due - time.monotonic()))
    return made


def measure_slice(
    target: Target, way: Way, pipeline: int, period_s: float, requests: int
) -> Sample:
    """One load, with flips or without, and what was lost."""
    before, hits = target.commands(), target.hits()
    load = start(target.server, requests=requests, pipeline=pipeline)
    flips = flip_until(load, target.session, way.flips, period_s) if way.flips else 0
    sample = finish(load)
    if way.strategy:
        target.session.disable(MARKERS)
    counted = target.commands() - before - 1 - ASIDE
    missing = max(0, requests - sample["completed"]) + max(0, sample["completed"] - counted)
    sample["failed"] = missing + len(sample["errors"]) + (sample["code"] != 0)
    return {**sample, "flips": flips, "hits": target.hits() - hits}


def measure(seconds: float, progress: Callable[[str], None]) -> Iterator[Sample]:
    """All slices. Each way gets `seconds` of load, shared by all pipelines and periods."""
    all_ways = ways()
    settings = [(pipeline, period) for pipeline in PIPELINES for period in PERIODS_S]
    share_s = seconds / len(settings)
    rounds = max(1, round(share_s / SLICE_S))
    with ExitStack() as stack:
        targets = {
            build: stack.enter_context(running(build)) for build in {way.build for way in all_ways}
        }
        for number in range(rounds):
            for pipeline, period in random.sample(settings, len(settings)):
                requests = calibrate(targets["kvserver"], pipeline, share_s / rounds)
                for way in random.sample(all_ways, len(all_ways)):
                    progress(f"round {number + 1} of {rounds}: {way.name}, {pipeline}, {period}")
                    target = targets[way.build]
                    sample = measure_slice(target, way, pipeline, PERIODS_S[period], requests)
                    at = {"round": number, "pipeline": pipeline, "period": period}
                    yield {**at, "way": way.name, "strategy": way.strategy, **sample}


def calibrate(target: Target, pipeline: int, slice_s: float) -> int:
    """How many requests fill a slice, by what the quiet server does in a tenth of one."""
    tried = finish(start(target.server, requests=2_000 * pipeline, pipeline=pipeline))
    tried = finish(
        start(
            target.server,
            requests=_whole(tried["rate"] * slice_s / 10, pipeline),
            pipeline=pipeline,
        )
    )
    return _whole(tried["rate"] * slice_s, pipeline)


def _whole(requests: float, pipeline: int) -> int:
    """So many that every connection sends whole pipelines."""
    step = CONNECTIONS * pipeline
    return max(1, round(requests / step)) * step


def table(samples: Sequence[Sample]) -> Iterator[str]:
    """Markdown: a row for each way, pipeline and period."""
    yield (
        "| pipeline | flips | protocol | strategy | requests | failed | flips made | flips/s "
        "| throughput to quiet | p50 ms | p99 ms | p99.9 ms | slowest ms |"
    )
    yield "| --: | :-- | :-- | :-- | --: | --: | --: | --: | :-- | --: | --: | --: | --: |"
    for pipeline in PIPELINES:
        for period in PERIODS_S:
            for way in ways():
                chosen = [
                    sample
                    for sample in samples
                    if (sample["pipeline"], sample["period"]) == (pipeline, period)
                    and (sample["way"], sample["strategy"]) == (way.name, way.strategy)
                ]
                if chosen:
                    yield row(way, pipeline, period, chosen, _rates(samples, way, pipeline, period))


def _rates(samples: Sequence[Sample], way: Way, pipeline: int, period: str) -> dict[int, float]:
    """The quiet server's throughput by round; of the same build."""
    quiet = "quiet, pointer" if "pointer" in way.build else "quiet"
    return {
        sample["round"]: sample["rate"]
        for sample in samples
        if (sample["way"], sample["pipeline"], sample["period"]) == (quiet, pipeline, period)
    }


def row(
    way: Way, pipeline: int, period: str, chosen: Sequence[Sample], quiet: dict[int, float]
) -> str:
    """One line of the table."""
    ratios = [
        sample["rate"] / quiet[sample["round"]] for sample in chosen if quiet.get(sample["round"])
    ]
    flips = sum(sample["flips"] for sample in chosen) if way.strategy else 0
    seconds = sum(sample["seconds"] for sample in chosen) or 1.0
    cells = [
        str(pipeline),
        period if way.flips else "none",
        way.name,
        way.strategy or "–",
        f"{sum(sample['completed'] for sample in chosen):,}",
        f"{sum(sample['failed'] for sample in chosen):,}",
        f"{flips:,}",
        f"{flips / seconds:,.0f}",
        f"{statistics.median(ratios):.2f} ({min(ratios):.2f} … {max(ratios):.2f})"
        if ratios
        else "–",
        *(
            f"{statistics.median(sample[name] for sample in chosen):.2f}"
            for name in ("p50", "p99", "p99.9")
        ),
        f"{max(sample['max'] for sample in chosen):.1f}",
    ]
    return "| " + " | ".join(cells) + " |"


def bare_python_ms() -> float:
    """How busy the machine is: a bare interpreter, 10 ms where nobody disturbs it."""

    def once() -> float:
        begun = time.perf_counter()
        subprocess.run([sys.executable, "-I", "-S", "-c", "pass"], check=True)
        return (time.perf_counter() - begun) * 1e3

    return statistics.median(once() for _ in range(9))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=60, help="of load for each protocol")
    parser.add_argument("--json", metavar="FILE", help="keep every slice")
    parser.add_argument("--markdown", metavar="FILE", help="write the table there too")
    options = parser.parse_args()
    for ending in (signal.SIGINT, signal.SIGTERM):  # a shell's & leaves the first ignored
        signal.signal(ending, signal.default_int_handler)
    before = bare_python_ms()
    samples: list[Sample] = []
    with suppress(KeyboardInterrupt):  # what was measured until then is shown
        for sample in measure(
            options.seconds, lambda text: print(text, file=sys.stderr, flush=True)
        ):
            samples.append(sample)
    after = bare_python_ms()
    machine = {
        "processor": processor(),
        "cores": os.cpu_count(),
        "kernel": platform.release(),
        "seconds": options.seconds,
        "bare python ms, before and after": [round(before, 1), round(after, 1)],
    }
    if options.json:
        Path(options.json).write_text(json.dumps({"machine": machine, "samples": samples}))
    text = "\n".join(
        (", ".join(f"{name}: {value}" for name, value in machine.items()), "", *table(samples))
    )
    print(text)
    if options.markdown:
        Path(options.markdown).write_text(text + "\n")
    if any(sample["failed"] for sample in samples):
        sys.exit("requests failed")


def processor() -> str:
    """The processor's name."""
    match = re.search(r"model name\s*:\s*(.*)", Path("/proc/cpuinfo").read_text())
    return match[1] if match else "unknown"


if __name__ == "__main__":
    main()
