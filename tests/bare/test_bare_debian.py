"""The wheel does the main job on a bare Debian, whose roots `make wheel-check` makes.

A root has Python and its venv, and no compiler. The network is not used: packages come from a
folder of wheels. The commands see the processes of the root alone, so that names are its own.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.timing import HANG_S

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
ROOTS = sorted(path for path in (ROOT / "build" / "roots").glob("*") if (path / "usr").is_dir())
WHEELS = ROOT / "build" / "wheel" / "wheels"

COMPILERS = "cc gcc clang as ld make"
INSTALLED = {
    "wheel": (
        "python3 -m venv /opt/markerjit",
        "/opt/markerjit/bin/pip install -q --disable-pip-version-check --no-index "
        "--find-links /wheels markerjit",
    ),
    "folder": (
        "python3 -m venv /opt/pip",
        "/opt/pip/bin/pip install -q --disable-pip-version-check --no-index --find-links /wheels "
        "--target /made markerjit",
        "cp /made/markerjit/__main__.py /made",
        "mv /made /copied",
        "rm -rf /opt/pip",
    ),
}
COMMANDS = {"wheel": "/opt/markerjit/bin/markerjit", "folder": "python3 /copied"}
MAIN_JOB = r"""
server=$(find / -xdev -path '*/_native/demo/kvserver')
load=$(find / -xdev -path '*/_native/demo/kvload')
mkfifo /tmp/ready
$server --port 0 >/tmp/ready &
read -r word port pid threads </tmp/ready
load="$load --port ${port#port=} --connections 1 --keys 50"
while $load --requests 100; do :; done >/dev/null 2>&1 &
markerjit list kvserver kv_store
markerjit on kvserver 'kv_*'
markerjit status kvserver
markerjit trace kvserver kv_store -n 5
markerjit trace kvserver kv_hit -n 100 -o /tmp/hits.ctf --force
markerjit read /tmp/hits.ctf --stats
markerjit off kvserver '*'
markerjit list kvserver kv_store
"""

pytestmark = pytest.mark.skipif(not ROOTS, reason="make wheel-check makes the roots (as root)")


def run(root: Path, script: str, *, fails: bool = False) -> str:
    """What a script prints in a root."""
    done = subprocess.run(
        ["sh", HERE / "run_in_root.sh", root, "sh", "-eu", "-c", script],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
        timeout=HANG_S,
    )
    assert (done.returncode != 0) == fails, done.stdout
    return done.stdout


@pytest.fixture(scope="module", params=ROOTS, ids=lambda root: root.name)
def root(request: pytest.FixtureRequest) -> Path:
    """A root with the wheels in it."""
    place: Path = request.param
    shutil.rmtree(place / "wheels", ignore_errors=True)
    shutil.copytree(WHEELS, place / "wheels")
    return place


@pytest.fixture(scope="module", params=INSTALLED)
def markerjit(root: Path, request: pytest.FixtureRequest) -> Callable[..., str]:
    """Runs a script in a root in which markerjit is installed, or lies in a folder."""
    run(root, "\n".join(["rm -rf /opt/* /made /copied /tmp/*", *INSTALLED[request.param]]))
    command = f'markerjit() {{ {COMMANDS[request.param]} "$@"; }}\n'
    return lambda script, **how: run(root, command + script, **how)


def test_there_is_no_compiler(root: Path) -> None:
    assert run(root, f"for tool in {COMPILERS}; do command -v $tool || :; done") == ""


def test_markers_of_a_running_program_are_switched_counted_and_traced(
    markerjit: Callable[..., str],
) -> None:
    printed = markerjit(MAIN_JOB)

    assert "kv_store: on (jump, count)" in printed
    assert "5 events, 0 lost" in printed
    (recorded,) = re.findall(r"(\d+) events in /tmp/hits.ctf, 0 lost", printed)
    assert int(recorded) >= 100
    assert f"{recorded} events, 0 lost, in " in printed
    assert "kv_store: off" in printed
    assert printed.rstrip().splitlines()[-1].split()[:3] == ["kv_store", "jump", "off"]


def test_doctor_finds_no_wall(markerjit: Callable[..., str]) -> None:
    assert "wall " not in markerjit("markerjit doctor")


def test_what_needs_a_compiler_says_so_in_a_sentence(markerjit: Callable[..., str]) -> None:
    printed = markerjit("markerjit bench --seconds 1", fails=True)

    assert printed == "markerjit: gcc is not here; apt-get install gcc, or name one with --cc\n"


def test_what_needs_no_compiler_is_measured_without_one(markerjit: Callable[..., str]) -> None:
    printed = markerjit("markerjit demo --rounds 1 --slice 0.1")

    assert "every byte of code is as it was" in printed


def test_the_commands_of_the_page_make_the_folder() -> None:
    page = (ROOT / "docs" / "howto" / "install.md").read_text()

    assert "cp markerjit-folder/markerjit/__main__.py markerjit-folder" in page
    assert "python3 markerjit-folder doctor" in page


def test_pip_on_a_system_with_musl_refuses_the_wheel_and_says_so() -> None:
    """As docs/howto/install.md has it: pip on Alpine takes wheels for musl only."""
    tried = [
        subprocess.run(
            [
                sys.executable, "-m", "pip", "download", "--isolated", "--no-deps", "--no-index",
                "--find-links", WHEELS, "--only-binary", ":all:", "--platform", platform,
                "--python-version", "3.12", "-d", "/dev/null", "markerjit",
            ],
            capture_output=True, text=True, check=False,
        )
        for platform in ("musllinux_1_2_x86_64", "manylinux_2_17_x86_64")
    ]  # fmt: skip

    assert "No matching distribution found for markerjit" in tried[0].stderr
    assert "No matching distribution" not in tried[1].stderr
