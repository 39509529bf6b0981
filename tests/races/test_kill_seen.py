"""The kill matrix would see it: with a damaged way back, as before there was one, it finds harm."""

from __future__ import annotations

import pytest

ENDED = "the target ended: SIGSEGV"
KILL = (
    "--scenario", "on, membarrier", "--point", "borrow: exit", "--short", "--one",
    "--first", "epoll", "--still",
)  # fmt: skip
"""A controller is killed while it borrows a thread that sleeps in the kernel, with a known value in
every register."""

pytestmark = [pytest.mark.races, pytest.mark.live, pytest.mark.slow]


@pytest.mark.parametrize(
    ("damage", "seen"),
    [
        ("return", ENDED),  # as without any frame
        ("register", "registers wrong"),
        ("vector", "registers wrong"),
        ("mask", "masks wrong"),
        ("eintr", "EINTR"),
    ],
)
def test_a_damaged_way_back_is_seen(met, damage, seen):
    (killed,) = met("--spoil", damage, *KILL)

    assert killed.died
    assert killed.borrowed
    assert any(seen in harm for harm in killed.harm), killed.harm


def test_the_same_kill_harms_nobody_with_the_way_back_as_it_is(met):
    (killed,) = met(*KILL)

    assert killed.died
    assert killed.borrowed
    assert not killed.harm
