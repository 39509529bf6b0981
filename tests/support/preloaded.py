"""A controller with a library that is preloaded into it, and a process that only sleeps."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.support.programs import ROOT
from tests.support.timing import Limited

_OPTIONS = ["-O2", "-Wall", "-Wextra", "-Werror", "-fPIC", "-shared"]


def build_preloaded(source: Path, directory: Path) -> Path:
    """The library for LD_PRELOAD that is made of a C file."""
    path = directory / f"{source.stem}.so"
    subprocess.run(["gcc", *_OPTIONS, "-o", path, source], check=True)
    return path


def run_preloaded(library: Path, script: str, *arguments: object, **environment: str) -> str:
    """What a script of Python prints, with the library preloaded into it."""
    done = subprocess.run(
        [sys.executable, "-c", script, *map(str, arguments)],
        cwd=ROOT,
        env={**os.environ, "LD_PRELOAD": str(library), **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


@contextmanager
def sleeping() -> Iterator[subprocess.Popen[bytes]]:
    """A process that sleeps until the end."""
    process = Limited(["sleep", "1000"])
    try:
        yield process
    finally:
        process.kill()
        process.wait()
