"""A constructor that fails closes what it has opened; what was forgotten to be closed is said."""

from __future__ import annotations

from collections.abc import Callable

import pytest

import markerjit
import markerjit.memory.process
from markerjit.memory import ProcessMemory
from markerjit.remote import native
from markerjit.session import clock as clock_module
from markerjit.session.target import Target
from tests.support.shortage import descriptors_left, open_descriptors

pytestmark = pytest.mark.live


def test_a_session_that_cannot_begin_leaves_nothing_open(
    target: Callable, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = target("truth_threads", "1")
    monkeypatch.setattr(native, "package_file", lambda name: f"/nowhere/{name}")
    native.library.cache_clear()
    before = open_descriptors()

    with pytest.raises(markerjit.MarkerError, match="the native part cannot be loaded"):
        markerjit.attach(program.pid)
    assert open_descriptors() == before
    native.library.cache_clear()


@pytest.mark.parametrize("kind", [markerjit.View, markerjit.Session])
def test_nothing_stays_open_wherever_it_fails(target: Callable, kind: type) -> None:
    program = target("truth_threads", "1")
    with markerjit.attach(program.pid) as session:
        session.enable("truth_loop")
    before = open_descriptors()
    for count in range(8):
        with descriptors_left(count):
            try:
                kind(program.pid).close()
            except markerjit.MarkerError:
                continue
    assert open_descriptors() == before


def test_nothing_stays_open_when_it_is_interrupted(
    target: Callable, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = target("truth_threads", "1")
    before = open_descriptors()

    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    for owner, name in (
        (Target, "look"),
        (clock_module, "clock_pair"),
        (markerjit.memory.process, "_open_memory"),
        (markerjit.memory.process.ProcessMemory, "alive"),
    ):
        with monkeypatch.context() as patched:
            patched.setattr(owner, name, interrupted)
            with pytest.raises(KeyboardInterrupt):
                markerjit.attach(program.pid)
        assert open_descriptors() == before, name


def test_names_complete_before_they_are_loaded() -> None:
    assert {*markerjit.__all__, "lowlevel"} <= {*dir(markerjit)}
    assert markerjit.lowlevel.Geometry


def test_a_session_that_was_not_closed_says_so_and_is(target: Callable) -> None:
    program = target("truth_threads", "1")
    before = open_descriptors()

    for kind in (markerjit.View, markerjit.Session, ProcessMemory):
        with pytest.warns(ResourceWarning, match=f"unclosed <{kind.__name__} of {program.pid}"):
            kind(program.pid)
        assert open_descriptors() == before


def test_what_is_shown_tells_whose_it_is_and_whether_it_is_open(target: Callable) -> None:
    program = target("truth_threads", "1", "--rate", "500")
    with markerjit.attach(program.pid) as session:
        assert repr(session) == f"<Session of {program.pid} ({program.path} 1 --rate 500), open>"
        with session.trace("truth_loop") as events:
            assert repr(events) == f"<EventStream of {program.pid}, 0 events, open>"
        assert repr(events).endswith(", over>")
        session.record("truth_loop")
        assert repr(session.flight()) == f"<Flight of {program.pid}, 1 markers>"
        assert repr(session.watch_flight()) == f"<Watch on {program.pid}>"
        session.disable("truth_loop")

    assert repr(session).endswith(", closed>")
    for use in (session.sites, lambda: session.read(0, 1), lambda: session.disable("*")):
        with pytest.raises(markerjit.MarkerError, match="cannot be used any more; attach again"):
            use()
