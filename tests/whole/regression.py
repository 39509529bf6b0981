"""Tests of CPython by its own runner, which end where they began: at a line of input."""

import faulthandler
import sys
from contextlib import redirect_stderr, redirect_stdout, suppress
from pathlib import Path

from test.libregrtest.cmdline import _parse_args
from test.libregrtest.main import Regrtest


def run(tests: list[str]) -> str:
    """Run tests of the standard library. Returns the outcomes, in order."""
    is_new = sys.version_info >= (3, 12)
    runner = Regrtest(_parse_args(["--quiet"])) if is_new else Regrtest()
    options = {} if is_new else {"quiet": True, "randomize": False}
    # A file, not a buffer: the runner asks for its descriptor.
    with (
        Path("shown").open("w") as shown,
        redirect_stdout(shown),
        redirect_stderr(shown),
        suppress(SystemExit),
    ):
        runner.main(tests=list(tests), **options)
    faulthandler.cancel_dump_traceback_later()  # its thread waits, and would end us
    results = runner.results if is_new else runner
    changed = "env_changed" if is_new else "environment_changed"
    parts = ("good", "bad", "skipped", "run_no_tests", changed)
    return " ".join(f"{part}={sorted(getattr(results, part))}" for part in parts)


print("ready", flush=True)
for _ in sys.stdin:
    print(run(sys.argv[1:]), flush=True)
