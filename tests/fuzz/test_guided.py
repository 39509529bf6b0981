"""The coverage-guided harnesses, each for a short while: they run, get inside, and find nothing.

atheris hooks the interpreter and ends the process, so each runs in a process of its own. All are
forks of one that has imported and instrumented the decoders.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.fuzz.every import HARNESSES
from tests.support.timing import Limited

Guided = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture(scope="module")
def guided(repo: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guided]:
    """Run guided.py: `guided("notes", "--runs", 100)`."""
    if find_spec("atheris") is None:
        pytest.skip("needs atheris (pip install atheris)")
    folder = tmp_path_factory.mktemp("guided")
    command = [sys.executable, "-m", "tests.fuzz.guided", "--forks"]
    with (
        (folder / "imports").open("w") as imports,
        Limited(
            command, cwd=repo, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=imports,
            text=True,
        ) as process,
    ):  # fmt: skip
        assert process.stdin is not None and process.stdout is not None
        stdin, stdout = process.stdin, process.stdout

        def run(*words: object) -> subprocess.CompletedProcess[str]:
            arguments = [*map(str, words)]
            output, errors = (folder / f"{arguments[0]}.{kind}" for kind in ("out", "err"))
            request = {"arguments": arguments, "output": str(output), "errors": str(errors)}
            print(json.dumps(request), file=stdin, flush=True)
            code = stdout.readline()
            assert code, (folder / "imports").read_text()[-3000:]
            return subprocess.CompletedProcess(
                arguments, int(code), output.read_text(), errors.read_text()
            )

        yield run


@pytest.mark.slow
@pytest.mark.parametrize("runs", [300, pytest.param(1200, marks=pytest.mark.long)])
@pytest.mark.parametrize("name", HARNESSES)
def test_a_guided_run_reaches_its_decoder_and_finds_nothing(
    name: str, runs: int, guided: Guided
) -> None:
    runs //= HARNESSES[name].weight

    done = guided(name, "--runs", runs)

    assert done.returncode == 0, done.stderr[-3000:]
    summary = json.loads(done.stdout.splitlines()[-1])
    assert summary["tried"] == runs
    assert summary["found"]["accepted"] > 0
    assert len(summary["found"]) > 1
    first, *_, last = map(int, re.findall(r" cov: (\d+)", done.stderr))
    assert last > first > 0, "the decoder is not instrumented, or no input got further"
