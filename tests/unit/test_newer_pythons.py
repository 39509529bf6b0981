"""The tests with newer Pythons: what is said where there are none, and when they are run."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent
SCRIPT = "newer_pythons.sh"


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """What the script needs of one."""
    (tmp_path / "tests").mkdir()
    shutil.copy(ROOT / "tests" / SCRIPT, tmp_path / "tests")
    shutil.copy(ROOT / "setup.cfg", tmp_path)
    return tmp_path


def run(checkout: Path, *arguments: str, **environment: str) -> str:
    done = subprocess.run(
        ["sh", str(checkout / "tests" / SCRIPT), *arguments],
        env={"PATH": "/usr/bin:/bin", **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def test_where_no_newer_python_is_the_line_says_where_it_was_looked_for(checkout: Path) -> None:
    assert run(checkout, "ready") == ""

    assert run(checkout, "run") == (
        "pythons skipped: no newer Python is here "
        "(python3.12 to python3.14 on the path, or in ~/.pyenv/versions)\n"
    )


def test_a_python_that_cannot_be_run_is_named(checkout: Path) -> None:
    assert run(checkout, "ready", "/no/python3.12") == ""

    assert "/no/python3.12 cannot be run" in run(checkout, "run", "/no/python3.12")


def test_a_python_for_which_pip_gets_nothing_is_named_with_the_log(checkout: Path) -> None:
    python = checkout / "python3.99"
    python.write_text(
        "#!/bin/sh\n"
        'case "$*" in *version_info*) echo 3.99;; *configparser*) echo pytest;; '
        "*) echo no wheels >&2; exit 1;; esac\n"
    )
    python.chmod(0o755)
    run(checkout, "ready", str(python))

    output = run(checkout, "run", str(python))

    log = "build/pythons/3.99.log"
    assert output == f"pythons skipped: pip cannot get what Python 3.99 needs ({log})\n"
    assert (checkout / log).read_text() == "no wheels\n"


@pytest.mark.parametrize(("flags", "runs"), [("", True), ("-k nothing", False)])
def test_they_are_a_part_of_all_tests_and_not_of_a_choice(flags: str, runs: bool) -> None:
    made = subprocess.run(
        ["make", "-n", "test", *([f"PYTEST_FLAGS={flags}"] if flags else [])],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )

    assert (f"{SCRIPT} run" in made.stdout, f"{SCRIPT} ready" in made.stdout) == (runs, runs)
