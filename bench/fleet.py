"""How long one request for many processes takes: a fleet of sessions with small programs that have
a marker each.

    python -m bench.fleet [--processes 100] [--rounds 5]

The first round puts the runtime into each process. In the others it is there already. Printed are
the times of a clock and of our own CPU: the difference is that of the processes, which have to run
to be stopped, and of other work on the machine.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import markerjit

PROGRAM = """\
#include <markerjit/marker.h>
#include <stdio.h>
#include <unistd.h>

int main(void) {
    puts("ready");
    fflush(stdout);
    for (int number = 0;; number++) {
        MARK(job, "number %d", number);
        usleep(100000);
    }
}
"""


class Took(NamedTuple):
    """The seconds that something took, and those of our own CPU."""

    clock: float
    cpu: float

    def __str__(self) -> str:
        return f"{self.clock * 1e3:,.0f} ({self.cpu * 1e3:,.0f})"


def took(work: Callable[[], object]) -> Took:
    """Do it, and say how long it took."""
    clock, cpu = time.perf_counter(), time.process_time()
    work()
    return Took(time.perf_counter() - clock, time.process_time() - cpu)


@contextmanager
def programs(count: int) -> Iterator[list[int]]:
    """So many processes with a marker, until the context ends."""
    with tempfile.TemporaryDirectory(prefix="markerjit-fleet-") as folder:
        source, program = Path(folder, "job.c"), Path(folder, "job")
        source.write_text(PROGRAM)
        flags = subprocess.run(
            [sys.executable, "-m", "markerjit.cli.main", "--cflags"],
            check=True, text=True, stdout=subprocess.PIPE,
        ).stdout.split()  # fmt: skip
        subprocess.run(["cc", source, *flags, "-o", program], check=True)
        running = [
            subprocess.Popen([program], stdout=subprocess.PIPE, text=True) for _ in range(count)
        ]
        try:
            for process in running:
                assert process.stdout
                process.stdout.readline()
            yield [process.pid for process in running]
        finally:
            for process in running:
                process.kill()
                process.communicate()


def measure(pids: list[int]) -> tuple[Took, ...]:
    """Open a fleet, switch the marker on and off in each process, and end."""
    fleets: list[markerjit.Fleet] = []
    with markerjit.raised_priority():  # as `on` does it
        opening = took(lambda: fleets.append(markerjit.Fleet(pids)))
        (fleet,) = fleets
        on = took(lambda: fleet.each(lambda session: session.on("job")))
        off = took(lambda: fleet.each(lambda session: session.off("job")))
        closing = took(fleet.close)
    assert not fleet.failed, fleet.failed
    parts = opening, on, off, closing
    whole = Took(sum(part.clock for part in parts), sum(part.cpu for part in parts))
    return (*parts[:3], whole)


def main() -> None:
    """Measure, and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--processes", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    with programs(options.processes) as pids:
        rounds = [measure(pids) for _ in range(options.rounds)]
    print(f"{options.processes} processes; milliseconds (of our own CPU)")
    print("| | open | on | off | all |")
    print("| --- | ---: | ---: | ---: | ---: |")
    for number, parts in enumerate(rounds, 1):
        print(f"| round {number} | {' | '.join(map(str, parts))} |")


if __name__ == "__main__":
    main()
