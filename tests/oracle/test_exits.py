"""The exits of functions of real programs: all that objdump shows, and nearly all opened."""

from __future__ import annotations

import re
import subprocess
from collections import Counter
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import pytest

from markerjit.spans import Code, Opening
from markerjit.spans.exits import ExitKind, Exits, exits_of
from tests.support.choice import share, spacing
from tests.support.opening_coverage import LIBRARIES, code_of

pytestmark = pytest.mark.oracle

SAMPLE = 150
PROGRAMS = {
    # the share of functions of which every exit is opened by a jump, at least
    "/usr/bin/bash": 0.95,
    "/usr/bin/python3.11": 0.9,
    f"{LIBRARIES}/libc.so.6": 0.95,
    f"{LIBRARIES}/libsqlite3.so.0": 0.92,
    f"{LIBRARIES}/libstdc++.so.6": 0.95,
}
INSTRUCTION = re.compile(r"^ *([0-9a-f]+):\t(?:[0-9a-f]{2} )+ *\t?(.*)$", re.MULTILINE)


def entries_of(code: Code) -> list[int]:
    """Some of the functions whose symbols begin where an unwind entry does."""
    starts = {int(start) for start in code.functions.starts}
    named = sorted(starts & set(code.names.names))
    return named[:: max(len(named) // SAMPLE, 1)]


def returns_of(path: str, start: int, end: int) -> set[int]:
    """The addresses of the returns, as objdump reads them."""
    command = ["objdump", "-d", f"--start-address={start}", f"--stop-address={end}", path]
    text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return {
        int(at, 16) for at, words in INSTRUCTION.findall(text)
        if re.match(r"(repz |bnd |rep )?ret", words)
    }  # fmt: skip


def by_jump(exits: Exits) -> bool:
    return all(isinstance(each.opening, Opening) and each.opening.size > 1 for each in exits.exits)


@pytest.mark.parametrize("path", PROGRAMS, ids=lambda path: Path(path).name)
def test_all_returns_are_exits_and_nearly_all_exits_are_opened_by_a_jump(
    path: str, record_property: Callable[[str, object], None]
) -> None:
    if not Path(path).exists():
        pytest.skip(f"{path} is not on this machine")
    code = code_of(path)
    ways: Counter[str] = Counter()
    bounded = jumps = returning = 0

    for number, start in enumerate(entries_of(code)):
        exits = exits_of(code, start)
        if exits.unbounded:
            ways[exits.unbounded.name] += 1
            continue
        bounded, jumps = bounded + 1, jumps + by_jump(exits)
        bounds = code.functions.at(start)
        assert bounds
        known = {each.address for each in exits.exits if each.kind is ExitKind.RETURN}
        if number % (5 * spacing(2)) == 0:  # objdump starts slowly
            expected = returns_of(path, bounds.start, bounds.stop)
            assert {at for at in known if at in bounds} == expected, hex(start)
            returning += len(expected)
        spans = sorted(
            {
                (each.opening.address, each.opening.address + len(each.opening.code))
                for each in exits.exits
                if isinstance(each.opening, Opening)
            }
        )
        assert all(end <= after for (_, end), (after, _) in pairwise(spans))

    assert returning > 10
    assert bounded > 0.97 * len(entries_of(code))
    assert jumps / bounded > PROGRAMS[path]
    record_property("summary", f"{Path(path).name}: {jumps / bounded:.1%} by jump, {dict(ways)}")


@pytest.mark.parametrize("path", PROGRAMS, ids=lambda path: Path(path).name)
def test_all_functions_decoded_together_have_the_exits_that_each_has_alone(path: str) -> None:
    if not Path(path).exists():
        pytest.skip(f"{path} is not on this machine")
    code, together = code_of(path), code_of(path)
    together.expect(len(together.functions))

    for entry in share(entries_of(code), 3, [*PROGRAMS].index(path)):
        assert exits_of(together, entry) == exits_of(code, entry)
