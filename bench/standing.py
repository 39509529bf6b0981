"""For how long a process of many threads stands, and what the kernel alone takes for that.

    python -m bench.standing [--threads 1,64,512,3000] [--times 50] [--hogs 0] [--library FILE]...

The process is truth_many of native/targets, whose threads sleep in four different system calls,
but for one that runs. Three things are done with it, in turn:

    helper     what `on` does, but that only one byte is compared: native/src/stop
    kernel     a program in C that seizes all threads, interrupts them, reads the registers of each
               until it stands, and detaches from all: nothing less stops a thread
    FILE       the helper of another version, from that library

Printed are milliseconds: the least, the median and the 95th percentile. With --hogs so many other
programs compute meanwhile.
"""

from __future__ import annotations

import argparse
import ctypes
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import NamedTuple

import markerjit
from markerjit.arena.pack import as_native, pack
from markerjit.model import Edit
from markerjit.remote import native

ROOT = Path(__file__).parents[1]
TARGET = ROOT / "build/targets/truth_many"
MARKER = "many_turn"
PAUSE_S = 0.01
HOG = "int main(void) { for (volatile long turn = 0;; turn++) continue; }\n"
KERNEL = r"""
#define _GNU_SOURCE
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/ptrace.h>
#include <sys/user.h>
#include <time.h>

static int tids[1 << 16], stands[1 << 16];

static long now(void) {
    struct timespec time;

    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * 1000000000 + time.tv_nsec;
}

int main(int count, char **names) {
    struct user_regs_struct regs;
    struct dirent *entry;
    char path[64];
    int threads = 0;

    snprintf(path, sizeof path, "/proc/%s/task", names[1]);
    DIR *tasks = opendir(path);
    while (count > 1 && (entry = readdir(tasks))) {
        const int tid = atoi(entry->d_name);

        if (tid > 0 && !ptrace(PTRACE_SEIZE, tid, 0, 0))
            tids[threads++] = tid;
    }
    const long began = now();
    for (int i = 0; i < threads; i++)
        ptrace(PTRACE_INTERRUPT, tids[i], 0, 0);
    for (int left = threads, before = 0; left; before = left) {
        for (int i = 0; i < threads; i++)
            if (!stands[i] && !ptrace(PTRACE_GETREGS, tids[i], 0, &regs)) {
                stands[i] = 1;
                left--;
            }
        if (left == before) /* what is waited for may need this CPU */
            nanosleep(&(struct timespec){.tv_nsec = 10000}, NULL);
    }
    const long stood = now();
    for (int i = 0; i < threads; i++)
        ptrace(PTRACE_DETACH, tids[i], 0, 0);
    printf("%d %ld 0 %ld\n", threads, stood - began, now() - stood);
    return 0;
}
"""


class Stop(NamedTuple):
    """A stop of so many threads, in nanoseconds: until all stood, while they did, and until all
    ran."""

    threads: int
    stop: int
    held: int
    resume: int


def by_helper(library: ctypes.CDLL, target: native.NativeTarget, packed: bytearray) -> Stop:
    """A stop in which one byte is compared."""
    report = native.Report()
    status = library.mj_apply(
        ctypes.byref(target), native.STOP, as_native(packed), 1, ctypes.byref(report)
    )
    assert status == native.OK, status
    return Stop(report.threads, report.stop_ns, report.held_ns, report.resume_ns)


def by_kernel(program: Path, pid: int) -> Stop:
    """The same by ptrace alone."""
    command = [program, str(pid)]
    done = subprocess.run(command, check=True, text=True, stdout=subprocess.PIPE)
    return Stop(*map(int, done.stdout.split()))


def ways(pid: int, kernel: Path, libraries: list[str]) -> dict[str, Callable[[], Stop]]:
    """The ways to stop the process, by name."""
    with markerjit.View(pid) as view:
        (site,) = view.sites(MARKER)
    memory = os.open(f"/proc/{pid}/mem", os.O_RDWR)
    byte = os.pread(memory, 1, site.address)
    packed = pack([Edit(site.address, byte, byte, "as it was", True)])
    target = native.NativeTarget(pid=pid, pidfd=-1, mem_fd=memory)
    others = {Path(name).name: ctypes.CDLL(name) for name in libraries}
    return {
        name: partial(by_helper, library, target, packed)
        for name, library in {"helper": native.library(), **others}.items()
    } | {"kernel": partial(by_kernel, kernel, pid)}


@contextmanager
def compiled() -> Iterator[tuple[Path, Path]]:
    """The program in C, and one that computes."""
    with tempfile.TemporaryDirectory(prefix="markerjit-standing-") as folder:
        programs = Path(folder, "kernel"), Path(folder, "hog")
        for program, source in zip(programs, (KERNEL, HOG), strict=True):
            file = program.with_suffix(".c")
            file.write_text(source)
            subprocess.run(["cc", "-O2", file, "-o", program], check=True)
        yield programs


def row(values: list[int]) -> str:
    """The least, the median and the 95th percentile, in milliseconds."""
    values = sorted(values)
    return " ".join(f"{values[len(values) * at // 100] / 1e6:8.2f}" for at in (0, 50, 95))


def measure(threads: int, times: int, kernel: Path, libraries: list[str]) -> None:
    """Print a row for each way to stop a process of so many threads."""
    command = [TARGET, str(threads), "--run"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout
        process.stdout.readline()
        try:
            by_name = ways(process.pid, kernel, libraries)
            stops: dict[str, list[Stop]] = {name: [] for name in by_name}
            for _ in range(times):
                for name, stop in random.sample(sorted(by_name.items()), len(by_name)):
                    with markerjit.raised_priority():
                        stops[name].append(stop())
                    time.sleep(PAUSE_S)
        finally:
            process.kill()
    for name, each in stops.items():
        all_of = [stop.stop + stop.held + stop.resume for stop in each]
        parts = row([stop.stop for stop in each]), row([stop.resume for stop in each]), row(all_of)
        print(f"{each[0].threads:7} {name:10}", *(f"{part} |" for part in parts))


def main() -> None:
    """Measure, and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--threads", default="1,64,512,3000")
    parser.add_argument("--times", type=int, default=50)
    parser.add_argument("--hogs", type=int, default=0)
    parser.add_argument("--library", action="append", default=[])
    options = parser.parse_args()
    if not TARGET.exists():
        sys.exit(f"{TARGET} was not built: make targets")
    print("threads way        until all stood, until all ran again, in all: milliseconds")
    with compiled() as (kernel, hog), ExitStack() as others:
        for _ in range(options.hogs):
            computes = others.enter_context(subprocess.Popen([hog]))
            others.callback(computes.kill)
        for threads in map(int, options.threads.split(",")):
            measure(threads, options.times, kernel, options.library)


if __name__ == "__main__":
    main()
