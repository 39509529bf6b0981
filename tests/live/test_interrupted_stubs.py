"""Stubs that count and record by themselves, interrupted by handlers that come to the same stub,
and that fork: each event is there once, and those of children are not."""

from __future__ import annotations

from collections.abc import Callable

import pytest

import markerjit

pytestmark = pytest.mark.live

FUNCTION = "func:truth_interrupted:interrupted"
MANY, SOME = 5_000_000, 100_000


def test_interrupted_stub_counts_each_call_once(target: Callable) -> None:
    program = target("truth_interrupted")
    with markerjit.attach(program.pid) as session:
        session.enable(FUNCTION)

        called = program.ask(f"run {MANY}")

        (status,) = session.status(FUNCTION)
    assert called["handled"] > 0
    assert status.hits == called["calls"]


@pytest.mark.parametrize("name", [FUNCTION, f"{FUNCTION}:return"], ids=["entry", "return"])
def test_interrupted_stub_records_each_call_once(target: Callable, name: str) -> None:
    program = target("truth_interrupted")
    attached = markerjit.attach(program.pid, ring_size=1 << 24, breakpoints=True)
    with attached as session, session.trace(name) as stream:
        called = program.ask(f"run {SOME}")
        events = list(stream.drain())

    assert called["handled"] > 0
    assert len(events) == called["calls"]
