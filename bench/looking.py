"""The CPU time of finding the USDT probes of a process: the first time, and from the cache.

    python -m bench.looking PID [--rounds 20]

Each look is made by a new interpreter, with a cache of its own for the first ones. The modules that
a look needs are imported before it; what that takes is printed beside it, and so is what it takes
to open the process.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from importlib import import_module
from typing import NamedTuple

MODULES = (
    "json", "_blake2", "markerjit.session.usdt", "markerjit.sites.usdt_kept",
    "markerjit.sites.usdt_notes", "markerjit.sites.providers",
)  # fmt: skip
"""The last two are imported where notes are read."""
KNOWN = 4
"""So many of them are imported where what is in the notes is known."""


class Took(NamedTuple):
    """Seconds of CPU time: to import modules, to open the process, and to look."""

    modules: float
    opening: float
    look: float


def look(pid: int, modules: tuple[str, ...]) -> Took:
    """Look in this interpreter."""
    import markerjit

    began = time.process_time()
    for module in modules:
        import_module(module)
    imported = time.process_time()
    with markerjit.View(pid) as view:
        opened = time.process_time()
        view.usdt()
        return Took(imported - began, opened - imported, time.process_time() - opened)


def look_anew(pid: int, cache: str, count: int) -> Took:
    """The same in a new interpreter, with this cache."""
    words = [sys.executable, "-m", "bench.looking", str(pid), "--once", str(count)]
    environment = {**os.environ, "XDG_CACHE_HOME": cache}
    done = subprocess.run(words, env=environment, check=True, stdout=subprocess.PIPE, text=True)
    return Took(*map(float, done.stdout.split()))


def main() -> None:
    """Measure, and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("pid", type=int)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--once", type=int, help="look here, with so many modules")
    options = parser.parse_args()
    if options.once is not None:
        print(*look(options.pid, MODULES[: options.once]))
        return
    first: list[Took] = []
    again: list[Took] = []
    for _ in range(options.rounds):
        with tempfile.TemporaryDirectory() as cache:
            first.append(look_anew(options.pid, cache, len(MODULES)))
            again.append(look_anew(options.pid, cache, KNOWN))
    print("| CPU time, ms: median (least) | modules | open | look |")
    print("| --- | ---: | ---: | ---: |")
    for name, looks in ("first", first), ("from the cache", again):
        columns = (
            f"{statistics.median(column) * 1e3:.1f} ({min(column) * 1e3:.1f})"
            for column in zip(*looks, strict=True)
        )
        print(f"| {name} | {' | '.join(columns)} |")


if __name__ == "__main__":
    main()
