"""A switch that failed: what was written down for it in the arena is taken back."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import markerjit
from markerjit.arena.arena import Arena
from markerjit.arena.find import is_memfd
from markerjit.arena.journal import Journal
from markerjit.arena.mapped import MAPPING_PATH
from markerjit.errors import ChangeFailed, MarkerError, NotRolledBack
from markerjit.probes.loaded import loaded
from markerjit.session import switch as switch_module
from tests.support.c_probes import ANY, write_probe
from tests.support.shortage import files_end_at

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


def test_a_controller_that_may_not_have_large_files_leaves_no_arena(target: Callable) -> None:
    program = target("truth_threads", "2", "--paused")

    with markerjit.attach(program.pid) as session:
        with files_end_at(1 << 20), pytest.raises(MarkerError, match="ulimit -f"):
            session.enable(MARKER)

        assert not session.has_runtime
        assert MAPPING_PATH not in Path(f"/proc/{program.pid}/maps").read_text()
        links = [os.readlink(link) for link in Path(f"/proc/{program.pid}/fd").iterdir()]
        assert not any(map(is_memfd, links))
        session.enable(MARKER)


@pytest.fixture
def fail(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Let all writes of code fail from now on, with this error, and with an open `journal`."""

    def fail_with(error: MarkerError, *, journal: bool = False) -> None:
        def fails(_plan: object, _target: object, written: Journal | None, *_: object) -> None:
            if journal and written:
                written.open(b"")
            raise error

        monkeypatch.setattr(switch_module, "apply", fails)

    return fail_with


def arena_of(session: markerjit.Session) -> Arena:
    arena = session._target.seen.arena
    assert arena is not None
    return arena


@pytest.mark.parametrize(
    ("error", "journal", "quiesce", "callers"),
    [
        (UNDONE, False, "stop", 0),
        # A thread may have found the probe before it was taken back.
        (UNDONE, False, "membarrier", 1),
        (HALF_DONE, True, "stop", 1),
        # The code was written, and then something else failed.
        (MarkerError("cannot write"), True, "stop", 1),
    ],
)
def test_a_slot_is_no_caller_of_a_probe_that_it_never_had(
    session: markerjit.Session, fail: Callable, tmp_path: Path,
    error: MarkerError, journal: bool, quiesce: str, callers: int,
) -> None:  # fmt: skip
    fail(error, journal=journal)

    with pytest.raises(type(error)):
        session.enable(MARKER, probe=write_probe(tmp_path, ANY, "any"), quiesce=quiesce)

    (unit,) = (probe.unit for probe in loaded(arena_of(session)))
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


def test_a_flight_recorder_that_fails_to_begin_is_none(
    session: markerjit.Session, fail: Callable
) -> None:
    fail(UNDONE)

    with pytest.raises(ChangeFailed):
        session.record(MARKER)

    with pytest.raises(markerjit.Refused, match="has no flight recorder"):
        session.flight()
