"""What the tests of faults share: the kill matrix, run as a program of its own."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.conftest import ROOT, make

MATRIX = Path(__file__).with_name("matrix.py")

Met = Callable[..., list[SimpleNamespace]]


@pytest.fixture(scope="session")
def met() -> Met:
    """What faults did: `met("--fault", "write", "--scenario", "on, *")`, an object for each, with
    the fields of matrix.Outcome. Each list of arguments is run once."""
    make("native", "build/hooks/libmjstop.so", "build/targets/truth_floats")
    known: dict[tuple[str, ...], list[SimpleNamespace]] = {}

    def run(*args: str) -> list[SimpleNamespace]:
        if args not in known:
            done = subprocess.run(
                [sys.executable, MATRIX, "--json", *args],
                cwd=ROOT,
                capture_output=True,
                text=True,
                timeout=1800,
                check=False,
            )
            lines = done.stdout.splitlines()
            known[args] = [SimpleNamespace(**json.loads(line)) for line in lines]
            assert done.returncode in (0, 1), done.stderr
            assert known[args], done.stderr
        return known[args]

    return run
