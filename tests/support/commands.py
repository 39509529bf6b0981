"""The command line, run as a user runs it."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tests.support.programs import ROOT

CLI = [sys.executable, "-m", "markerjit.cli.main"]
PYTHONPATH = f"{ROOT}:{os.environ.get('PYTHONPATH', '')}".rstrip(":")
ENVIRONMENT = {**os.environ, "PYTHONPATH": PYTHONPATH}


def cli(*args: object, timeout_s: float = 60) -> subprocess.CompletedProcess[str]:
    """Run a command to its end."""
    command = [*CLI, *map(str, args)]
    return subprocess.run(
        command, env=ENVIRONMENT, capture_output=True, text=True, timeout=timeout_s, check=False
    )


@contextmanager
def running(*args: object, **kwargs: Any) -> Iterator[subprocess.Popen[str]]:
    """A command that runs beside the test; killed in the end if it still does."""
    kwargs = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **kwargs}
    command = [*CLI, *map(str, args)]
    with subprocess.Popen(command, env=ENVIRONMENT, text=True, **kwargs) as process:
        try:
            yield process
        finally:
            if process.poll() is None:
                process.kill()


def facts(*args: object) -> Any:
    """What a command says with --json."""
    done = cli(*args, "--json")
    assert (done.returncode, done.stderr) == (0, "")
    return json.loads(done.stdout)


def one_line(done: subprocess.CompletedProcess[str], pattern: str) -> str:
    """A refusal as it has to be: exit code 1 and one line that says what it must."""
    assert done.returncode == 1, done
    assert done.stdout == ""
    assert len(done.stderr.splitlines()) == 1, done.stderr
    assert done.stderr.startswith("markerjit: ")
    assert re.search(pattern, done.stderr), done.stderr
    return done.stderr
