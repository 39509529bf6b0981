"""A process that has little left: descriptors, addresses. For tests of what is then believed."""

from __future__ import annotations

import os
import resource
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def descriptors_left(count: int) -> Iterator[None]:
    """So many files can be opened here, and the next one ends in EMFILE."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    used = {int(name) for name in os.listdir("/proc/self/fd")}
    used = {number for number in used if os.path.lexists(f"/proc/self/fd/{number}")}
    free = (number for number in range(hard) if number not in used)
    limit = next(number for taken, number in enumerate(free) if taken == count)
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def open_descriptors() -> set[str]:
    """What this process has open: numbers and what they lead to."""
    files = set()
    for name in os.listdir("/proc/self/fd"):
        try:
            files.add(f"{name} {os.readlink(f'/proc/self/fd/{name}')}")
        except FileNotFoundError:  # the one that lists them
            continue
    return files


@contextmanager
def files_end_at(size: int) -> Iterator[None]:
    """The kernel takes what fits of a write, and refuses the rest; Python ignores SIGXFSZ."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
