"""The bench compiles several things at once, says how far that can be, and can be stopped in it."""

from __future__ import annotations

from pathlib import Path

import pytest

from markerjit.apps.bench.sampling import build
from markerjit.apps.bench.sampling.build import DoesNotCompile, at_once, compile_with

SOURCE = Path("a.c")


def test_results_are_in_the_order_of_the_items_and_progress_ends_at_one() -> None:
    shares: list[float] = []

    assert at_once(lambda number: number * 2, range(9), shares.append) == list(range(0, 18, 2))
    assert shares[-1] == 1
    assert shares == sorted(shares) and all(0 < part < 1 for part in shares[:-1])


def test_progress_that_raises_ends_compilers_and_what_has_not_begun_never_does() -> None:
    begun: list[int] = []

    def work(number: int) -> None:
        begun.append(number)
        compile_with(SOURCE, ["sleep", "infinity"])

    def stop(done: float) -> None:
        if build._compilers:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        at_once(work, range(100), stop)

    assert len(begun) < 100
    assert not build._compilers


def test_complaints_of_a_compiler_are_kept() -> None:
    with pytest.raises(DoesNotCompile) as refused:
        compile_with(SOURCE, ["sh", "-c", "echo wrong >&2; exit 1"])

    assert refused.value.output == "wrong\n"
