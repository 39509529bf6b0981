"""A barrier in all threads of a process."""

from __future__ import annotations

import os

import pytest

from markerjit.proc import barrier as module
from markerjit.proc.barrier import barrier
from tests.support.timing import Limited


def test_our_own_threads_pass_one() -> None:
    assert barrier(os.getpid())


def test_those_of_another_process_pass_one() -> None:
    with Limited(["sleep", "60"]) as other:
        assert barrier(other.pid)
        other.kill()


@pytest.mark.parametrize("own", [True, False])
def test_it_says_where_the_kernel_refuses(own: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_SYS_MEMBARRIER", 100_000)  # no such call

    assert not barrier(os.getpid() if own else 1)
