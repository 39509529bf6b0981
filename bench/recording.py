"""What recording an event costs, by way of recording, beside the price of reading the clock.

One loop around each: nothing, a call, `rdtsc`, stores, a marker of markerjit dormant, counting and
recording with various options, a tracepoint of LTTng-UST. A block of events of one way is cut into
pieces, and before each piece stands one of bare `rdtsc` in the same thread; a block's figure is the
median of its pieces, and its ratio is to the median of those. (On a shared machine the speed
changes from second to second, but seldom within microseconds.) All ways come in turn in each round
and in a new order.

The rings are drained between the blocks and larger than a block, so that nothing is lost where
losing is not what is measured, and that is checked: events passed are events recorded, after every
block (LTTng's are counted at the end, by babeltrace2). If any are missing the bench says so and
ends with 1.

A record by hand is `rdtsc` and stores of what a record of ours holds, without anything that makes a
ring: into as much memory as a ring has, the same with the next lines prefetched, and into 16 KiB,
which shows what of the price is memory.

`to rdtsc` has the median over the rounds and, in brackets, the 95 % confidence interval of that
median by bootstrap; then the 5th and 95th percentile. The two threads are on two CPUs and are
compared with two threads that read the clock. A locked add on a line that threads share is the
control: if it does not show there, nothing would.

    python bench/recording.py [--rounds N] [--events N] [--ring-size BYTES] [--quick]
                              [--only GLOB]... [--json FILE] [--markdown FILE]

Ctrl-C or SIGTERM ends the rounds early, and the table shows what was measured until then. The
programs are recording/subjects.c and recording/lttng.c; how they are recorded, recorders.py.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import random
import re
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from fnmatch import fnmatch
from pathlib import Path
from typing import Any, NamedTuple

import recorders
import ust
from recorders import Target, Way
from recording_report import Run, Sample, clock_ns, percentiles, report, wrong

import markerjit

LAPS = 1.2  # of a ring before it is measured, so that its pages are there
SMALLEST_RECORD = 16
NOISY_SPREAD = 1.25
NOISY_LOAD = 0.5
NOISY_STEAL = 0.01

Visit = tuple[Way, int]
"""A way and how many threads."""


class Setting(NamedTuple):
    """What a run has in common."""

    rounds: int
    events: int
    ring_size: int


class Ending:
    """A signal asks to end after this block; a second one ends at once."""

    def __init__(self) -> None:
        self.asked = False
        for number in (
            signal.SIGINT,
            signal.SIGTERM,
        ):  # a shell's & leaves the first ignored
            signal.signal(number, self._ask)

    def _ask(self, number: int, frame: object) -> None:
        if self.asked:
            raise KeyboardInterrupt
        self.asked = True


def progress(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def measure(chosen: Sequence[Way], setting: Setting, ending: Ending) -> Run:
    """Everything, a round after the other."""
    run = Run([], {}, {})
    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        targets = dict(open_own(chosen, directory, setting, stack, run.skipped))
        tracer = open_lttng(chosen, directory, setting, stack, run.skipped, targets)
        passed = dict.fromkeys(targets, 0)
        visits = list(possible([way for way in chosen if way.name in targets], run.skipped))
        for way, threads in visits:
            if not ending.asked:
                progress(f"first laps: {way.name}, {threads} threads")
                passed[way.name] += lap(targets[way.name], way, threads, setting)
        for number in range(setting.rounds):
            if ending.asked:
                break
            progress(f"round {number + 1} of {setting.rounds}")
            for way, threads in random.sample(visits, len(visits)):
                if ending.asked:
                    break
                sample = visit(targets[way.name], way, threads, setting.events)
                passed[way.name] += sample["passed"]
                run.samples.append({"round": number, **sample})
        if tracer:
            run.accounts.update(count_at_end(tracer, passed))
    return run._replace(daemon=tracer.daemon if tracer else None)


def possible(ways: Sequence[Way], skipped: dict[str, str]) -> Iterator[Visit]:
    """All visits of a round for which there are CPUs."""
    cpus = len(os.sched_getaffinity(0))
    for way in ways:
        for threads in way.threads:
            if threads <= cpus:
                yield way, threads
            else:
                skipped[f"{way.name}, {threads} threads"] = f"CPUs for us: {cpus}"


def open_own(
    chosen: Sequence[Way],
    directory: Path,
    setting: Setting,
    stack: ExitStack,
    skipped: dict[str, str],
) -> Iterator[tuple[str, Target]]:
    """A process for all that records nothing, and one for each way of ours."""
    path = recorders.build(directory)
    bare = stack.enter_context(recorders.running(path))
    for way in chosen:
        if way.kind == "bare":
            yield way.name, Target(bare)
        elif way.kind != "lttng":
            try:
                opened = recorders.opening(way, path, setting.ring_size)
                yield way.name, stack.enter_context(opened)
            except markerjit.MarkerError as error:
                skipped[way.name] = str(error)


def open_lttng(
    chosen: Sequence[Way],
    directory: Path,
    setting: Setting,
    stack: ExitStack,
    skipped: dict[str, str],
    targets: dict[str, Target],
) -> ust.Tracer | None:
    """One process and one daemon for all ways of LTTng, if it is installed."""
    ways = [way for way in chosen if way.kind == "lttng"]
    if not ways:
        return None
    try:
        if missing := ust.missing():
            raise RuntimeError(f"not installed: apt-get install {' '.join(missing)}")
        opened = recorders.opening_lttng(directory, setting.ring_size)
        tracer, program = stack.enter_context(opened)
    except RuntimeError as error:
        skipped["LTTng"] = str(error)
        return None
    progress(f"lttng-sessiond: pid {tracer.daemon}")
    targets.update((way.name, Target(program)) for way in ways)
    return tracer


def count_at_end(tracer: ust.Tracer, passed: dict[str, int]) -> Iterator[tuple[str, Sample]]:
    """What LTTng's traces hold. One that overwrites may hold less than was passed."""
    for way in recorders.WAYS:
        if way.kind == "lttng" and way.subject in ust.SESSIONS and passed.get(way.name):
            progress(f"counting: {way.name}")
            recorded, all_of = tracer.recorded(way.subject), passed[way.name]
            is_whole = way.subject != "overwrite"
            short = is_whole and recorded < all_of
            discarded = tracer.discarded(way.subject) if short else 0
            least = all_of if is_whole else 1
            yield (
                way.name,
                {
                    "passed": all_of,
                    "recorded": recorded,
                    "discarded": discarded,
                    "right": least <= recorded + discarded <= all_of,
                },
            )


def lap(target: Target, way: Way, threads: int, setting: Setting) -> int:
    """Go round the rings once, in blocks; returns how many events that were."""
    passed = 0
    while passed * SMALLEST_RECORD < LAPS * setting.ring_size * threads:
        passed += target.run(way, threads, setting.events)[0].passed
    return passed


def visit(target: Target, way: Way, threads: int, events: int) -> Sample:
    """A block, as it is kept."""
    block, account = target.run(way, threads, events)
    return {
        "way": way.name,
        "threads": threads,
        "events": events // recorders.PIECES,
        "passed": block.passed,
        **block.times,
        **account._asdict(),
    }


def steal() -> tuple[int, int]:
    """Ticks that the host took from our CPUs, and all ticks."""
    ticks = [int(word) for word in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]]
    return ticks[7], sum(ticks)


def noise(samples: Sequence[Sample], load: float, stolen: float) -> list[str]:
    """Why the nanoseconds are not to be believed to the last digit."""
    found = []
    low, high = percentiles([clock_ns(one) for one in samples])
    if high > low * NOISY_SPREAD:
        found.append(f"bare rdtsc took {low:.1f} to {high:.1f} ns (5 and 95 %); look at ratios")
    if load > NOISY_LOAD:
        found.append(f"the load average was {load} before the run")
    if stolen > NOISY_STEAL:
        found.append(f"the host took {stolen:.1%} of the time")
    return found


def about_machine(setting: Setting) -> dict[str, Any]:
    """What the figures depend on."""

    def first_line(*command: str) -> str:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        return (done.stdout.splitlines() or ["unknown"])[0].strip()

    cpuinfo = Path("/proc/cpuinfo").read_text()
    name = re.search(r"model name\s*:\s*(.*)", cpuinfo)
    facts = subprocess.run(["lscpu"], capture_output=True, text=True, check=False).stdout
    vendor = re.search(r"Hypervisor vendor:\s*(.*)", facts)
    governor = Path("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor")
    return {
        "processor": name[1] if name else "unknown",
        "cores": os.cpu_count(),
        "kernel": platform.release(),
        "virtual machine": vendor[1] if vendor else "hypervisor" in cpuinfo,
        "governor": governor.read_text().strip() if governor.exists() else "not shown",
        "compiler": first_line("cc", "--version"),
        "flags": " ".join(word for word in recorders.COMPILE[1:] if word.startswith("-O")),
        "markerjit": markerjit.__version__,
        "LTTng": "not installed" if ust.missing() else ust.version(),
        **setting._asdict(),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--events", type=int, default=22_000, help="in a block, for each thread")
    parser.add_argument("--ring-size", type=int, default=1 << 22, help="bytes for each CPU")
    parser.add_argument("--quick", action="store_true", help="3 rounds of 2,200, small rings")
    parser.add_argument("--only", metavar="GLOB", action="append", help="names of ways")
    parser.add_argument("--json", metavar="FILE", help="keep every sample")
    parser.add_argument("--markdown", metavar="FILE", help="write the table there too")
    options = parser.parse_args()
    setting = Setting(options.rounds, options.events, options.ring_size)
    if options.quick:
        setting = Setting(min(options.rounds, 3), 2_200, 1 << 19)
    globs = options.only or ["*"]
    chosen = [way for way in recorders.WAYS if any(fnmatch(way.name, glob) for glob in globs)]
    machine = about_machine(setting)
    load, ticks = os.getloadavg()[0], steal()
    run = measure(chosen, setting, Ending())
    stolen, ran = (after - before for after, before in zip(steal(), ticks, strict=True))
    if not run.samples:
        sys.exit("; ".join(["nothing was measured", *map(": ".join, run.skipped.items())]))
    machine["load before and after"] = [round(one, 2) for one in (load, os.getloadavg()[0])]
    machine["noise"] = noise(run.samples, load, stolen / max(ran, 1))
    if options.json:
        kept = {"machine": machine, **run._asdict()}
        Path(options.json).write_text(json.dumps(kept, separators=(",", ":")))
    text = "\n".join(report(run, machine))
    print(text)
    if options.markdown:
        Path(options.markdown).write_text(text + "\n")
    if wrong(run):
        sys.exit("events are not accounted for")


if __name__ == "__main__":
    main()
