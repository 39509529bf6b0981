"""What is repaired, what is left alone, and what is never forgotten."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import markerjit
from markerjit.arena.journal import Journal
from markerjit.arena.pack import pack
from markerjit.model import Edit, RemoteAddress
from markerjit.session import target as target_module
from tests.support.timing import Limited

pytestmark = pytest.mark.user

ROOT = Path(__file__).resolve().parents[2]

# A process with markers of its own that is also the controller of another one.
CONTROLLER = """
    import ctypes, os, sys
    import markerjit
    library = ctypes.CDLL(sys.argv[1])
    with markerjit.attach(int(sys.argv[2])) as session:
        session.enable("*")
        print("ready", flush=True)
        sys.stdin.readline()
        mine = open(sys.argv[3], "w+")  # takes the lowest number that is free
        session.disable("*")
        mine.seek(0, os.SEEK_END)
        print(mine.tell(), flush=True)
"""


def test_the_arena_that_a_controller_holds_of_another_process_is_left_to_it(
    target: Callable, build: Path, tmp_path: Path
) -> None:
    program = target("truth_threads", "1")
    command = [sys.executable, "-c", textwrap.dedent(CONTROLLER), str(build / "truth_plugin.so")]
    controller = Limited(
        [*command, str(program.pid), str(tmp_path / "mine")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    try:
        assert controller.stdout and controller.stdin
        assert controller.stdout.readline() == "ready\n"

        repaired = markerjit.repair(controller.pid)

        print("", file=controller.stdin, flush=True)
        assert not repaired.anything
        assert controller.stdout.readline() == "0\n"
        assert controller.wait() == 0
    finally:
        controller.kill()
        controller.communicate()
    with markerjit.attach(program.pid) as session:
        assert all(marker.mode is None for marker in session.statistics())


def orphan(pid: int) -> None:
    """A trace that is killed in the middle."""
    script = f"""
        import os, signal, markerjit
        with markerjit.attach({pid}) as session, session.trace("truth_loop") as stream:
            os.kill(os.getpid(), signal.SIGKILL)
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script)],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        check=False,
    )
    assert done.returncode == -9


def test_an_orphan_that_cannot_be_switched_off_now_is_not_forgotten(
    target: Callable, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = target("truth_threads", "2", "--rate", "1000")
    orphan(program.pid)

    with markerjit.attach(program.pid) as session:
        with monkeypatch.context() as patch:
            patch.setattr(session._switcher, "switch", refuse)
            with pytest.raises(markerjit.Refused):
                session.enable("truth_birth")
        status = session.arena()
        assert status is not None
        assert status.to_mend is not None

        session.enable("truth_birth")

        modes = {marker.name: marker.mode for marker in session.statistics()}
        assert modes["truth_loop"] is None
        assert modes["truth_birth"] is not None
        assert session.arena().to_mend is None  # type: ignore[union-attr]


def refuse(*_: object) -> None:
    raise markerjit.Refused("not now", try_again=True)


def test_an_open_journal_is_offered_whoever_left_it_and_lives(target: Callable) -> None:
    program = target("truth_threads", "1")

    with markerjit.attach(program.pid) as session:
        session.enable("*")
        arena = session._target.seen.arena
        assert arena
        Journal(arena).open(b"")  # as after a change that could not be taken back
        status = session.arena()
        assert status is not None
        assert status.abandoned
        with pytest.raises(markerjit.Refused, match=f"markerjit repair {program.pid}"):
            session.disable("*")

        markerjit.repair(program.pid)

        session.disable("*")


def test_a_stream_that_is_polled_keeps_its_lease(target: Callable) -> None:
    program = target("truth_threads", "1", "--rate", "100")

    with markerjit.attach(program.pid) as session, session.trace("truth_loop") as stream:
        assert session._target.seen.arena
        claimed = session._target.seen.arena.control.now().lease_ns

        stream.poll()

        assert session._target.seen.arena.control.now().lease_ns > claimed


def hide(monkeypatch: pytest.MonkeyPatch, marker: str) -> None:
    """From now on nobody finds the sites of a marker."""
    discover = target_module.discover_process

    def discover_others(*args: Any) -> Any:
        objects = discover(*args)
        return objects._replace(
            sites=tuple(site for site in objects.sites if site.marker != marker)
        )

    monkeypatch.setattr(target_module, "discover_process", discover_others)


def test_a_place_of_no_marker_that_is_known_is_put_back_by_what_the_table_says(
    target: Callable, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As of a site that only the controller knew how to find."""
    program = target("truth_threads", "1")
    with markerjit.attach(program.pid) as session:
        (site,) = session.sites("truth_loop")
        before = session.read(site.address, 2)
        session.enable("truth_loop")
        assert session._target.seen.arena is not None
        count = session._target.seen.arena.count_probe(preserving=True).to_bytes(8, "little")
        head = Edit(RemoteAddress(site.address + 1), b"\5", b"\0", "", True)
        probe = Edit(site.slot, count, bytes(8), "", False, 1)  # never written
        Journal(session._target.seen.arena).open(pack([head, probe]))
        hide(monkeypatch, "truth_loop")
        repaired = markerjit.repair(program.pid)

        assert (repaired.journal, repaired.written) == ("rolled back", 1)
        assert not repaired.left_alone
        assert session.read(site.address, 2) == before
        assert Journal(session._target.seen.arena).left() is None


@pytest.mark.parametrize("slot", [0, 0xBAD0])
def test_a_place_whose_slot_has_no_probe_of_ours_is_left_alone(
    target: Callable, monkeypatch: pytest.MonkeyPatch, slot: int
) -> None:
    """Another object may have been loaded there since."""
    program = target("truth_threads", "1", "--paused")  # nobody is in the marker's body
    with markerjit.attach(program.pid) as session:
        (site,) = session.sites("truth_loop")
        session.enable("truth_loop")
        session.disable("truth_loop")
        assert session._target.seen.arena is not None
        session._target.memory.write(site.slot, slot.to_bytes(8, "little"))
        Journal(session._target.seen.arena).open(
            pack([Edit(RemoteAddress(site.address + 1), b"\0", b"\5", "", True)])
        )
        hide(monkeypatch, "truth_loop")
        repaired = markerjit.repair(program.pid)

        assert repaired.written == 0
        assert "belongs to no marker that is mapped now" in repaired.left_alone[0]
        session._target.memory.write(site.slot, bytes(8))
