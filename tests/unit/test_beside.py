"""Tests that run beside each other are told as if one process had run them."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import psutil

from tests.support.timing import wait_until

PLUGINS = ("-p", "tests.support.beside", "-p", "no:hypothesispytest", "-p", "no:cacheprovider")

MEETING = """
import os
import pytest

@pytest.fixture(scope="module", autouse=True)
def shared(log):
    log("{own} begins")
    yield
    log("{own} ends")

def test_meets(pipes):
    with open(pipes / "{other}", "w") if "{own}" < "{other}" else open(pipes / "{own}") as pipe:
        pass  # opened only if the other end is, too

def test_says_what_is_wrong():
    print("printed", "by", "{own}")
    assert "{own}" == "b"

@pytest.mark.skipif("{own}" == "b", reason="only once")
def test_only_once(): ...

def test_last(log):
    log("{own} last")
"""

SHARED = """
import os
from pathlib import Path

import psutil
import pytest

@pytest.fixture(scope="session")
def pipes():
    return Path(__file__).parent

@pytest.fixture(scope="session")
def log(pipes):
    def write(text):
        with open(pipes / "log", "a") as file:
            print(text, file=file)
    yield write
    write("done")
"""

DYING = """
import os
import signal

def test_first(): ...

def test_dies():
    os.kill(os.getpid(), signal.SIGKILL)

def test_after_that(): ...
"""


HANGING = """
import os
import subprocess
import time

def test_first(): ...

def test_hangs():
    subprocess.Popen(["sleep", "1000"])
    os.fork()  # holds the channel of its parent
    while True:
        where_it_is()

def where_it_is():
    time.sleep(0.01)

def test_after_that(): ...
"""

AT_WORK = """
import time

import pytest

@pytest.mark.parametrize("number", range(40))
def test_works(number): time.sleep(0.1)
"""


def run(repo: Path, folder: Path, *options: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "pytest", *PLUGINS, "--rootdir", folder, "-c", "/dev/null"]
    return subprocess.run(
        [*command, *options, folder], cwd=repo, capture_output=True, text=True, check=False
    )


def test_files_run_beside_each_other_and_are_told_together(repo: Path, tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text(SHARED)
    for own, other in ("ab", "ba"):
        os.mkfifo(tmp_path / own)
        (tmp_path / f"test_{own}.py").write_text(MEETING.format(own=own, other=other))

    done = run(repo, tmp_path, "--processes", "2", "-rs")

    assert done.returncode == 1, done.stdout + done.stderr
    assert re.search(r"\b1 failed, 6 passed, 1 skipped in", done.stdout)
    assert done.stdout.count("printed by a") == 1
    assert "printed by b" not in done.stdout
    assert "only once" in done.stdout
    log = (tmp_path / "log").read_text().splitlines()
    assert log.count("done") == 2
    for own in "ab":
        lines = [line for line in log if line.startswith(f"{own} ")]
        assert lines == [f"{own} begins", f"{own} last", f"{own} ends"]


def test_a_process_that_dies_is_a_failure_of_its_test(repo: Path, tmp_path: Path) -> None:
    (tmp_path / "test_dying.py").write_text(DYING)

    done = run(repo, tmp_path, "--processes", "2")

    assert done.returncode == 1, done.stdout + done.stderr
    assert re.search(r"\b1 failed, 2 passed in", done.stdout)
    assert "test_dies" in done.stdout
    assert "the process of this test died of SIGKILL" in done.stdout


def test_a_test_that_hangs_is_a_failure_that_says_where(repo: Path, tmp_path: Path) -> None:
    """Also while the other process has something to say again and again."""
    (tmp_path / "test_hanging.py").write_text(HANGING)
    (tmp_path / "test_at_work.py").write_text(AT_WORK)

    done = run(repo, tmp_path, "--processes", "2", "--test-time", "2")

    assert done.returncode == 1, done.stdout + done.stderr
    assert re.search(r"\b1 failed, 42 passed in", done.stdout)
    assert "the process of this test died of SIGABRT, as it took longer than 2 s" in done.stdout
    assert re.search(r" in where_it_is\n.* in test_hangs\n", done.stdout)
    sleeping = re.search(r"^ *(\d+) S .* sleep 1000$", done.stdout, re.MULTILINE)
    assert sleeping
    wait_until(lambda: not psutil.pid_exists(int(sleeping[1])), "what a test started to be gone")


def test_the_first_failure_ends_all_where_that_is_asked_for(repo: Path, tmp_path: Path) -> None:
    tests = "def test_wrong(): assert 0\n" + "\n".join(f"def test_{n}(): ..." for n in range(9))
    (tmp_path / "test_many.py").write_text(tests)

    done = run(repo, tmp_path, "--processes", "2", "-x")

    assert done.returncode == 1, done.stdout + done.stderr
    assert re.search(r"stopping after 1 failures", done.stdout)
    assert "passed" not in done.stdout
