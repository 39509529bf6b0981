"""The least that a switch in an open session takes here, and how much of that is the kernel's.

    python -m bench.switching [--times 1000]

`markerjit bench toggle` says what a switch takes on a machine as it is, with the work of others in
it. This asks for the least of many, which other work disturbs less, and for the same without
Python: threads are stopped to compare one byte that stays as it is. What is left between the two is
ours. Nothing is asked with several threads: then the least is of the moments in which they sleep.

Printed are microseconds: the least and the tenth percentile.
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
    return f"{took[0] / 1e3:6.0f} {took[times // 10] / 1e3:6.0f}"


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
        on, off = (lambda: session.on(MARKER)), (lambda: session.off(MARKER))
        yield "on", least(on, off, times)
        mappings = Mappings(pid)
        count = len(read_maps(pid))
        yield f"of that: are {count} mappings as they were", least(mappings.now, int, times)
        if pid != os.getpid():
            yield (
                "stop, compare a byte, resume",
                least(compare_only(session, native.STOP), int, times),
            )


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
    print("one site, microseconds: least, tenth percentile")
    for where, measured in ("another process", rows), ("our own", own):
        for name, times in measured:
            print(f"{where:16} {name:38} {times}")


if __name__ == "__main__":
    main()
