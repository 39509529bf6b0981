"""What the tests of faults share: the kill matrix, run as a program of its own."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.support.programs import ROOT, make

MATRIX = Path(__file__).with_name("matrix.py")

Met = Callable[..., list[SimpleNamespace]]


@pytest.fixture(scope="session")
def met() -> Met:
    """What faults did: `met("--fault", "write", "--scenario", "on, *")`, an object for each, with
    the fields of matrix.Outcome. Each list of arguments is run once. `by` is a command that runs
    it as another user."""
    make("native", "build/hooks/libmjstop.so", "build/targets/truth_floats")
    known: dict[tuple[str, ...], list[SimpleNamespace]] = {}

    def run(*options: str, by: Sequence[str] = ()) -> list[SimpleNamespace]:
        args = (*by, sys.executable, "-B", str(MATRIX), "--json", *options)
        if args not in known:
            done = subprocess.run(
                args,
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


@pytest.fixture(scope="session")
def as_an_ordinary_user() -> list[str]:
    """A command that runs another as a user who is not root: to begin with, nothing, if we are not.
    Skips where that user cannot read this checkout."""
    if os.geteuid():
        return []
    command = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]
    if not shutil.which("setpriv"):
        pytest.skip("needs setpriv (Debian package util-linux)")
    if subprocess.run([*command, "test", "-r", MATRIX], check=False).returncode:
        pytest.skip("another user cannot read this checkout")
    return command
