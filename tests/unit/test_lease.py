"""Who reads the rings: claimed, renewed, run out, taken away; with clocks of the test's own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from markerjit.abi import CONTROL, Control
from markerjit.arena import lease as lease_module
from markerjit.arena.arena import Arena
from markerjit.arena.lease import LEASE_S, Lease, end, reader_of
from markerjit.errors import Refused
from markerjit.proc.owner import Owner, ourselves
from tests.support.made_arena import geometry_of, make_arena

NAMESPACE = ourselves().pid_namespace
GONE = Owner(1 << 30, NAMESPACE, 5)
INIT = Owner(1, NAMESPACE, int(Path("/proc/1/stat").read_text().rsplit(")", 1)[1].split()[19]))
S = 1_000_000_000


class Clock:
    """Time that passes when the test says so."""

    def __init__(self) -> None:
        self.now_ns = 50 * S

    def monotonic(self) -> float:
        return self.now_ns / S

    def monotonic_ns(self) -> int:
        return self.now_ns


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Iterator[Clock]:
    clock = Clock()
    monkeypatch.setattr(lease_module, "time", clock)
    yield clock
    lease_module._READ_BY_US.clear()


@pytest.fixture
def arena(clock: Clock) -> Arena:
    return make_arena(geometry_of())


def put_reader(arena: Arena, owner: Owner, *, lease_ns: int = 0) -> None:
    arena.store.write(CONTROL + Control.reader.offset, bytes(owner.entry()))
    arena.control.write("lease_ns", lease_ns)


def test_rings_that_nobody_claimed_have_no_reader(arena: Arena) -> None:
    assert reader_of(arena) is None


def test_who_claims_the_rings_is_their_reader_and_has_a_lease_at_once(
    arena: Arena, clock: Clock
) -> None:
    """Killed before the first renewal, it would hold them for ever otherwise."""
    Lease(arena).claim()

    assert reader_of(arena) == (ourselves(), LEASE_S, False)
    assert arena.control.now().lease_ns == clock.now_ns + int(LEASE_S * S)


def test_a_second_trace_of_this_process_is_refused(arena: Arena) -> None:
    """It would take the first one's records."""
    Lease(arena).claim()

    tracing = f"process {ourselves().pid} is tracing process 7 already"
    with pytest.raises(Refused, match=tracing) as refused:
        Lease(arena).claim()
    assert refused.value.try_again


def test_a_second_trace_is_refused_also_when_the_first_did_not_renew(
    arena: Arena, clock: Clock
) -> None:
    Lease(arena).claim()
    clock.now_ns += int(2 * LEASE_S * S)

    with pytest.raises(Refused, match="is tracing process 7 already"):
        Lease(arena).claim()


def test_rings_that_this_process_left_behind_are_its_own(arena: Arena) -> None:
    put_reader(arena, ourselves())

    Lease(arena).claim()

    assert reader_of(arena) == (ourselves(), LEASE_S, False)


@pytest.mark.parametrize("left_ns", [0, 5 * S])
def test_rings_that_another_reads_are_refused(arena: Arena, clock: Clock, left_ns: int) -> None:
    put_reader(arena, INIT, lease_ns=left_ns and clock.now_ns + left_ns)

    with pytest.raises(Refused, match="process 1 is tracing process 7 already"):
        Lease(arena).claim()
    reader = reader_of(arena)
    assert reader is not None
    assert (reader.owner, reader.over) == (INIT, False)


def test_rings_of_a_reader_that_is_gone_are_free(arena: Arena, clock: Clock) -> None:
    put_reader(arena, GONE, lease_ns=clock.now_ns + 5 * S)

    assert reader_of(arena) == (GONE, 5.0, True)
    Lease(arena).claim()
    assert reader_of(arena) == (ourselves(), LEASE_S, False)


def test_rings_of_a_reader_that_did_not_renew_are_free(arena: Arena, clock: Clock) -> None:
    put_reader(arena, INIT, lease_ns=clock.now_ns + 5 * S)

    clock.now_ns += 5 * S
    assert not reader_of(arena).over  # type: ignore[union-attr]
    clock.now_ns += 1
    assert reader_of(arena).over  # type: ignore[union-attr]
    Lease(arena).claim()
    assert reader_of(arena) == (ourselves(), LEASE_S, False)


def test_a_reader_whose_pid_was_given_away_is_gone(arena: Arena) -> None:
    put_reader(arena, INIT._replace(started=INIT.started + 1))

    assert reader_of(arena).over  # type: ignore[union-attr]


def test_renewing_gives_the_whole_lease(arena: Arena, clock: Clock) -> None:
    lease = Lease(arena)
    lease.claim()
    for _ in range(3):
        clock.now_ns += 2 * S

        assert lease.renew()

        assert arena.control.now().lease_ns == clock.now_ns + int(LEASE_S * S)
        assert reader_of(arena) == (ourselves(), LEASE_S, False)


def test_renewing_again_within_a_second_writes_nothing(
    arena: Arena, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    lease = Lease(arena)
    lease.claim()
    clock.now_ns += 2 * S
    assert lease.renew()
    monkeypatch.setattr(arena.store, "write", None)

    clock.now_ns += S - 1
    assert lease.renew()


def test_another_reader_is_noticed_within_that_second_too(arena: Arena, clock: Clock) -> None:
    lease = Lease(arena)
    lease.claim()
    assert lease.renew()
    put_reader(arena, INIT, lease_ns=clock.now_ns + 5 * S)

    assert not lease.renew()


def test_a_lease_that_is_kept_runs_out_by_itself(arena: Arena, clock: Clock) -> None:
    lease = Lease(arena)
    lease.claim()

    lease.release(keep=True)

    assert reader_of(arena) == (ourselves(), LEASE_S, False)
    clock.now_ns += int(LEASE_S * S) + 1
    assert reader_of(arena).over  # type: ignore[union-attr]


def test_a_lease_that_runs_out_is_noticed_before_it_is_renewed_for_another(
    arena: Arena, clock: Clock
) -> None:
    lease = Lease(arena)
    lease.claim()
    clock.now_ns += 2 * S
    lease.renew()
    clock.now_ns += int((LEASE_S + 1) * S)
    put_reader(arena, INIT, lease_ns=clock.now_ns + 5 * S)  # came, found it over, and took it
    taken = bytes(arena.control.now())

    assert not lease.renew()
    lease.release()

    assert bytes(arena.control.now()) == taken


def test_a_reader_that_nobody_replaced_goes_on_after_a_pause(arena: Arena, clock: Clock) -> None:
    lease = Lease(arena)
    lease.claim()
    clock.now_ns += 100 * S

    assert lease.renew()
    assert reader_of(arena) == (ourselves(), LEASE_S, False)


def test_after_a_release_nobody_reads_and_anybody_may_claim(arena: Arena, clock: Clock) -> None:
    lease = Lease(arena)
    lease.claim()
    clock.now_ns += 2 * S
    lease.renew()

    lease.release()

    assert reader_of(arena) is None
    assert arena.control.now().lease_ns == 0
    Lease(arena).claim()


def test_a_claim_takes_the_old_lease_away_before_it_takes_the_name(
    arena: Arena, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the old one still there the new reader would be over before it had begun."""
    put_reader(arena, GONE, lease_ns=1)
    seen = []
    write = arena.store.write
    monkeypatch.setattr(
        arena.store,
        "write",
        lambda *what: (write(*what), seen.append(arena.control.now().lease_ns)),
    )

    Lease(arena).claim()

    assert set(seen) == {clock.now_ns + int(LEASE_S * S)}


def test_ending_leaves_nobody(arena: Arena) -> None:
    put_reader(arena, GONE, lease_ns=5)

    end(arena)

    assert reader_of(arena) is None
    assert arena.control.now().lease_ns == 0
