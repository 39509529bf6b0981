"""Instructions of real programs do the same where relocate() puts them: both are executed.

MARKERJIT_RELOCATIONS=100000 takes so many runs of each object; a fast test run takes a few hundred.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from markerjit.x86.forms import NOP
from tests.support.relocations import EXECUTOR, Sample, differences

pytestmark = pytest.mark.oracle

RUNS = int(os.environ.get("MARKERJIT_RELOCATIONS", "600"))
LIBRARIES = "/usr/lib/x86_64-linux-gnu"
OBJECTS = [
    "/usr/bin/bash",
    "/usr/bin/python3",
    "/usr/bin/gdb",
    "/usr/lib/postgresql/15/bin/postgres",
    *(f"{LIBRARIES}/{name}" for name in ("libc.so.6", "libm.so.6", "libstdc++.so.6")),
    *(f"{LIBRARIES}/{name}" for name in ("libsqlite3.so.0", "libcrypto.so.3")),
]


@pytest.fixture(scope="module")
def executor(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("executor") / "executor"
    subprocess.run(["gcc", "-O1", EXECUTOR, "-o", path], check=True)
    return path


@pytest.mark.parametrize("name", OBJECTS, ids=lambda name: Path(name).name)
def test_moved_instructions_do_what_they_did(
    name: str, executor: Path, record_property: Callable[[str, object], None]
) -> None:
    path = Path(name)
    if not path.exists():
        pytest.skip(f"{name} is not on this machine")

    sample = Sample(path, RUNS, seed=14)
    verdicts = sample.execute(executor)

    wrong = [f"{verdict.run}: {verdict.differs}" for verdict in differences(verdicts)]
    assert not wrong, "\n".join(wrong[:20])
    completed = sum(verdict.signals == (0, 0) for verdict in verdicts)
    assert completed > RUNS // 2, "most runs fault, which shows little"
    record_property(
        "summary",
        f"{path.name}: {len(verdicts)} runs moved, {completed} without a signal; "
        f"refused: {dict(sample.refused)}",
    )


def test_executor_notices_copies_that_do_nothing(executor: Path) -> None:
    sample = Sample(Path("/bin/bash"), 300, seed=15)
    sample.runs = [
        run._replace(relocated=run.relocated._replace(code=bytes([NOP]) * len(run.relocated.code)))
        for run in sample.runs
    ]

    verdicts = sample.execute(executor)

    noticed = sum(bool(verdict.differs) for verdict in verdicts)
    assert noticed > 0.8 * len(verdicts)  # the others are no-ops, or wrote what was there
