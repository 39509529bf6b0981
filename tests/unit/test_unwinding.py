"""A debugger that stops in a probe of the program's own finds the marked function and its callers,
by rules relative to the stack pointer and to the frame pointer alike."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.compilers import INCLUDE
from tests.support.programs import ROOT
from tests.support.timing import HANG_S

SOURCE = Path(__file__).parent / "header" / "unwind.c"
LIBRARY = ROOT / "markerjit" / "_native" / "libmarkerjit.a"
ADAPTER = "mj_call_saving_vectors"


@pytest.mark.parametrize("options", ["-O2", "-O2 -fno-omit-frame-pointer", "-O0"])
def test_gdb_finds_the_marked_function_from_inside_a_probe(
    options: str, tmp_path: Path, build: Path, needs_tool: Callable[[str, str], str]
) -> None:
    gdb = needs_tool("gdb", "gdb")
    words = [*options.split(), "-g", f"-I{INCLUDE}", "-pthread", "-o", tmp_path / "unwind"]
    subprocess.run(["gcc", *words, SOURCE, LIBRARY], check=True)
    orders = ["break in_probe", "run", "backtrace", "continue", "backtrace", "kill"]
    arguments = [word for order in orders for word in ("-ex", order)]

    done = subprocess.run(
        [gdb, "-q", "-nx", "-batch", *arguments, tmp_path / "unwind"],
        capture_output=True, text=True, check=True, stdin=subprocess.DEVNULL, timeout=HANG_S,
    )  # fmt: skip

    frames = re.findall(r"^#\d+ +(?:0x[0-9a-f]+ in )?(\w+) \(", done.stdout, re.M)
    assert frames == [
        "in_probe", "on_framed", ADAPTER, "framed", "caller", "main",
        "in_probe", "on_leaf", ADAPTER, "leaf", "caller", "main",
    ]  # fmt: skip
