"""A constructor that fails closes what it has opened; what was forgotten to be closed is said."""

from __future__ import annotations

from collections.abc import Callable

import pytest

import markerjit
import markerjit.memory.process
from markerjit import session as session_module
from markerjit.quiesce import native
from tests.shortage import descriptors_left, open_descriptors

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
        (markerjit.View, "_look_again"),
        (session_module, "clock_pair"),
        (markerjit.memory.process, "_open_memory"),
        (markerjit.memory.process.ProcessMemory, "alive"),
    ):
        with monkeypatch.context() as patched:
            patched.setattr(owner, name, interrupted)
            with pytest.raises(KeyboardInterrupt):
                markerjit.attach(program.pid)
        assert open_descriptors() == before, name
