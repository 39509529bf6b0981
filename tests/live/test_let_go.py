"""A constructor that fails closes what it has opened; what was forgotten to be closed is said."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

import markerjit
import markerjit.memory.process
from markerjit.arena import find
from markerjit.memory import ProcessMemory
from markerjit.remote import native
from markerjit.session import clock as clock_module
from markerjit.session.target import Target
from tests.support.shortage import descriptors_left, open_descriptors
from tests.support.timing import reaped, wait_until

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


def test_nothing_stays_open_when_the_process_ends_while_it_is_looked_at(
    target: Callable, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its arena has been found by then, and the table of patches leads to stubs."""
    program = target("truth_threads", "1", may_die=True)
    with markerjit.attach(program.pid) as session:
        session.on("func:main")
    before = open_descriptors()
    look_further = find.inherited_arenas

    def ends_here(*arguments: Any) -> Any:
        program.process.kill()
        program.process.wait()
        return look_further(*arguments)

    monkeypatch.setattr(find, "inherited_arenas", ends_here)
    with pytest.raises(markerjit.TargetGone):
        markerjit.View(program.pid)
    assert open_descriptors() == before


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
    for use in (
        session.sites,
        session.ending,
        session.last_statistics,
        lambda: session.read(0, 1),
        lambda: session.disable("*"),
        lambda: session.subscribe("truth_loop", print),
        lambda: session.atrace("truth_loop"),
    ):
        with pytest.raises(markerjit.MarkerError, match="cannot be used any more; attach again"):
            use()


def test_what_outlives_its_session_touches_no_other_file(target: Callable, tmp_path: Path) -> None:
    program = target("truth_threads", "1", "--rate", "500")
    session = markerjit.attach(program.pid)
    context = session.trace("truth_loop")
    stream = context.__enter__()
    wait_until(stream.poll, "an event")
    session.close()

    with ExitStack() as stack:
        # They get the numbers that were free just now.
        files = [stack.enter_context((tmp_path / str(n)).open("w+b")) for n in range(16)]
        for use in (stream.poll, stream.drain):
            with pytest.raises(markerjit.MarkerError, match="any more; attach again"):
                use()
        with pytest.raises(markerjit.Refused, match="STILL ON: markerjit off"):
            context.__exit__(None, None, None)
        assert [os.fstat(file.fileno()).st_size for file in files] == [0] * 16

    with markerjit.attach(program.pid) as again:
        again.off("truth_loop", force=True)


@pytest.mark.forks
def test_a_child_of_a_fork_leaves_what_its_parent_does_alone(target: Callable) -> None:
    program = target("truth_threads", "1", "--rate", "500")
    with markerjit.attach(program.pid) as session:
        context = session.aggregate("truth_loop")
        adding = context.__enter__()
        child = os.fork()
        if not child:
            refused = 0
            try:
                for use in (lambda: session.on("truth_loop"), lambda: session.off("*")):
                    try:
                        use()
                    except markerjit.MarkerError as error:
                        refused += "a child that it has forked" in str(error)
                context.__exit__(None, None, None)
                refused += 1
            finally:
                os._exit(refused)
        status = reaped(child)
        before = adding.read().events
        wait_until(lambda: adding.read().events > before, "more events")
        context.__exit__(None, None, None)

    assert os.waitstatus_to_exitcode(status) == 3


@pytest.mark.forks
def test_a_child_of_a_fork_takes_no_events_of_its_parent(target: Callable) -> None:
    program = target("truth_modes-jump")
    with markerjit.attach(program.pid) as session:
        context = session.trace("truth_mode")
        stream = context.__enter__()
        program.command("run 10")
        child = os.fork()
        if not child:
            refused = 0
            try:
                for use in (stream.poll, stream.drain, stream.keep, lambda: list(stream)):
                    try:
                        use()
                    except markerjit.MarkerError as error:
                        refused += "a child that it has forked" in str(error)
            finally:
                os._exit(refused)
        status = reaped(child)
        events = stream.drain()
        context.__exit__(None, None, None)

    assert os.waitstatus_to_exitcode(status) == 4
    assert len(events) == 10
