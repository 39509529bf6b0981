"""A switch that is made once more in a session takes no turn, and sees what has changed."""

from __future__ import annotations

import mmap
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import markerjit
from markerjit.arena.store import FileStore
from markerjit.errors import NotPermitted, Refused
from markerjit.remote import native
from markerjit.remote.calls import SYS_MMAP, SYS_MPROTECT, Call
from markerjit.remote.mappings import Mappings
from markerjit.session.turn import Turns
from tests.support.calls import calls_of
from tests.support.code_bytes import code_of
from tests.support.processes import states_of_threads, text_of
from tests.support.timing import Limited, wait_until

pytestmark = [
    pytest.mark.live,
    pytest.mark.skipif(
        Mappings(os.getpid()).now() is None, reason="needs a kernel that tells mappings (6.11)"
    ),
]

LOOP = "truth_loop"
SEIZE = "import ctypes, sys; ctypes.CDLL(None).ptrace(0x4206, int(sys.argv[1]), 0, 0); input()"
MOST_CALLS = 215
"""Of functions, of Python and of C, in a switch; an ordinary one that is prepared has 900."""


@pytest.fixture
def turns(monkeypatch: pytest.MonkeyPatch) -> list[Turns]:
    """The turns that were taken."""
    taken: list[Turns] = []
    take = Turns.take

    def taking(self: Turns, **options: bool) -> object:
        taken.append(self)
        return take(self, **options)

    monkeypatch.setattr(Turns, "take", taking)
    return taken


@contextmanager
def switched_thrice(pid: int) -> Iterator[markerjit.Session]:
    with markerjit.attach(pid) as session:
        for _ in range(3):
            session.on(LOOP)
            session.off(LOOP)
        yield session


@pytest.mark.parametrize("quiesce", [None, "membarrier", "none"])
def test_it_takes_no_turn_and_does_the_same(
    target: Callable, turns: list[Turns], quiesce: str | None
) -> None:
    program = target("truth_process")
    with markerjit.attach(program.pid) as session:
        (name,) = {marker.name for marker in session.statistics()}
        seen = []
        for number in range(6):
            if number == 3:
                turns.clear()
            session.on(name, quiesce=quiesce)
            program.command(f"pass {number}")
            marker = session.statistics(name, look=False)[0]
            seen.append((str(marker.mode), marker.hits))
            session.off(name, quiesce=quiesce)
            program.command("pass 1")
            assert not session.statistics(name, look=False)[0].mode

    assert seen == [("jump", number) for number in range(6)]
    assert not turns


@pytest.mark.parametrize("mode", ["jump", "int3"])
def test_all_usdt_probes_take_no_turn_either_and_count_anew_each_time(
    target: Callable, turns: list[Turns], mode: str
) -> None:
    program = target("truth_usdt")
    before = code_of(program)
    passes: list[int] = []
    hits: list[dict[str, int]] = []
    with markerjit.attach(program.pid) as session:
        for number in range(7):
            if number == 3:
                turns.clear()
            session.on("truth:*", mode=mode)
            program.ask(f"run {number}")
            statuses = session.statistics("truth:*", look=False)
            assert {str(marker.mode) for marker in statuses} == {mode}
            hits.append({marker.name.partition(":")[2]: marker.hits for marker in statuses})
            passes.append(number)
            session.off("truth:*")
            assert code_of(program) == before
            counts = program.ask("run 2")
            assert (counts["turns_raised"], counts["guarded_raised"]) == (0, 0)

    for name in ("turn", "guarded", "values"):
        assert [of_switch[name] for of_switch in hits] == passes
    assert not turns


def test_a_child_of_a_fork_takes_none_while_its_parents_table_is_the_same(
    target: Callable, turns: list[Turns]
) -> None:
    program = target("truth_usdt")
    with markerjit.attach(program.pid) as parent:
        parent.on("truth:turn")
        parent.off("truth:turn")
        child = int(program.command("child").removeprefix("ready pid="))
        hits = []
        with markerjit.attach(child) as session:
            for number in range(6):
                if number == 3:
                    turns.clear()
                session.on("truth:*")
                program.ask(f"run {number}")  # the child goes on with the commands
                (status,) = session.status("truth:turn", look=False)
                hits.append(status.hits)
                session.off("truth:*")
            of_child = len(turns)
            parent.on("truth:values")
            turns.clear()
            session.on("truth:*")
            session.off("truth:*")
            program.command("quit")
        parent.off("truth:values")

    assert hits == [*range(6)]
    assert of_child == 0
    assert turns


def test_many_markers_are_noted_by_one_write(
    target: Callable, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = target("truth_usdt")
    written: list[int] = []
    write = FileStore.write

    def writing(self: FileStore, offset: int, data: bytes) -> None:
        written.append(offset)
        write(self, offset, data)

    with markerjit.attach(program.pid) as session:
        for number in range(5):
            if number == 3:
                monkeypatch.setattr(FileStore, "write", writing)
            session.on("truth:*")
            session.off("truth:*")
        arena = session._target.seen.arena
        assert arena
        entries = arena.geometry.markers
        noted = [each for each in written if entries.offset <= each < entries.end]

    assert len(noted) == 4  # two on, two off: of five markers


def test_a_marker_whose_hits_go_on_is_noted_as_it_is(target: Callable, turns: list[Turns]) -> None:
    """What the entry said of it before counts for the next switch, whoever made that."""
    program = target("truth_usdt")
    with markerjit.attach(program.pid) as session:
        for _ in range(4):
            session.on("truth:*")
            program.ask("run 3")
            session.off("truth:*")
    with markerjit.attach(program.pid) as other:
        statuses = {marker.name: marker for marker in other.status("truth:*")}

    assert (statuses["truth:turn"].hits, statuses["truth:turn"].total) == (3, 12)
    assert not any(marker.mode or marker.since for marker in statuses.values())


def test_the_child_of_a_fork_in_between_keeps_its_code(target: Callable) -> None:
    """Its pages are its parent's until one of them is written."""
    program = target("truth_family")
    with markerjit.attach(program.pid) as session:
        for _ in range(4):
            session.on("truth_family")
            session.off("truth_family")
        child = int(program.command("keep").split("=")[1])
        of_child = text_of(child)

        session.on("truth_family")

        assert text_of(child) == of_child
        assert text_of(program.pid) != of_child
        session.off("truth_family")
        assert text_of(program.pid) == of_child
        program.command("child quit")


def test_code_that_is_mapped_without_an_object_takes_a_turn_and_data_does_not(
    target: Callable, turns: list[Turns]
) -> None:
    """A heap that grows is no reason to look again."""
    program = target("truth_dlopen")
    of_kind: dict[int, int] = {}
    with markerjit.attach(program.pid) as session, markerjit.attach(program.pid) as other:
        for _ in range(3):
            session.on("truth_host")
            session.off("truth_host")
        for protection in (mmap.PROT_READ | mmap.PROT_WRITE, mmap.PROT_READ | mmap.PROT_EXEC):
            before = Path(f"/proc/{program.pid}/maps").read_text()
            with other._switcher.turn() as turn:
                flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
                turn.caller().run([Call("mmap", SYS_MMAP, (0, 4096, protection, flags, -1, 0))])
            assert Path(f"/proc/{program.pid}/maps").read_text() != before
            turns.clear()

            session.on("truth_host")
            session.off("truth_host")

            of_kind[protection & mmap.PROT_EXEC] = len(turns)

    assert of_kind[0] == 0
    assert of_kind[mmap.PROT_EXEC] > 0


def test_data_that_is_mapped_otherwise_is_for_a_turn_to_judge(
    target: Callable, turns: list[Turns]
) -> None:
    """The native part sees that the mapping of a slot is another one, and refuses."""
    program = target("truth_dlopen")
    with markerjit.attach(program.pid) as session, markerjit.attach(program.pid) as other:
        for _ in range(3):
            session.on("truth_host")
            session.off("truth_host")
        (slot,) = {site.slot for site in session.sites("truth_host")}
        page = slot // mmap.PAGESIZE * mmap.PAGESIZE

        def protect(protection: int) -> None:
            with other._switcher.turn() as turn:
                words = page, mmap.PAGESIZE, protection
                turn.caller().run([Call("mprotect", SYS_MPROTECT, words)])

        protect(mmap.PROT_READ)
        turns.clear()
        session.on("truth_host")
        taken = len(turns)
        protect(mmap.PROT_READ | mmap.PROT_WRITE)

        assert taken == 1
        assert [str(marker.mode) for marker in session.status("truth_host")] == ["jump"]


def test_it_makes_few_calls(target: Callable) -> None:
    program = target("truth_threads", "1")
    with switched_thrice(program.pid) as session:
        on = calls_of(lambda: session.on(LOOP))
        off = calls_of(lambda: session.off(LOOP))

    assert max(on, off) < MOST_CALLS


def test_any_other_argument_takes_a_turn(target: Callable, turns: list[Turns]) -> None:
    program = target("truth_threads", "1")
    with switched_thrice(program.pid) as session:
        turns.clear()

        session.on(LOOP, force=True)
        session.off(LOOP, force=True)

    assert len(turns) == 2


def test_a_process_is_asked_to_register_for_fences_by_the_first_switch_alone(
    target: Callable, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = target("truth_threads", "1")
    registered: list[int] = []

    class RecordingPart:
        """The native part, and what it was given of the process."""

        def __getattr__(self, name: str) -> object:
            return getattr(native_part, name)

        def mj_apply(self, process: native.NativeTarget, *arguments: object) -> int:
            registered.append(process.is_registered)
            return int(native_part.mj_apply(process, *arguments))

    native_part = native.library()
    monkeypatch.setattr(native, "library", RecordingPart)
    with markerjit.attach(program.pid) as session:
        for _ in range(4):
            session.on(LOOP, quiesce="membarrier")
            session.off(LOOP, quiesce="membarrier")
    with markerjit.attach(program.pid) as session:
        session.on(LOOP, quiesce="membarrier")
        session.off(LOOP)

    assert registered[:8] == [0] + [1] * 7
    assert registered[8:] == [0, 0]


def test_a_process_that_is_stopped_is_refused_as_by_an_ordinary_switch(target: Callable) -> None:
    program = target("truth_threads", "1")
    with markerjit.attach(program.pid) as session:
        for _ in range(3):
            session.on(LOOP, quiesce="membarrier")
            session.off(LOOP, quiesce="membarrier")
        os.kill(program.pid, signal.SIGSTOP)
        wait_until(lambda: states_of_threads(program.pid) == {"T"}, "the stop")

        # The short way has tried, and let it go: the look of the ordinary one may come before the
        # process stands again. Then it is told by the borrowing that fails.
        with pytest.raises(Refused, match=r"stopped \(SIGSTOP\)"):
            session.on(LOOP, quiesce="membarrier")

        os.kill(program.pid, signal.SIGCONT)
        session.on(LOOP, quiesce="membarrier")
        assert [str(marker.mode) for marker in session.status(LOOP)] == ["jump"]


def test_another_controller_that_records_is_in_the_way(target: Callable) -> None:
    program = target("truth_threads", "1")
    with (
        switched_thrice(program.pid) as session,
        markerjit.attach(program.pid) as other,
        other.trace(LOOP),
        pytest.raises(Refused, match="is recorded by a trace"),
    ):
        session.on(LOOP)


def test_it_waits_for_another_controller_and_sees_what_that_has_done(
    target: Callable, turns: list[Turns]
) -> None:
    program = target("truth_threads", "1")
    with switched_thrice(program.pid) as session, markerjit.attach(program.pid) as other:
        other.on("*")
        session.off(LOOP)
        assert {m.name for m in session.statistics() if not m.mode} == {LOOP}
        turns.clear()

        session.on(LOOP)

        assert len(turns) == 1
        assert all(marker.mode for marker in session.statistics())


def test_what_is_mapped_meanwhile_takes_a_turn(target: Callable, turns: list[Turns]) -> None:
    program = target("truth_dlopen")
    with markerjit.attach(program.pid) as session:
        for _ in range(3):
            session.on("truth_host")
            session.off("truth_host")
        turns.clear()
        assert program.ask(f"load {os.path.dirname(program.path)}/truth_plugin.so")["ok"] == 1

        session.on("truth_host")
        session.off("truth_host")

    assert len(turns) == 2


@pytest.mark.parametrize("switch", ["on", "off"])
def test_an_error_is_that_of_an_ordinary_switch(target: Callable, switch: str) -> None:
    program = target("truth_threads", "1")
    status = Path(f"/proc/{program.pid}/status")
    with switched_thrice(program.pid) as session:
        if switch == "off":
            session.on(LOOP)
        command = [sys.executable, "-c", SEIZE, str(program.pid)]
        with Limited(command, stdin=subprocess.PIPE) as tracer:
            wait_until(lambda: f"TracerPid:\t{tracer.pid}" in status.read_text(), "a tracer")

            with pytest.raises(NotPermitted, match="is being traced by process"):
                getattr(session, switch)(LOOP)


def test_after_the_end_of_a_session_it_is_refused(target: Callable) -> None:
    program = target("truth_threads", "1")
    with switched_thrice(program.pid) as session:
        pass

    with pytest.raises(markerjit.MarkerError, match="attach again"):
        session.on(LOOP)
