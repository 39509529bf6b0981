"""How long a program takes to switch its own markers, with libmarkerjit.a, by the number of sites.

One name with 1, 1,000 and 100,000 sites, in functions as gcc -O2 makes them. Each program switches
again and again while another of its threads runs in user code, fence included, pages and lists warm
(only the first switch copies pages and reads notes). Beside each stands what a bare membarrier
SYNC_CORE took in the same rounds: the least that a switch with a fence can cost on this machine
now. `over it` is the median of the difference in the same round. Microseconds.

    python bench/own.py [--rounds N] [--json FILE]
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import tempfile
from pathlib import Path

import sites as crowds

ROOT = Path(__file__).resolve().parent.parent
LIBRARY = [*(ROOT / "native/lib").glob("*.c"), *(ROOT / "native/src/fence").glob("*.c")]
SIZES = (1, 1_000, 100_000)

Samples = dict[str, list[float]]


def build(directory: Path, sites: int) -> Path:
    """own.c with so many sites, and the library."""
    program, table = directory / "own", directory / "table.c"
    parts = max(sites // crowds.PART, 1)
    directory.mkdir()
    table.write_text(crowds.table_source(parts))
    part = crowds.compile_part(crowds.part_source(min(sites, crowds.PART), 1))
    sources = [ROOT / "bench/own.c", table, *LIBRARY, *crowds.copies(part, parts, directory)]
    subprocess.run([*crowds.COMPILE, "-o", program, *sources], check=True)
    return program


def measure(program: Path, rounds: int) -> tuple[int, Samples]:
    """How many sites it has, and what each round took, in microseconds."""
    command = [program, str(rounds)]
    first, *lines = subprocess.run(
        command, check=True, capture_output=True, text=True
    ).stdout.splitlines()
    samples: Samples = {
        "membarrier": [],
        "on": [],
        "off": [],
        "on, over it": [],
        "off, over it": [],
    }
    for line in lines:
        bare, on, bare_again, off = (int(word) / 1000 for word in line.split())
        samples["membarrier"] += [bare, bare_again]
        samples["on"].append(on)
        samples["off"].append(off)
        samples["on, over it"].append(on - bare)
        samples["off, over it"].append(off - bare_again)
    return int(first), samples


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=1000)
    parser.add_argument("--json", metavar="FILE", help="keep every sample")
    options = parser.parse_args()
    results: dict[int, Samples] = {}
    with tempfile.TemporaryDirectory() as directory:
        programs = [build(Path(directory) / str(sites), sites) for sites in SIZES]
        for program in programs:
            sites, samples = measure(program, options.rounds)
            results[sites] = samples
    if options.json:
        Path(options.json).write_text(json.dumps(results))
    print(f"{'us':<28}{'median':>10}{'5 %':>10}{'95 %':>10}")
    for sites, samples in results.items():
        for name, values in samples.items():
            low, *_, high = statistics.quantiles(values, n=20)
            label = f"{sites:,} sites: {name}"
            print(f"{label:<28}{statistics.median(values):>10.1f}{low:>10.1f}{high:>10.1f}")


if __name__ == "__main__":
    main()
