"""Programs that run go nowhere that Code does not know: each taken transfer is to a known target.

A program is single-stepped, and every place of its own objects at which control arrived from
elsewhere has to be a function's entry or among the targets of its address.

MARKERJIT_STEPS=1500000 runs it. A step costs a few microseconds on an idle machine and fifty on a
busy one, and the first half million are those of the dynamic linker.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from markerjit.elf.image import PT_LOAD, FileImage
from markerjit.spans import Code
from tests.support.programs import ROOT

pytestmark = pytest.mark.oracle

STEPPER = ROOT / "tests" / "oracle" / "relocation" / "stepper.c"
STEPS = int(os.environ.get("MARKERJIT_STEPS", "0"))
LIBC = "/usr/lib/x86_64-linux-gnu/libc.so.6"
SCRIPT = (
    "f() { local x=$1; case $x in 1*) y=${x#1};; *) y=$x;; esac; }; "
    "for i in 1 2 3 4 5 6 7; do f $((i*i)); printf -v z '%05d %s' $i $y; done; "
    'trap : USR1; kill -USR1 $$; [[ "a$z" =~ a.*1 ]]; echo "$z"'
)
COMMANDS = {
    "/usr/bin/bash": ["/usr/bin/bash", "-c", SCRIPT],
    "/usr/bin/python3": ["/usr/bin/python3", "-S", "-E", "-c", "print(sum(range(9)))"],
}


@pytest.fixture(scope="module")
def stepper(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("stepper") / "stepper"
    subprocess.run(["gcc", "-O1", STEPPER, "-o", path], check=True)
    return path


@pytest.mark.parametrize("name", COMMANDS, ids=lambda name: Path(name).name)
def test_control_arrives_at_known_places_only(
    name: str, stepper: Path, record_property: Callable[[str, object], None]
) -> None:
    if not STEPS:
        pytest.skip("takes minutes; MARKERJIT_STEPS=1500000 runs it")
    if not Path(name).exists():
        pytest.skip(f"{name} is not on this machine")
    done = subprocess.run(
        [stepper, str(STEPS), *COMMANDS[name]],
        capture_output=True,
        text=True,
        check=True,
        stdin=subprocess.DEVNULL,
    )
    maps, _, lines = done.stdout.partition("\n\n")
    pairs = [(int(a, 16), int(b, 16)) for a, b in (line.split() for line in lines.splitlines())]

    unknown = []
    arrivals = 0
    for path in (name, LIBC):
        with FileImage(path) as image:
            code = Code(image)
            first = min(s.address for s in image.segments if s.type == PT_LOAD) & -4096
        bias = start_of(maps, Path(path).resolve()) - first
        for before, arrived in pairs:
            arrived_at, came_from = arrived - bias, before - bias
            if is_arrival(code, came_from, arrived_at):
                arrivals += 1
                if not is_known(code, arrived_at):
                    unknown.append(f"{Path(path).name}: {came_from:#x} to {arrived_at:#x}")

    assert not unknown, "\n".join(unknown[:20])
    assert arrivals > 300
    record_property("summary", f"{Path(name).name}: {arrivals} distinct transfers, all known")


def start_of(maps: str, path: Path) -> int:
    """Where the object's first mapping is."""
    return min(int(line.split("-")[0], 16) for line in maps.splitlines() if str(path) in line)


def is_arrival(code: Code, before: int, address: int) -> bool:
    """Whether control came to a function of the object otherwise than by the next instruction."""
    if code.functions.index(address) is None:
        return False
    function = code.functions.index(before)
    size = 0 if function is None else code.flow(function).starts.get(before, 0)
    return address not in (before, before + size)


def is_known(code: Code, address: int) -> bool:
    function = code.functions.index(address)
    assert function is not None
    is_entry = address == int(code.functions.starts[function])
    return is_entry or bool(code.targets(address, address + 1))
