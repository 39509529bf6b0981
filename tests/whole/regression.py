"""Tests of CPython by its own runner, which end where they began: at a line of input."""

import faulthandler
import sys
from contextlib import redirect_stderr, redirect_stdout, suppress
from pathlib import Path

from test.libregrtest.main import Regrtest


def run(tests: list[str]) -> str:
    """Run tests of the standard library. Returns the outcomes, in order."""
    runner = Regrtest()
    # A file, not a buffer: the runner asks for its descriptor.
    with (
        Path("shown").open("w") as shown,
        redirect_stdout(shown),
        redirect_stderr(shown),
        suppress(SystemExit),
    ):
        runner.main(tests=tests, quiet=True, randomize=False)
    faulthandler.cancel_dump_traceback_later()  # its thread waits, and would end us
    parts = ("good", "bad", "skipped", "run_no_tests", "environment_changed")
    return " ".join(f"{part}={sorted(getattr(runner, part))}" for part in parts)


print("ready", flush=True)
for _ in sys.stdin:
    print(run(sys.argv[1:]), flush=True)
