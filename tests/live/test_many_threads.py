"""Processes of many threads: all stand, and all go on as if nothing had been."""

from __future__ import annotations

from collections.abc import Callable

import pytest

import markerjit
from markerjit import Mode

pytestmark = pytest.mark.live

THREADS = 512


def hits(session: markerjit.Session) -> int:
    (statistic,) = session.statistics()
    assert statistic.hits is not None
    return statistic.hits


@pytest.mark.parametrize("mode", [Mode.JUMP, Mode.INT3])
def test_each_of_512_threads_stands_and_goes_on(target: Callable, mode: Mode) -> None:
    program = target("truth_many", str(THREADS))

    with markerjit.attach(program.pid) as session:
        on = session.enable("many_turn", mode=mode, probe="count")
        first = program.ask("turn")  # answered when each has made one
        seen = hits(session)
        off = session.disable("many_turn")
        last = program.ask("turn")

    assert on.threads == off.threads == THREADS + 1
    assert seen == first["many_turn"] - THREADS == THREADS
    assert last["many_turn"] == first["many_turn"] + THREADS
    assert last["eintr"] == 0
