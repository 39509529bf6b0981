"""Uprobes of another tool that come or go between our sites while all threads stand."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import markerjit
from markerjit.apps.bench.active import uprobes
from tests.support.programs import ROOT, Target, make
from tests.support.timing import HANG_S, Limited

HERE = Path(__file__).parent
NO_OPS = {"one": b"\x90", "five": b"\x0f\x1f\x44\0\0"}
SITES = 6
NO_UPROBES = 77  # an exit code of uprobed.py

pytestmark = [pytest.mark.races, pytest.mark.live]

Switch = Callable[..., dict[str, Any]]


@pytest.fixture
def program(tmp_path: Path) -> Iterator[Target]:
    make("native", "build/hooks/libmjstop.so")
    path = tmp_path / "gaps"
    flags = ["-O2", "-Wall", "-Wextra", "-Werror", f"-I{ROOT}/native/include"]
    subprocess.run(["gcc", *flags, "-o", path, HERE / "gaps.c"], check=True)
    started = Target(path)
    started.wait_ready()
    yield started
    started.end()


@pytest.fixture
def switch(program: Target) -> Switch:
    """Switch all on while a uprobe is put in or taken out at the last point of these. The program
    comes by before and after."""

    def run(place: str, what: str, *points: str) -> dict[str, Any]:
        command = [sys.executable, HERE / "uprobed.py", str(program.pid), program.ready[place]]
        command += [what, *points]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        with Limited(command, text=True, cwd=ROOT, **pipes) as controller:
            assert controller.stdin
            assert controller.stdout
            for word in ("probed", "switched"):
                if controller.stdout.readline() == f"{word}\n":
                    program.ask("visit")
                    controller.stdin.write("\n")
                    controller.stdin.flush()
            out, errors = controller.communicate(timeout=HANG_S)
        if controller.returncode == NO_UPROBES:
            pytest.skip(errors.strip())
        assert controller.returncode == 0, errors
        return dict(json.loads(out))

    return run


def code_at(program: Target, place: str) -> bytes:
    with markerjit.View(program.pid) as view:
        return view.read(int(program.ready[place]), len(NO_OPS[place]))


def hits(program: Target) -> list[int]:
    with markerjit.View(program.pid) as view:
        return [statistic.hits for statistic in view.statistics()]


@pytest.mark.parametrize("place", NO_OPS)
def test_a_uprobe_that_is_taken_out_before_the_write_stays_out(
    program: Target, switch: Switch, place: str
) -> None:
    """An int3 that is written back kills the next thread that comes by; a call, which new kernels
    put in the place of a no-op of five bytes, the next child of a fork."""
    done = switch(place, "take", "run: read")

    assert program.ask("fork")["status"] == 0
    assert code_at(program, place) == NO_OPS[place]
    assert done["error"].startswith("another tool changed code")
    assert hits(program) == [0] * SITES


def test_a_uprobe_that_is_put_in_between_a_write_and_its_read_back_is_noticed_and_counts(
    program: Target, switch: Switch
) -> None:
    done = switch("one", "put", "run: read", "read back")

    assert done["error"].startswith("another tool changed code")
    assert done["counted"] == 1
    assert hits(program) == [0] * SITES


@pytest.mark.parametrize("point", ["seized", "read back"])
def test_a_uprobe_that_is_put_in_before_its_code_is_read_counts_beside_the_sites(
    program: Target, switch: Switch, point: str
) -> None:
    """The first read back is that of the slots. The comparison before the stop says nothing of what
    stands between sites."""
    done = switch("one", "put", point)

    assert (done["error"], done["counted"]) == ("", 1)
    assert hits(program) == [1] * SITES


@pytest.mark.parametrize("place", NO_OPS)
def test_a_uprobe_that_stays_goes_on_counting(program: Target, switch: Switch, place: str) -> None:
    done = switch(place, "put", "seized")

    assert (done["error"], done["counted"]) == ("", 1)
    assert hits(program) == [1] * SITES


def test_the_kernel_puts_no_uprobe_where_the_file_has_an_int3(program: Target) -> None:
    """So an int3 between sites that the file has is the program's own (native/src/stop/runs.c)."""
    no_op, trap = (uprobes.spot_at(program.pid, int(program.ready[at])) for at in ("one", "int3"))
    try:
        os.close(uprobes.open_uprobe(no_op, program.pid))
    except (markerjit.NotPermitted, markerjit.Unsupported) as no:
        pytest.skip(str(no))

    with pytest.raises(markerjit.Unsupported):
        uprobes.open_uprobe(trap, program.pid)
