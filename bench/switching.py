"""The least that a switch in an open session takes here, and how much of that is the kernel's.

    python -m bench.switching [--times 1000]

`markerjit bench toggle` says what a switch takes on a machine as it is, with the work of others in
it. This asks for the least of many, which other work disturbs less, and for the same without
Python: threads are stopped to compare one byte that stays as it is. What is left between the two is
ours. Nothing is asked with several threads: then the least is of the moments in which they sleep.

Most sessions do something else between two switches, and what a switch needs has left the caches by
then. So the same is asked after a pause, in which a MB is written.

Printed are microseconds: the least, the tenth percentile and the median.
"""

from __future__ import annotations

import argparse
import ctypes
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import markerjit
from markerjit.arena.pack import as_native, pack
from markerjit.memory import read_maps
from markerjit.model import Edit
from markerjit.remote import native
from markerjit.remote.mappings import Mappings

MARKER = "bench_switching"
SOURCE = """\
#include <markerjit/marker.h>
#include <stdio.h>

__attribute__((noinline)) unsigned step(unsigned n) {
    MARK(bench_switching, "n %u", n);
    return n * 3 + 1;
}

int main(void) {
    unsigned n = 0;

    puts("ready");
    fflush(stdout);
    for (;;)
        n = step(n);
}
"""
WARM = 20
PAUSE_S = 0.002
PAUSES = 10
"""Of so many switches, one is made after a pause."""


def least(work: Callable[[], object], between: Callable[[], object], times: int) -> str:
    """How long it took, of so many times."""
    took = []
    for number in range(times + WARM):
        start = time.perf_counter_ns()
        work()
        if number >= WARM:
            took.append(time.perf_counter_ns() - start)
        between()
    took.sort()
    return " ".join(f"{took[at] / 1e3:6.0f}" for at in (0, times // 10, times // 2))


def in_turn(*works: Callable[[], object]) -> None:
    """Do one thing after the other."""
    for work in works:
        work()


def pause() -> None:
    """Do something else for a moment."""
    bytearray(b"x") * (1 << 20)
    time.sleep(PAUSE_S)


@contextmanager
def built() -> Iterator[tuple[Path, Path]]:
    """A program with one marker, whose one thread runs; and the same as a library."""
    with tempfile.TemporaryDirectory(prefix="markerjit-switching-") as folder:
        source, program = Path(folder, "one.c"), Path(folder, "one")
        library = program.with_suffix(".so")
        source.write_text(SOURCE)
        command = [sys.executable, "-m", "markerjit.cli.main", "--cflags"]
        flags = subprocess.run(command, check=True, text=True, stdout=subprocess.PIPE).stdout
        for more, target in ([], program), (["-fPIC", "-shared"], library):
            subprocess.run(["cc", "-O2", *more, source, *flags.split(), "-o", target], check=True)
        yield program, library


def compare_only(session: markerjit.Session, quiescence: int) -> Callable[[], object]:
    """A transaction that changes nothing: one byte of a site is compared."""
    (site,) = session.sites(MARKER)
    memory = os.open(f"/proc/{session.pid}/mem", os.O_RDWR)
    byte = os.pread(memory, 1, site.address)
    packed = pack([Edit(site.address, byte, byte, "as it was", True)])
    target = native.NativeTarget(pid=session.pid, pidfd=-1, mem_fd=memory)
    report = native.Report()
    return lambda: native.library().mj_apply(target, quiescence, as_native(packed), 1, report)


def measure(pid: int, times: int) -> Iterator[tuple[str, str]]:
    """What is measured of a process, and how long it took."""
    with markerjit.attach(pid) as session:
        for quiesce in (None,) if pid == os.getpid() else ("stop", "membarrier", "none"):
            on = partial(session.on, MARKER, quiesce=quiesce)
            off = partial(session.off, MARKER, quiesce=quiesce)
            by = f", {quiesce}" if quiesce else ""
            off_and_pause = partial(in_turn, off, pause)
            yield f"on{by}", least(on, off, times)
            yield f"on{by}, after a pause", least(on, off_and_pause, times // PAUSES)
        mappings = Mappings(pid)
        count = len(read_maps(pid))
        yield f"of that: are {count} mappings as they were", least(mappings.now, int, times)
        if pid != os.getpid():
            stopping = compare_only(session, native.STOP)
            yield "stop, compare a byte, resume", least(stopping, int, times)


def main() -> None:
    """Measure, and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--times", type=int, default=1000)
    options = parser.parse_args()
    with built() as (program, library), markerjit.raised_priority():
        with subprocess.Popen([program], stdout=subprocess.PIPE) as process:
            assert process.stdout
            process.stdout.readline()
            try:
                rows = list(measure(process.pid, options.times))
            finally:
                process.kill()
        ctypes.CDLL(os.fspath(library))
        own = list(measure(os.getpid(), options.times))
    print("one site, microseconds: least, tenth percentile, median")
    for where, measured in ("another process", rows), ("our own", own):
        for name, times in measured:
            print(f"{where:16} {name:38} {times}")


if __name__ == "__main__":
    main()
