"""What a switch of many sites costs, and how much of it the target feels.

    call     the whole switch in an open session, as the controller sees it
    stopped  from the first thread that stands still until the last one runs again
    held     the part of that in which all stand: comparing, writing, reading back

by the number of sites, of threads, by what the threads do (busy in the sites, or asleep), and by
strategy: `stop`, `membarrier` and `none` from outside, `membarrier` and `none` in our own process
(what libmarkerjit takes is bench/own.py's). `first` is a switch that was not made before, with its
planning; `again` one that was. `look` is the baseline: a session's empty transaction, which takes
the lock, looks whether anything was mapped, and asks whether the process may be stopped; one stands
beside each switch, in random order, and `to look` is the median of their ratios.

All cases come in turn in each round and in a new order. Only one crowd runs at a time.

    python bench/transactions.py [--rounds N] [--json FILE] [--markdown FILE] [--quick]
                                  [--most-threads N]

Ctrl-C or SIGTERM ends the rounds early, and the table shows what was measured until then.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import random
import re
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import sites as crowds

import markerjit

PATTERN = f"{crowds.NAME}*"
OUTSIDE = ("stop", "membarrier", "none")
INSIDE = ("membarrier", "none")
SWITCHES = 8  # on and off, in a visit
MOST_TRIES = 100

Sample = dict[str, Any]


class Case(NamedTuple):
    """One way of switching one crowd."""

    where: str
    sites: int
    names: int
    threads: int
    busy: bool
    strategy: str

    @property
    def crowd(self) -> tuple[int, int, int, str]:
        """What has a crowd and a session in common. Each strategy has its own: they leave slots
        differently when they switch off, and a switch is made again only where it finds the same.
        """
        return self.sites, self.names, self.threads, self.strategy


def cases(quick: bool) -> list[Case]:
    """By sites with few threads, and by threads with few sites."""
    sizes = (1, 10) if quick else (1, 10, 100, 1_000, 10_000, 100_000)
    found = [
        Case("outside", sites, 1, 1, busy, strategy)
        for sites, busy, strategy in product(sizes, (True, False), OUTSIDE)
    ]
    found += [Case("inside", *few) for few in product(sizes, (1,), (1,), (True,), INSIDE)]
    many = (2,) if quick else (8, 64, 512)
    found += [
        Case("outside", sites, 1, threads, busy, strategy)
        for sites, threads, busy, strategy in product(
            (1,) if quick else (1, 1_000), many, (True, False), OUTSIDE
        )
    ]
    if not quick:
        found.append(Case("outside", 100_000, 1_000, 1, True, "stop"))
    return found


@contextmanager
def visiting(case: Case) -> Iterator[tuple[crowds.Crowd, markerjit.Session]]:
    """A crowd and a session with it. Our own process has one session for each library in it."""
    if case.where == "inside":
        crowd = crowds.Inside(crowds.build(case.sites).library, case.threads)
        with markerjit.attach() as session:
            yield crowd, session
        return
    with (
        crowds.crowd(sites=case.sites, threads=case.threads, names=case.names) as process,
        markerjit.attach(process.pid) as session,
    ):
        yield process, session


def look(session: markerjit.Session) -> None:
    """An empty transaction: all that every switch begins with."""
    with session._alone():
        pass


def timed(action: Callable[[], Any]) -> tuple[int, Any]:
    """Nanoseconds, and what it gave."""
    start = time.perf_counter_ns()
    result = action()
    return time.perf_counter_ns() - start, result


def persistent(action: Callable[[], Any]) -> tuple[int, Any, int]:
    """As `timed`, and how many tries were refused: no thread could be borrowed just then."""
    for refused in range(MOST_TRIES):
        try:
            return *timed(action), refused
        except markerjit.Refused as error:
            if not error.try_again:
                raise
    raise RuntimeError(f"refused {MOST_TRIES} times")


def visit(case: Case, crowd: crowds.Crowd, session: markerjit.Session, first: bool) -> list[Sample]:
    """A few switches in turn, each with a look beside it."""
    samples: list[Sample] = []

    def switch(on: bool) -> Sample:
        change = session.enable if on else session.disable
        call, applied, refused = persistent(lambda: change(PATTERN, quiesce=case.strategy))
        return {
            "call": call,
            "stopped": applied.stop + applied.held + applied.resume,
            "held": applied.held,
            "refused": refused,
        }

    # The first two are planned, and so may be the next, which find slots that were used. Planned
    # while the crowd sleeps: beside 512 threads that all want a CPU it takes minutes.
    for number in range(4 if first else 0):
        on = number % 2 == 0
        kind = "first" if number < 2 else "second"
        looked, _ = timed(lambda: look(session))
        samples.append({"kind": kind, "on": on, "look": looked, **switch(on), "busy": False})
    if case.busy:
        crowd.go()
    try:
        for number in range(SWITCHES):
            on = number % 2 == 0
            if random.random() < 0.5:
                looked, _ = timed(lambda: look(session))
                sample = switch(on)
            else:
                sample = switch(on)
                looked, _ = timed(lambda: look(session))
            samples.append({"kind": "again", "on": on, "look": looked, **sample})
    finally:
        if case.busy:
            crowd.rest()
    return samples


def measure(chosen: Sequence[Case], rounds: int, progress: Callable[[str], None]) -> list[Sample]:
    """Everything, a round after the other. Start and discovery are timed once for each crowd."""
    samples: list[Sample] = []
    visited: set[tuple[int, int, int, str]] = set()
    outside = [case for case in chosen if case.where == "outside"]
    with ExitStack() as stack, suppress(KeyboardInterrupt):
        open_ones = {}
        for case in outside:
            if case.crowd not in open_ones:
                progress(f"starting {case.sites} sites, {case.threads} threads")
                took, opened = timed(lambda case=case: stack.enter_context(visiting(case)))
                open_ones[case.crowd] = opened
                samples.append({**case._asdict(), "kind": "attach", "call": took})
        for number in range(rounds):
            for case in random.sample(outside, len(outside)):
                progress(f"round {number + 1} of {rounds}: {' '.join(map(str, case))}")
                made = visit(case, *open_ones[case.crowd], first=case.crowd not in visited)
                visited.add(case.crowd)
                samples += [{**case._asdict(), "round": number, **one} for one in made]
    return samples


def measure_inside(case: Case, rounds: int) -> list[Sample]:
    """In this process, which should have no other crowd."""
    with visiting(case) as (crowd, session):
        return [
            {**case._asdict(), "round": number, **one}
            for number in range(rounds)
            for one in visit(case, crowd, session, first=number == 0)
        ]


def ask_inside(case: Case, rounds: int) -> list[Sample]:
    """The same in a new process, so that each has one library and nothing mapped before."""
    told = json.dumps([*case])
    command = [sys.executable, __file__, "--rounds", str(rounds), "--inside", told]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    found: list[Sample] = json.loads(done.stdout)
    return found


def spread(values: Sequence[float], scale: float = 1e6) -> str:
    """Median, 5 % and 95 %."""
    if not any(values):
        return "–"
    values = [*values, *values] if len(values) == 1 else values
    low, *_, high = statistics.quantiles(values, n=20, method="inclusive")
    return " ".join(f"{value / scale:.3f}" for value in (statistics.median(values), low, high))


def table(samples: Sequence[Sample]) -> Iterator[str]:
    """Markdown: a row for each case and kind of switch."""
    yield (
        "| where | sites | names | threads | | strategy | switch | n | refused | call ms "
        "| stopped ms | held ms | look ms | to look |"
    )
    yield "| :-- | --: | --: | --: | :-- | :-- | :-- | --: | --: | :-- | :-- | :-- | :-- | --: |"
    groups: dict[tuple[Any, ...], list[Sample]] = {}
    for one in samples:
        if one["kind"] != "attach":
            key = (*(one[name] for name in Case._fields), one["kind"], one["on"])
            groups.setdefault(key, []).append(one)
    for key in sorted(groups, key=lambda key: (key[0] == "inside", *key[1:4], *map(str, key[4:]))):
        group = groups[key]
        where, sites, names, threads, busy, strategy, kind, on = key
        cells = [
            where,
            f"{sites:,}",
            f"{names:,}",
            f"{threads}",
            "busy" if busy else "asleep",
            strategy,
            f"{'on' if on else 'off'}, {kind}",
            f"{len(group)}",
            f"{sum(one['refused'] for one in group)}",
            *(spread([one[name] for one in group]) for name in ("call", "stopped", "held", "look")),
            f"{statistics.median(one['call'] / one['look'] for one in group):.1f}",
        ]
        yield "| " + " | ".join(cells) + " |"
    for one in samples:
        if one["kind"] == "attach":
            yield (
                f"\nattach with start and discovery, {one['sites']:,} sites of {one['names']:,} "
                f"names, {one['threads']} threads: {one['call'] / 1e6:.1f} ms"
            )


def bare_python_ms() -> float:
    """How busy the machine is: a bare interpreter, 10 ms where nobody disturbs it."""
    command = [sys.executable, "-I", "-S", "-c", "pass"]
    return statistics.median(
        timed(lambda: subprocess.run(command, check=True))[0] / 1e6 for _ in range(9)
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--json", metavar="FILE", help="keep every sample")
    parser.add_argument("--markdown", metavar="FILE", help="write the table there too")
    parser.add_argument("--quick", action="store_true", help="few sites, few threads")
    parser.add_argument(
        "--most-threads", type=int, default=512, help="fewer where others want the machine too"
    )
    parser.add_argument("--inside", metavar="CASE", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.inside:
        print(json.dumps(measure_inside(Case(*json.loads(options.inside)), options.rounds)))
        return

    def progress(text: str) -> None:
        print(text, file=sys.stderr, flush=True)

    chosen = [one for one in cases(options.quick) if one.threads <= options.most_threads]
    for ending in (signal.SIGINT, signal.SIGTERM):  # a shell's & leaves the first ignored
        signal.signal(ending, signal.default_int_handler)
    before = bare_python_ms()
    samples = measure(chosen, options.rounds, progress)
    for case in chosen:
        if case.where == "inside":
            progress(f"inside: {case.sites} sites, {case.strategy}")
            samples += ask_inside(case, options.rounds)
    name = re.search(r"model name\s*:\s*(.*)", Path("/proc/cpuinfo").read_text())
    machine = {
        "processor": name[1] if name else "unknown",
        "cores": os.cpu_count(),
        "kernel": platform.release(),
        "rounds": options.rounds,
        "bare python ms, before and after": [round(before, 1), round(bare_python_ms(), 1)],
    }
    if options.json:
        Path(options.json).write_text(json.dumps({"machine": machine, "samples": samples}))
    about = ", ".join(f"{name}: {value}" for name, value in machine.items())
    text = "\n".join((f"{about}; median, 5 %, 95 %", "", *table(samples)))
    print(text)
    if options.markdown:
        Path(options.markdown).write_text(text + "\n")


if __name__ == "__main__":
    main()
