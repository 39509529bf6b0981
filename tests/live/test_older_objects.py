"""Objects that were compiled with the headers of an older version are served as before: their
bodies make an ordinary C call, so they get probes that are called so."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

import markerjit
from tests.support.timing import wait_until

pytestmark = pytest.mark.live

MARKER = "truth_loop"
PROBE = """
#include <markerjit/probe.h>
MJ_COUNTER(calls);
void on_loop(struct mj_slot *slot, ...) { mj_count(&calls); }
"""


@pytest.mark.parametrize("program", ["truth_threads-1", "truth_threads"])
def test_the_note_says_how_a_body_calls(target: Callable, program: str) -> None:
    with markerjit.attach(target(program, "1").pid) as session:
        (site,) = session.sites(MARKER)

        assert site.body.preserving is (program == "truth_threads")


@pytest.mark.parametrize("probe", ["count", "record"])
def test_an_older_body_counts_and_records(target: Callable, probe: str) -> None:
    program = target("truth_threads-1", "2", "--rate", "2000")
    with markerjit.attach(program.pid) as session:
        session.enable(MARKER, probe=probe)
        wait_until(lambda: session.statistics(MARKER)[0].hits > 100, "hits")

        assert session.statistics(MARKER)[0].mode is not None
        session.disable(MARKER)


def test_an_older_body_calls_a_probe_in_c(target: Callable, tmp_path: Path) -> None:
    program = target("truth_threads-1", "2", "--rate", "2000")
    (tmp_path / "loop.c").write_text(PROBE)
    with markerjit.attach(program.pid) as session:
        session.enable(MARKER, probe=f"{tmp_path}/loop.c:on_loop")
        wait_until(lambda: session.statistics(MARKER)[0].hits > 100, "hits")

        session.disable(MARKER)
