"""Heads that were opened and that no site explains: shown by status and doctor, repaired where it
is proved whose they are."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import markerjit
from markerjit import Mode, Site, StrayHead
from markerjit.abi import VERSION
from markerjit.arena.arena import Arena
from markerjit.model import RemoteAddress
from markerjit.session import target as target_module
from markerjit.session.strays import Remedy
from markerjit.sites import Objects
from tests.support.commands import cli, facts
from tests.support.programs import Target
from tests.support.timing import wait_until

pytestmark = pytest.mark.live

MARKER = "truth_loop"
MODES = [Mode.JUMP, Mode.INT3]


@pytest.fixture(params=MODES)
def opened(target: Callable, request: pytest.FixtureRequest) -> Iterator[tuple[Target, Site]]:
    """A program in which a marker is on."""
    program = target("truth_threads", "2", "--rate", "1000")
    with markerjit.attach(program.pid) as session:
        (site,) = session.sites(MARKER)
        session.enable(MARKER, mode=request.param)
    yield program, site


@pytest.fixture
def without_notes(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """From now on no notes are found in any process."""

    def take_away() -> None:
        monkeypatch.setattr(target_module, "discover_process", lambda *_: Objects((), (), ()))

    return take_away


def strays_of(pid: int) -> list[StrayHead]:
    with markerjit.View(pid) as view:
        return view.stray_heads()


def arena_of(session: markerjit.Session) -> Arena:
    arena = session._target.seen.arena
    assert arena is not None
    return arena


def head_of(pid: int, site: Site) -> bytes:
    with markerjit.View(pid) as view:
        return view.read(site.address, len(site.form.head))


def write(pid: int, address: int, data: bytes) -> None:
    with markerjit.attach(pid) as session:
        session._target.memory.write(RemoteAddress(address), data)


def test_a_head_that_a_site_explains_is_none(opened: tuple[Target, Site]) -> None:
    program, _ = opened

    assert strays_of(program.pid) == []
    assert "stray" not in cli("status", program.pid).stdout
    assert facts("status", program.pid)["stray_heads"] == []


def test_a_head_whose_note_is_gone_is_closed_by_repair(
    opened: tuple[Target, Site], without_notes: Callable, monkeypatch: pytest.MonkeyPatch
) -> None:
    program, site = opened
    without_notes()

    (stray,) = strays_of(program.pid)
    repaired = markerjit.repair(program.pid)

    assert stray.address == site.address
    assert stray.object == site.object.path
    assert stray.now == site.form.ways[stray.mode]
    assert (stray.before, stray.marker, stray.remedy) == (site.form.head, MARKER, Remedy.CLOSE)
    assert stray.by
    assert f"opened by {stray.mode}, by process {stray.by}" in stray.sentence
    assert (repaired.closed, repaired.forgotten, repaired.left_alone) == (1, 0, ())
    assert "1 stray head closed" in list(repaired.sentences())
    assert head_of(program.pid, site) == site.form.head
    assert strays_of(program.pid) == []
    assert not markerjit.repair(program.pid).anything
    monkeypatch.undo()
    with markerjit.attach(program.pid) as session:
        assert session.statistics(MARKER)[0].mode is None
        before = session.statistics(MARKER)[0].total
        session.enable(MARKER)
        wait_until(lambda: session.statistics(MARKER)[0].total > before, "a hit")


def test_a_head_whose_slot_does_not_prove_it_ours_is_left_alone(
    opened: tuple[Target, Site], without_notes: Callable
) -> None:
    program, site = opened
    with markerjit.View(program.pid) as view:
        probe = view.read(site.slot, 8)
    write(program.pid, site.slot, bytes(8))
    without_notes()

    (stray,) = strays_of(program.pid)
    repaired = markerjit.repair(program.pid)

    assert (stray.remedy, stray.marker, stray.by) == (Remedy.LEAVE, "", 0)
    assert not repaired.anything
    (reason,) = repaired.left_alone
    assert f"{site.address:#x}" in reason
    assert "may be another object's" in reason
    assert head_of(program.pid, site) == stray.now
    write(program.pid, site.slot, probe)


@pytest.mark.parametrize("opened", [Mode.JUMP], indirect=True)
def test_a_head_in_a_shared_mapping_is_left_alone(
    opened: tuple[Target, Site], without_notes: Callable, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would be closed in the file, for everybody."""
    program, site = opened
    without_notes()
    parse = target_module.parse_maps
    monkeypatch.setattr(
        target_module, "parse_maps",
        lambda text: tuple(
            mapping._replace(shared=mapping.shared or mapping.start <= site.address < mapping.end)
            for mapping in parse(text)
        ),
    )  # fmt: skip

    repaired = markerjit.repair(program.pid)

    assert repaired.closed == 0
    (reason,) = repaired.left_alone
    assert "shared mapping" in reason
    assert head_of(program.pid, site) == site.form.ways[Mode.JUMP]


@pytest.mark.parametrize("opened", [Mode.INT3], indirect=True)
def test_a_breakpoint_in_the_place_of_which_other_code_stands_is_forgotten(
    opened: tuple[Target, Site], without_notes: Callable
) -> None:
    program, site = opened
    program.command("pause")
    write(program.pid, site.address, b"\x90\x90")
    with markerjit.attach(program.pid) as session:
        session._target.memory.write(site.slot, bytes(8))
    without_notes()

    (stray,) = strays_of(program.pid)
    repaired = markerjit.repair(program.pid)

    assert (stray.now, stray.remedy) == (b"\x90\x90", Remedy.FORGET)
    assert (repaired.closed, repaired.forgotten) == (0, 1)
    with markerjit.attach(program.pid) as session:
        entry = arena_of(session).patches.at(site.address)
        assert entry and entry.gone and not entry.planted
        assert session.read(site.address, 2) == b"\x90\x90"
    assert strays_of(program.pid) == []


def test_what_an_unloaded_object_left_is_shown_and_forgotten(target: Callable, build: Path) -> None:
    program = target("truth_objects")
    program.command(f"load {build}/truth_plugin.so")
    with markerjit.attach(program.pid) as session:
        session.enable("truth_plugin", mode=Mode.INT3)
        (site,) = session.sites("truth_plugin")
    program.command("unload")
    advice = f"its code is gone; markerjit repair {program.pid} forgets it"

    shown = cli("status", program.pid).stdout
    (stray,) = facts("status", program.pid)["stray_heads"]
    findings = json.loads(cli("doctor", program.pid, "--json").stdout)

    line = f"stray head: {site.address:#x} (not mapped): head, opened by int3"
    assert line in shown
    assert advice in shown
    assert stray == {
        "address": site.address, "object": None, "mode": "int3", "now": None,
        "before": site.form.head.hex(), "marker": None, "by": None, "remedy": "forget",
        "advice": advice,
    }  # fmt: skip
    assert advice in json.dumps(findings)
    assert cli("repair", program.pid).stdout == "1 stray head forgotten, whose code is gone\n"
    assert facts("status", program.pid)["stray_heads"] == []
    program.command(f"load {build}/truth_plugin.so")
    with markerjit.attach(program.pid) as session:
        session.enable("truth_plugin")
        program.command("call 5")
        assert session.statistics("truth_plugin")[0].hits == 5


@pytest.mark.parametrize("opened", [Mode.JUMP], indirect=True)
def test_a_head_of_a_newer_arena_is_for_the_newer_markerjit(
    opened: tuple[Target, Site], without_notes: Callable
) -> None:
    program, site = opened
    with markerjit.attach(program.pid) as session:
        arena_of(session).control.write("version", VERSION + 1)
        without_notes()

        (stray,) = strays_of(program.pid)
        with pytest.raises(markerjit.Refused, match="which a newer markerjit has made"):
            markerjit.repair(program.pid)

        arena_of(session).control.write("version", VERSION)
    assert (stray.address, stray.remedy) == (site.address, Remedy.LEAVE)
    assert "newer markerjit" in stray.advice
    assert head_of(program.pid, site) == site.form.ways[Mode.JUMP]
