"""The helper makes its thread from any CPU, even from one that it cannot name."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.preloaded import build_preloaded, run_preloaded, sleeping

SOURCE = Path(__file__).parent / "stop" / "cpu.c"

# Stops every thread of the process that it is given, for nothing, and prints the status and the
# number of threads.
STOP = """\
import os, sys
from markerjit.remote import native
pid = int(sys.argv[1])
target = native.NativeTarget(pid=pid, pidfd=-1, mem_fd=os.open(f"/proc/{pid}/mem", os.O_RDWR))
report = native.Report()
status = native.library().mj_apply(target, native.STOP, None, 0, report)
print(status, report.threads)
"""

pytestmark = pytest.mark.live


@pytest.fixture(scope="module")
def preloaded(build: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_preloaded(SOURCE, tmp_path_factory.mktemp("cpu"))


@pytest.fixture
def sleeper() -> Iterator[subprocess.Popen[bytes]]:
    with sleeping() as process:
        yield process


@pytest.mark.parametrize("cpu", [-1, 1024, 100_000])
def test_threads_are_stopped_from_any_cpu(
    preloaded: Path, sleeper: subprocess.Popen[bytes], cpu: int
) -> None:
    """-1: the kernel does not say. From 1024 on, a CPU does not fit into the C library's set."""
    assert run_preloaded(preloaded, STOP, sleeper.pid, CPU=str(cpu)) == "0 1\n"
