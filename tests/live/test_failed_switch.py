"""A switch that failed: what was written down for it in the arena is taken back."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import markerjit
from markerjit.arena.arena import Arena
from markerjit.errors import ChangeFailed, MarkerError, NotRolledBack
from markerjit.probes.loaded import loaded
from markerjit.session import switch as switch_module
from tests.support.c_probes import ANY, write_probe

pytestmark = pytest.mark.live

MARKER = "truth_loop"
UNDONE, HALF_DONE = ChangeFailed("all was rolled back", 0), NotRolledBack(1, 0, "a test")


@pytest.fixture
def session(target: Callable) -> Iterator[markerjit.Session]:
    program = target("truth_threads", "2", "--paused")
    with markerjit.attach(program.pid) as session:
        session.enable(MARKER)
        session.disable(MARKER)
        yield session


@pytest.fixture
def fail(monkeypatch: pytest.MonkeyPatch) -> Callable[[MarkerError], None]:
    """Let all writes of code fail from now on, with this error."""

    def fail_with(error: MarkerError) -> None:
        def fails(*_: object) -> None:
            raise error

        monkeypatch.setattr(switch_module, "apply", fails)

    return fail_with


def arena_of(session: markerjit.Session) -> Arena:
    arena = session._target.seen.arena
    assert arena is not None
    return arena


@pytest.mark.parametrize(
    ("error", "quiesce", "callers"),
    [
        (UNDONE, "stop", 0),
        # A thread may have found the probe before it was taken back.
        (UNDONE, "membarrier", 1),
        (HALF_DONE, "stop", 1),
    ],
)
def test_a_slot_is_no_caller_of_a_probe_that_it_never_had(
    session: markerjit.Session, fail: Callable, tmp_path: Path,
    error: MarkerError, quiesce: str, callers: int,
) -> None:  # fmt: skip
    fail(error)

    with pytest.raises(type(error)):
        session.enable(MARKER, probe=write_probe(tmp_path, ANY, "any"), quiesce=quiesce)

    (unit,) = (one.unit for one in loaded(arena_of(session)))
    assert len(arena_of(session).units.callers(unit)) == callers


def test_a_trace_that_fails_to_begin_holds_nothing(
    session: markerjit.Session, fail: Callable
) -> None:
    with session.trace(MARKER):
        pass
    before = [int(entry.held) for entry in arena_of(session).markers.entries()]
    fail(UNDONE)

    with pytest.raises(ChangeFailed), session.trace(MARKER):
        raise AssertionError("it began")

    assert [int(entry.held) for entry in arena_of(session).markers.entries()] == before
