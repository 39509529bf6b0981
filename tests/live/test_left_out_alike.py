"""What several processes leave out alike is said once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import pytest

from tests.support.commands import cli

pytestmark = pytest.mark.live


@pytest.mark.parametrize(
    "command",
    [["count"], ["trace"], ["export"], ["on", "--follow", "--off-at-end"], ["count", "--follow"]],
    ids=" ".join,
)
def test_what_two_processes_leave_out_is_said_once(target: Callable, command: list[str]) -> None:
    pids = ",".join(str(target("truth_prototypes").pid) for _ in range(2))

    done = cli(*command, pids, "func:truth_prototypes:*", "-d", "10ms")

    assert done.returncode == 0, done.stderr
    lines = Counter(line for line in done.stderr.splitlines() if "left out" in line)
    assert any("func:nothing" in line for line in lines)
    assert {*lines.values()} == {1}
