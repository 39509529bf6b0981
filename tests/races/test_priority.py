"""The priority at which threads are stopped and borrowed, with and without the permission to raise
it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.programs import ROOT, make

pytestmark = [pytest.mark.races, pytest.mark.live]

PRIORITISED = Path(__file__).with_name("prioritised.py")
NO_CAPABILITY = ["setpriv", "--inh-caps=-sys_nice", "--bounding-set=-sys_nice"]

needs_root = pytest.mark.skipif(
    os.geteuid() != 0 or not shutil.which("setpriv") or not shutil.which("prlimit"),
    reason="needs root, setpriv and prlimit (util-linux)",
)


@pytest.mark.parametrize("strategy", ["stop", "membarrier"])
@pytest.mark.parametrize(
    ("command", "environment", "during", "fifo"),
    [
        pytest.param([], {}, -20, True, marks=needs_root),
        pytest.param(["prlimit", "--nice=0:0", *NO_CAPABILITY], {}, 0, False, marks=needs_root),
        pytest.param(["prlimit", "--nice=30:30", *NO_CAPABILITY], {}, -10, False, marks=needs_root),
        ([], {"MARKERJIT_PRIORITY": "keep"}, 0, False),
    ],
)
def test_it_is_raised_while_threads_are_stopped_or_borrowed_and_given_back(
    target: Callable,
    command: list[str],
    environment: dict[str, str],
    during: int,
    fifo: bool,
    strategy: str,
) -> None:
    make("build/hooks/libmjstop.so")
    program = target("truth_threads", "1")

    if command and subprocess.run([*command, "true"], capture_output=True, check=False).returncode:
        pytest.skip("this root may not set such a limit (CAP_SYS_RESOURCE)")

    done = subprocess.run(
        [*command, sys.executable, PRIORITISED, str(program.pid), strategy],
        cwd=ROOT,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 0, done.stderr
    seen = json.loads(done.stdout)
    before = seen["before"]
    assert seen["during"] == [min(during, before) if during else before]
    assert seen["after"] == before
    assert seen["fifo"] == fifo or strategy == "membarrier"
