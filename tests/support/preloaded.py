"""A library that is preloaded into a controller, and a process that only sleeps."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_OPTIONS = ["-O2", "-Wall", "-Wextra", "-Werror", "-fPIC", "-shared"]


def build_preloaded(source: Path, directory: Path) -> Path:
    """The library for LD_PRELOAD that is made of a C file."""
    path = directory / f"{source.stem}.so"
    subprocess.run(["gcc", *_OPTIONS, "-o", path, source], check=True)
    return path


@contextmanager
def sleeping() -> Iterator[subprocess.Popen[bytes]]:
    """A process that sleeps until the end."""
    process = subprocess.Popen(["sleep", "1000"])
    try:
        yield process
    finally:
        process.kill()
        process.wait()
