"""Fixtures of all tests: where things are, programs that know the truth, tools that may be absent.

Nothing here attaches to anything; tests do that.
"""

from __future__ import annotations

import gc
import os
import shutil
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import hypothesis
import pytest

# In each Python that imports numpy, OpenBLAS starts threads, which spin before they sleep: a fifth
# of the CPU time of such a start.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

# Until the tests are known: it would go through those that are there already, again and again.
gc.disable()

# pytest compiles the tests with their assertions rewritten, which takes longer than all else of
# collecting them. That is kept, as `make bytecode` keeps the package's, also where
# PYTHONDONTWRITEBYTECODE is set.
_DONT_WRITE_BYTECODE, sys.dont_write_bytecode = sys.dont_write_bytecode, False

# First, so that a failed assertion of a helper shows its values.
pytest.register_assert_rewrite("tests.support")

from tests.support import beside  # noqa: E402
from tests.support.choice import ALL_EXAMPLES, CHOSEN_EXAMPLES, chosen  # noqa: E402
from tests.support.large_pages import collapse_memory  # noqa: E402
from tests.support.programs import ROOT, Target, make  # noqa: E402
from tests.support.timing import HANG_S  # noqa: E402

pytest_runtestloop = beside.pytest_runtestloop
CHOICE = pytest.StashKey[tuple[int, int]]()
"""How many tests were chosen, of how many."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--choice", action="store_true", help="the tests of `make test` (tests/support/choice.py)"
    )
    beside.pytest_addoption(parser)


def pytest_configure(config: pytest.Config) -> None:
    """Programs are sent SIGHUP and SIGINT, which they inherit as ignored from nohup or a shell's
    background. Hypothesis holds no test to a time, which a busy machine would break."""
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    hypothesis.settings.register_profile(
        "untimed",
        deadline=None,
        max_examples=CHOSEN_EXAMPLES if config.getoption("--choice") else ALL_EXAMPLES,
        suppress_health_check=[hypothesis.HealthCheck.too_slow],
    )
    hypothesis.settings.load_profile("untimed")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """What was chosen, and numbers of tests that are no verdict, from
    `record_property("summary", text)`."""
    if numbers := terminalreporter.config.stash.get(CHOICE, None):
        terminalreporter.write_line(
            "{:,} of {:,} tests chosen; make test-all runs all".format(*numbers)
        )
    for report in terminalreporter.getreports("passed"):
        for name, value in report.user_properties:
            if name == "summary":
                terminalreporter.write_line(value)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """A fork of a process with a gigabyte of memory, as it has in the end, takes ten times as long
    as one at the start. `make test` runs these alone; elsewhere they come first."""
    if config.getoption("--choice"):
        stay = chosen(items)
        config.stash[CHOICE] = len(stay), len(items)
        config.hook.pytest_deselected(items=list(set(items).difference(stay)))
        items[:] = stay
    items.sort(key=lambda item: item.get_closest_marker("forks") is None)


def pytest_collection_finish(session: pytest.Session) -> None:
    """What was collected stays to the end. The collector of reference cycles looks at what the
    tests make, and not at that."""
    sys.dont_write_bytecode = _DONT_WRITE_BYTECODE
    if session.config.getoption("--processes"):
        hypothesis.strategies.text().validate()  # its tables of characters, made once for all
    gc.freeze()
    gc.enable()
    collapse_memory()  # for tests that fork


@pytest.fixture(scope="session")
def repo() -> Path:
    """The root of the checkout."""
    return ROOT


@pytest.fixture(scope="session")
def build() -> Path:
    """The folder of the built programs, all of them up to date."""
    make("native", "targets")
    return ROOT / "build" / "targets"


@pytest.fixture(scope="session")
def _program() -> Callable[[str], Path]:
    """Builds one program alone, so that a test does not fail of a neighbour's source."""
    built: dict[str, Path] = {}

    def program(name: str) -> Path:
        if name not in built:
            make(f"build/targets/{name}")
            built[name] = ROOT / "build" / "targets" / name
        return built[name]

    return program


@pytest.fixture
def target(_program: Callable[[str], Path]) -> Iterator[Callable[..., Target]]:
    """Start a program: `target("truth_loop", "4")`. All are gone when the test is over.

    `may_die=True` is for programs that the test itself kills or crashes; of every other one a
    death by signal fails the test.
    """
    started: list[tuple[Target, bool]] = []

    def start(name: str, *args: str, may_die: bool = False, timeout_s: float = HANG_S) -> Target:
        program = Target(_program(name), *args, timeout_s=timeout_s)
        started.append((program, may_die))
        program.wait_ready()
        return program

    yield start

    died = []
    for program, may_die in reversed(started):
        errors = program.errors()
        code = program.end()
        if code is not None and code < 0 and not may_die:
            died.append(f"{program.path.name} died of {signal.Signals(-code).name} {errors}")
    if died:
        pytest.fail("\n".join(died), pytrace=False)


@pytest.fixture(scope="session")
def needs_tool() -> Callable[[str, str], str]:
    """The path of a tool, or a skip that names the Debian package: `needs_tool("gdb", "gdb")`."""

    def find(name: str, package: str) -> str:
        path = shutil.which(name)
        if path is None:
            pytest.skip(f"needs {name} (Debian package {package})")
        return path

    return find
