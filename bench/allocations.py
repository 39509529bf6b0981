"""What following allocations costs a Python program: `markerjit alloc` beside heaptrack and memray.

A program that works on small objects, and says how long each turn took, is run in each of the ways
in turn, in another order in each round. A table has the median of all turns of a way, its range
over the rounds, how much longer a turn took than without anything, the same of the processor time
of the program, and how many allocations `markerjit alloc` has not kept, for want of room. The
processor time is what the program itself takes: it says more than the time where the machine is
busy with other work. `markerjit alloc` is attached to the running program; heaptrack is preloaded,
and memray starts it. A way whose tool is not here is left out, and said.

    python bench/allocations.py [--rounds N] [--turns N] [--json FILE]

heaptrack is Debian's package of this name; memray is that of PyPI, found as `memray` in the path or
named by --memray. PYTHONMALLOC=malloc has Python ask malloc for all that it allocates.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

PROGRAM = """
import os, sys, time
def turn(n):
    kept = []
    for i in range(n):
        block = {i: str(i) * (i % 40), "list": [i] * (i % 100)}
        if i % 7 == 0:
            kept.append(block)
    return kept
turns = int(sys.argv[1])
print("ready", flush=True)
while not os.path.exists(sys.argv[2]):
    time.sleep(0.01)
for _ in range(turns):
    began, used = time.perf_counter_ns(), time.process_time_ns()
    turn(20000)
    print(time.perf_counter_ns() - began, time.process_time_ns() - used, flush=True)
"""
BARE = "nothing"


def ways(folder: Path, memray: str | None) -> dict[str, list[str] | None]:
    """The beginning of the command of each way; None where its tool is not here."""
    heaptrack = shutil.which("heaptrack")
    return {
        BARE: [],
        "markerjit alloc": [],
        "markerjit alloc --by stack": [],
        "heaptrack": heaptrack and [heaptrack, "-r", "-o", str(folder / "heap")],
        "memray": memray and [memray, "run", "-q", "-f", "-o", str(folder / "memray.bin")],
        "memray --native": memray
        and [memray, "run", "--native", "-q", "-f", "-o", str(folder / "memray.bin")],
    }  # type: ignore[return-value]


def turns_of(
    way: str, begin: Sequence[str], program: Path, count: int
) -> tuple[list[list[int]], dict[str, int]]:
    """How long each turn took, and the processor time that it took of the program, in nanoseconds;
    and what was seen and lost, of a way that says so."""
    python = [] if begin and "memray" in begin[0] else [sys.executable]
    environment = {**os.environ, "PYTHONMALLOC": "malloc"}
    go = program.with_name("go")
    go.unlink(missing_ok=True)
    command = [*begin, *python, str(program), str(count), str(go)]
    with subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
        text=True, env=environment,
    ) as running:  # fmt: skip
        assert running.stdout
        for line in running.stdout:  # heaptrack and memray say things of their own before
            if line.strip() == "ready":
                break
        follower = None
        if way.startswith("markerjit"):
            options = way.split()[2:]
            follower = subprocess.Popen(
                [sys.executable, "-m", "markerjit", "alloc", str(running.pid), "--json", *options],
                stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
            )  # fmt: skip
            wait_until_on(running.pid)
        go.touch()
        pairs = [line.split() for line in running.stdout]
        turns = [[int(word) for word in pair] for pair in pairs if "".join(pair).isdigit()]
        seen = {}
        if follower:
            document = json.loads(follower.communicate()[0])
            untracked = sum(site["untracked"] for site in document["sites"])
            seen = {
                "allocations": document["allocations"],
                "lost": untracked + document["no_site"],
            }
    return turns, seen


def wait_until_on(pid: int) -> None:
    """Until malloc is on."""
    command = [sys.executable, "-m", "markerjit", "status", str(pid)]
    while True:
        shown = subprocess.run(command, capture_output=True, text=True, check=False).stdout
        lines = [line for line in shown.splitlines() if line.startswith("func:malloc:return")]
        if any(" off " not in line for line in lines):
            return


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])  # type: ignore[union-attr]
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--turns", type=int, default=20)
    parser.add_argument("--memray", default=shutil.which("memray"))
    parser.add_argument("--json", metavar="FILE")
    options = parser.parse_args()
    samples: dict[str, list[list[list[int]]]] = {}
    seen: dict[str, list[dict[str, int]]] = {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        program = folder / "program.py"
        program.write_text(PROGRAM)
        every = ways(folder, options.memray)
        for way, begin in every.items():
            if begin is None:
                print(f"{way}: not here, left out")
        for _ in range(options.rounds):
            order = [way for way, begin in every.items() if begin is not None]
            random.shuffle(order)
            for way in order:
                turns, counts = turns_of(way, every[way] or [], program, options.turns)
                samples.setdefault(way, []).append(turns)
                seen.setdefault(way, []).append(counts)
    print_table(samples, seen)
    if options.json:
        Path(options.json).write_text(json.dumps({"turns": samples, "seen": seen}) + "\n")


def print_table(
    samples: dict[str, list[list[list[int]]]], seen: dict[str, list[dict[str, int]]]
) -> None:
    """A row for each way."""
    medians = [
        {way: [statistics.median(turn[at] for turn in turns) for turns in rounds]
         for way, rounds in samples.items()}
        for at in (0, 1)
    ]  # fmt: skip
    bare = [statistics.median(of_ways[BARE]) for of_ways in medians]
    print(
        f"{'WAY':28} {'TURN':>9} {'RANGE':>17} {'FACTOR':>7} {'CPU':>9} {'FACTOR':>7} {'LOST':>6}"
    )
    for way in sorted(samples, key=lambda way: statistics.median(medians[1][way])):
        wall, cpu = (statistics.median(of_ways[way]) for of_ways in medians)
        span = f"{min(medians[0][way]) / 1e6:.0f}-{max(medians[0][way]) / 1e6:.0f} ms"
        counts = [each for each in seen[way] if each]
        lost = sum(each["lost"] for each in counts)
        share = f"{lost:,}" if counts else "-"
        print(
            f"{way:28} {wall / 1e6:6.1f} ms {span:>17} {wall / bare[0]:7.2f} {cpu / 1e6:6.1f} ms "
            f"{cpu / bare[1]:7.2f} {share:>6}"
        )


if __name__ == "__main__":
    main()
