"""A process with an arena of another version of markerjit: an older one is switched off, repaired,
and a new one put beside it; a newer one is looked at."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator

import pytest

import markerjit
from markerjit import Mode
from markerjit.abi import CONTROL, JOURNAL_OPEN, MAGIC, VERSION, JournalHead
from markerjit.arena.arena import Arena
from markerjit.arena.pack import pack
from markerjit.arena.trap import install_trap
from markerjit.model import Edit, RemoteAddress, Site
from markerjit.proc.owner import ourselves
from tests.support.arena_images import load_image, put_into
from tests.support.commands import cli, one_line
from tests.support.programs import Target
from tests.support.shortage import open_descriptors
from tests.support.timing import wait_until

pytestmark = pytest.mark.live

MARKER = "truth_loop"
OFF_FIRST = r"arena of version 4, .* truth_loop is on .*markerjit off \d+ ends that"


class Older:
    """A process in which a controller of version 4 has switched a marker on, to count."""

    def __init__(self, program: Target) -> None:
        self.pid = program.pid
        with markerjit.attach(program.pid) as session:
            memory = session._target.memory
            with session._switcher.turn() as turn:
                self.arena = put_into(program.pid, memory, turn.caller(), load_image(4))
            (self.site,) = session.sites(MARKER)
            self.marker = next(
                int(entry.id)
                for entry in self.arena.markers.entries()
                if entry.name == MARKER.encode() and entry.since
            )
            data = self.arena.markers.address(self.marker)
            memory.write(RemoteAddress(self.site.slot + 8), word(data))
            memory.write(self.site.slot, word(self.arena.count_probe(preserving=False)))
            memory.write(self.site.address, b"\xeb\0")

    def by_breakpoint(self) -> None:
        """It goes on by a breakpoint."""
        with markerjit.attach(self.pid) as session:
            with session._switcher.turn() as turn:
                install_trap(self.arena, turn.caller())
            assert self.arena.patches.at(self.site.address) is None, "it was linked elsewhere"
            place = old_place(self.arena, self.site.address)
            entry = word(self.site.address) + word(self.site.body.entry) + bytes(12) + b"\1\0\0\0"
            self.arena.store.write(place, entry)
            session._target.memory.write(self.site.address, b"\xcc\0")

    def leave_open(self, *edits: Edit) -> None:
        """A change is in its journal that its controller did not end."""
        self.arena.store.write(self.arena.geometry.edits.offset, bytes(pack(edits)))
        owner = ourselves().entry()
        owner.pid, owner.started = 1, 1
        head = JournalHead(JOURNAL_OPEN, len(edits), int(time.time()), 0, owner)
        self.arena.store.write(self.arena.control.offset("journal"), bytes(head))


def word(value: int) -> bytes:
    return value.to_bytes(8, "little")


def old_place(arena: Arena, address: int) -> int:
    """Where trap.c of version 4 begins to look."""
    table = arena.geometry.patches
    return table.at((address * 0x9E3779B97F4A7C15 % (1 << 64) >> 32) % table.entries)


@pytest.fixture
def older(target: Callable) -> Iterator[Older]:
    """The target is there to the end, which its fixture sees to."""
    older = Older(target("truth_threads-1", "2", "--rate", "1000"))
    yield older
    older.arena.close()


def head_of(pid: int, site: Site) -> bytes:
    with markerjit.attach(pid) as session:
        return session.read(site.address, 2)


def wait_for_hits(pid: int) -> None:
    """Wait until the marker is hit again: it is on, and the program runs."""
    with markerjit.attach(pid) as session:
        before = session.statistics(MARKER)[0].hits
        wait_until(lambda: session.statistics(MARKER)[0].hits > before, "a hit")


# ---- an older one --------------------------------------------------------------------------------


def test_markers_of_an_older_arena_are_shown_as_our_own(older: Older) -> None:
    for command in ("list", "status"):
        done = cli(command, older.pid)

        assert (done.returncode, done.stderr) == (0, "")
        assert re.search(r"truth_loop .*on \(jump, count\)", done.stdout)
    wait_for_hits(older.pid)
    with markerjit.attach(older.pid) as session:
        status = session.arena()
        assert status is not None
        assert status.version == 4


def test_nothing_is_switched_on_beside_what_is_on_in_an_older_arena(older: Older) -> None:
    one_line(cli("on", older.pid, MARKER), OFF_FIRST)
    with markerjit.attach(older.pid) as session, pytest.raises(markerjit.Refused, match=OFF_FIRST):
        session.enable("truth_birth")

    wait_for_hits(older.pid)


def test_an_older_arena_is_switched_off_and_ours_put_beside_it(older: Older) -> None:
    assert cli("off", older.pid, "*").returncode == 0
    assert head_of(older.pid, older.site) == b"\xeb\5"
    entry = older.arena.markers.entry(older.marker)
    assert (entry.since, entry.mode, entry.by) == (0, 0, 0)

    with markerjit.attach(older.pid) as session:
        session.enable(MARKER)
        wait_for_hits(older.pid)
        with session.trace(MARKER) as events:
            assert next(iter(events)).name == MARKER
        session.enable(MARKER, mode=Mode.INT3)
        wait_for_hits(older.pid)
        session.disable(MARKER)
        status = session.arena()
        assert status is not None
        assert status.version == VERSION
    assert head_of(older.pid, older.site) == b"\xeb\5"


def test_a_breakpoint_of_an_older_arena_is_switched_off_and_ours_passes_on_to_its_handler(
    older: Older,
) -> None:
    older.by_breakpoint()
    wait_for_hits(older.pid)
    with markerjit.attach(older.pid) as session:
        assert session.statistics(MARKER)[0].mode is Mode.INT3
        session.disable(MARKER)
        entry = older.arena.patches.at(older.site.address)
        assert entry is not None
        assert not entry.planted

        session.enable(MARKER, mode=Mode.INT3)
        assert session._target.seen.arena is not None
        ours = session._target.seen.arena
        assert ours.is_current
        old_action = ours.control.now().old_trap
        assert old_action.handler == older.arena.base + older.arena.entry.trap
        wait_for_hits(older.pid)

        # Where ours knows nothing, as in a child of a fork from before: the older one's finds it.
        index, _ = ours.patches.look().find(older.site.address)
        assert index is not None
        place, size = ours.geometry.patches.at(index), ours.geometry.patches.entry_size
        known = ours.store.read(place, size)
        ours.store.write(place, bytes(size))
        wait_for_hits(older.pid)
        ours.store.write(place, known)
        session.disable(MARKER)
    assert head_of(older.pid, older.site) == b"\xeb\5"


@pytest.mark.parametrize("done", [True, False])
def test_a_change_that_was_left_in_an_older_arena_is_repaired(older: Older, done: bool) -> None:
    head = RemoteAddress(older.site.address + 1)
    data = RemoteAddress(older.site.slot + 8)
    entry = word(older.arena.markers.address(older.marker))
    edits = [Edit(data, word(0), entry, "", False), Edit(head, b"\5", b"\0", "", True, 1)]
    if not done:
        count = word(older.arena.count_probe(preserving=False))
        edits.append(Edit(older.site.slot, count, word(0), "", False, 2))
    older.leave_open(*edits)
    one_line(cli("off", older.pid, "*"), f"run markerjit repair {older.pid}")

    repaired = markerjit.repair(older.pid)

    assert repaired.journal == ("finished" if done else "rolled back")
    assert not repaired.left_alone
    assert head_of(older.pid, older.site) == (b"\xeb\0" if done else b"\xeb\5")
    if done:
        wait_for_hits(older.pid)
    assert cli("off", older.pid).returncode == 0


# ---- a newer one ---------------------------------------------------------------------------------

NEWER = VERSION + 1
SENTENCE = f"holds an arena of version {NEWER}, which a newer markerjit has made"


@pytest.fixture
def program(target: Callable) -> Iterator[Target]:
    """One marker is on, put on by a newer version."""
    program = target("truth_threads", "2", "--rate", "1000")
    with markerjit.attach(program.pid) as session:
        session.enable(MARKER)
        assert session._target.seen.arena is not None
        session._target.seen.arena.control.write("version", NEWER)
        yield program
        session._target.seen.arena.control.write("version", VERSION)
        session.disable(MARKER)


def test_markers_of_a_newer_arena_are_shown(program: Target) -> None:
    for command in ("list", "status"):
        done = cli(command, program.pid)

        assert (done.returncode, done.stderr) == (0, "")
        assert re.search(r"truth_loop .*on \(jump, count\)", done.stdout)
    wait_for_hits(program.pid)


@pytest.mark.parametrize("command", [
    ("on",), ("off",), ("repair",), ("flight start",), ("flight dump", "-o", "never.txt"),
])  # fmt: skip
def test_it_is_not_switched(program: Target, command: tuple[str, ...]) -> None:
    name, *rest = command
    pattern = () if name in ("repair", "flight dump") else (MARKER,)

    one_line(cli(*name.split(), program.pid, *pattern, *rest), SENTENCE)


def test_a_session_refuses_to_switch_and_leaves_nothing_open(program: Target) -> None:
    before = open_descriptors()
    with markerjit.attach(program.pid) as session:
        assert session.has_runtime
        assert session.runtime_problem is None
        for switch in (
            session.enable, session.disable, session.plan, session.record,
            lambda pattern: session.flight(), lambda pattern: session.trace(pattern).__enter__(),
        ):  # fmt: skip
            with pytest.raises(markerjit.Refused, match=SENTENCE):
                switch(MARKER)
    assert open_descriptors() == before


@pytest.fixture
def beside(target: Callable) -> Iterator[tuple[markerjit.Session, Arena]]:
    """A session with an arena of our version, and one of a newer version that another controller
    is about to finish: it has no magic yet."""
    program = target("truth_threads", "2", "--rate", "1000")
    with markerjit.attach(program.pid) as session:
        session.enable(MARKER)
        session.disable(MARKER)
        with session._switcher.turn() as turn:
            newer = put_into(program.pid, turn.target.memory, turn.caller(), load_image(5))
        newer.control.write("magic", 0)
        newer.control.write("version", NEWER)
        yield session, newer
        newer.close()


def test_a_session_that_was_open_before_does_not_work_beside_a_newer_arena(
    beside: tuple[markerjit.Session, Arena],
) -> None:
    session, newer = beside
    newer.control.write("magic", MAGIC)

    for switch in (session.enable, session.disable, session.plan, session.record):
        with pytest.raises(markerjit.Refused, match=SENTENCE):
            switch(MARKER)
    status = session.arena()
    assert status is not None
    assert status.version == VERSION


def test_a_newer_arena_is_noticed_although_it_was_seen_in_the_making(
    beside: tuple[markerjit.Session, Arena],
) -> None:
    session, newer = beside
    session.statistics()
    before = session._target.seen.arena

    newer.control.write("magic", MAGIC)

    with pytest.raises(markerjit.Refused, match=SENTENCE):
        session.enable(MARKER)
    assert session._target.seen.arena is before


def test_a_trace_goes_on_to_its_end_while_an_arena_is_made_beside_its_own(target: Callable) -> None:
    program = target("truth_threads", "2", "--rate", "1000")
    with markerjit.attach(program.pid) as session, session.trace(MARKER) as events:
        with session._switcher.turn() as turn:
            other = put_into(program.pid, turn.target.memory, turn.caller(), load_image(5))
        assert next(iter(events)).name == MARKER
        other.close()
    with markerjit.View(program.pid) as view:
        assert view.statistics(MARKER)[0].mode is None


def test_what_is_no_arena_is_a_problem(program: Target) -> None:
    with markerjit.attach(program.pid) as session:
        assert session._target.seen.arena is not None
        store = session._target.seen.arena.store
        magic = store.read(CONTROL, 8)
        store.write(CONTROL, b"nonsense")
        done = cli("status", program.pid)
        store.write(CONTROL, magic)

    assert "not an arena of ours" in done.stderr
    assert "on (jump, another version's)" in done.stdout
