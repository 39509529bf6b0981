"""The kill matrix would see it: with a damaged way back, as before there was one, it finds harm."""

from __future__ import annotations

import pytest

ENDED = "the target ended: SIGSEGV"

pytestmark = [pytest.mark.races, pytest.mark.live, pytest.mark.slow]


@pytest.mark.parametrize(
    ("damage", "seen"),
    [
        ("return", [ENDED]),  # as without any frame
        ("register", ["registers wrong", ENDED]),  # a pointer, where its register is none of those
        ("vector", ["registers wrong"]),
        ("mask", ["masks wrong"]),
        ("eintr", ["EINTR"]),
    ],
)
def test_a_damaged_way_back_is_seen(met, damage, seen):
    # In the way back of a thread that waits in the kernel: what it was interrupted in shows too.
    # It is awake now and then; where EINTR would not show, the hook ends the controller early.
    met_alive = 0
    while True:
        (killed,) = met(
            "--spoil", damage, "--scenario", "on, membarrier", "--point", "borrow: exit", "--short",
            "--first", "read", "--one",
        )  # fmt: skip
        if killed.died or damage != "eintr":
            break
        met_alive += 1
        assert met_alive < 20, "the thread never waits in the kernel"

    assert killed.died
    assert killed.borrowed
    assert any(kind in harm for harm in killed.harm for kind in seen), killed.harm


def test_the_same_kill_harms_nobody_with_the_way_back_as_it_is(met):
    (killed,) = met(
        "--scenario", "on, membarrier", "--point", "borrow: exit", "--short",
        "--first", "read", "--one",
    )  # fmt: skip

    assert killed.died
    assert killed.borrowed
    assert not killed.harm
