"""Objects that come and go while a session is attached: what is there is switched, what is gone is
forgotten, and what stands in its place is never written."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import markerjit
from markerjit import Mode
from tests.support.choice import spacing
from tests.support.native_calls import WRITE, just_before
from tests.support.processes import text_of

MODES = [Mode.JUMP, Mode.INT3]


def modes(session: markerjit.Session) -> dict[str, Mode | None]:
    return {statistic.name: statistic.mode for statistic in session.statistics()}


def hits(session: markerjit.Session) -> dict[str, int]:
    return {statistic.name: statistic.total for statistic in session.statistics()}


def text_of_host(pid: int) -> dict[tuple[int, str], bytes]:
    return {key: text for key, text in text_of(pid).items() if "truth_plugin" not in key[1]}


def test_sites_of_two_copies_come_and_go_one_by_one(
    target: Callable, build: Path, tmp_path: Path
) -> None:
    program, other = target("truth_objects"), target("truth_objects")
    copy = shutil.copy(build / "truth_plugin.so", tmp_path / "copy.so")

    with markerjit.attach(program.pid) as session:
        for path in (build / "truth_plugin.so", copy):
            start = program.ask(f"load {path}")["start"]
            (site,) = session.sites("truth_plugin")
            assert (site.object.path, site.object.bias) == (str(path), start)
            session.enable("truth_*")
            program.command("call 5")
            program.command("unload")
            with pytest.raises(markerjit.UnknownMarker):
                session.sites("truth_plugin")
            session.disable("*")
        program.command(f"load {copy}")
        program.command("call 5")  # loaded anew, and so off

        # one marker by its name and format, so its hits add up over copies and loads
        assert hits(session)["truth_plugin"] == 10
        assert hits(session)["truth_host"] == program.ask("counts")["evaluated"] == 10
    assert other.ask("counts")["evaluated"] == 0


@pytest.mark.parametrize("mode", MODES)
def test_plugin_that_is_unloaded_during_a_trace_takes_nothing_else_with_it(
    target: Callable, build: Path, mode: Mode
) -> None:
    program = target("truth_objects")
    text = text_of_host(program.pid)
    program.command(f"load {build}/truth_plugin.so")

    with markerjit.attach(program.pid) as session:
        with session.trace("truth_*", mode=mode) as stream:
            program.command("call 10")
            program.command("unload")
        events = Counter(event.name for event in stream.drain())

        assert events == {"truth_host": 10, "truth_plugin": 10}
        assert modes(session) == {"truth_host": None}
        with session.trace("truth_host", mode=mode) as stream:
            program.command(f"load {build}/truth_plugin.so")
            program.command("call 3")
        assert len(stream.drain()) == 3
    assert text_of_host(program.pid) == text


@pytest.mark.parametrize("mode", MODES)
def test_plugin_that_is_loaded_again_during_a_trace_is_counted_once(
    target: Callable, build: Path, mode: Mode
) -> None:
    program = target("truth_objects")
    program.command(f"load {build}/truth_plugin.so")

    with markerjit.attach(program.pid) as session:
        with session.trace("truth_*", mode=mode) as stream:
            for _ in range(3):
                program.command("call 10")
                program.command("unload")
                program.command(f"load {build}/truth_plugin.so")
            program.command("call 10")
        events = Counter(event.name for event in stream.drain())

        assert events == hits(session)
        assert events["truth_host"] == 40
        assert events["truth_plugin"] in (10, 40)  # as loaded first, or followed
        assert modes(session) == {"truth_host": None, "truth_plugin": None}


@pytest.mark.parametrize("mode", MODES)
def test_plugin_that_is_loaded_and_unloaded_at_full_speed_while_all_is_switched(
    target: Callable, build: Path, mode: Mode
) -> None:
    program = target("truth_objects")
    text = text_of_host(program.pid)
    done = 0

    with markerjit.attach(program.pid) as session:
        enable = partial(session.enable, "truth_*", mode=mode)
        session.enable("truth_host", mode=mode)
        program.command(f"spin {build}/truth_plugin.so")
        for _ in range(100 // spacing(2)):
            for switch in (enable, lambda: session.disable("truth_*")):
                # While the loader is at work a site may look like anything, so any reason will do.
                with suppress(markerjit.MarkerError):
                    switch()
                    done += 1
        counts = program.ask("rest")
        session.disable("*")

        assert modes(session) == {"truth_host": None}
        assert hits(session)["truth_host"] == counts["evaluated"] > 0
        assert done > 0
        assert counts["loads"] > 20 // spacing(2)
    assert text_of_host(program.pid) == text


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("probe", ["count", "record"])
def test_plugin_that_is_loaded_anew_between_plan_and_write_gets_all_or_nothing(
    target: Callable, build: Path, monkeypatch: pytest.MonkeyPatch, probe: str, mode: Mode
) -> None:
    program = target("truth_objects")
    loading = f"load {build}/truth_plugin.so"
    start = program.ask(loading)["start"]

    def load_anew() -> None:
        program.command("unload")
        assert program.ask(loading)["start"] == start, "the test needs the same address"

    with markerjit.attach(program.pid) as session:
        session.enable("*", mode=mode, probe=probe)
        session.disable("*")  # the slots keep their data, and what is loaded anew has none
        just_before(monkeypatch, WRITE, load_anew)
        with suppress(markerjit.MarkerError):
            session.enable("*", mode=mode, probe=probe)
        program.command("call 5")
        session.enable("*", mode=mode, probe=probe)
        before = hits(session)["truth_plugin"]
        program.command("call 5")
        assert hits(session)["truth_plugin"] == before + 5
        session.disable("*")


# ---- something else at the same address --------------------------------------------------------


def occupying(program: Any) -> Callable[[], None]:
    def occupy() -> None:
        assert program.ask("occupy") == {"ok": 1}

    return occupy


@pytest.mark.parametrize("switch", ["on", "off", "count to record"])
def test_what_is_mapped_in_a_plugins_place_between_plan_and_write_is_not_written(
    target: Callable, build: Path, monkeypatch: pytest.MonkeyPatch, switch: str
) -> None:
    program = target("truth_objects")
    program.command(f"load {build}/truth_plugin.so")

    with markerjit.attach(program.pid) as session:
        session.enable("truth_host")  # the runtime is there: the only write left is the plan
        if switch != "on":
            session.enable("truth_plugin")
        just_before(monkeypatch, WRITE, occupying(program))
        with pytest.raises(markerjit.MarkerError) as caught:
            if switch == "off":
                session.disable("*")
            else:
                session.enable("*", probe="record" if switch != "on" else "count")

        assert program.ask("spoiled") == {"bytes": 0}
        assert isinstance(caught.value, markerjit.Refused), caught.value
        assert caught.value.try_again
        assert modes(session) == {"truth_host": Mode.JUMP}  # all or nothing
        session.disable("*")
    assert program.ask("spoiled") == {"bytes": 0}


@pytest.mark.parametrize("mode", MODES)
def test_what_is_mapped_in_a_plugins_place_later_is_never_written(
    target: Callable, build: Path, mode: Mode
) -> None:
    program = target("truth_objects")
    program.command(f"load {build}/truth_plugin.so")

    with markerjit.attach(program.pid) as session:
        with session.trace("truth_*", mode=mode) as stream:
            program.command("call 10")
            occupying(program)()
        events = Counter(event.name for event in stream.drain())
        with pytest.raises(markerjit.UnknownMarker):
            session.disable("truth_plugin")
        session.enable("*", mode=mode)
        session.disable("*")

    assert events == {"truth_host": 10, "truth_plugin": 10}
    assert program.ask("spoiled") == {"bytes": 0}


def test_breakpoint_of_the_programs_own_where_one_of_ours_was_is_its_own(
    target: Callable, build: Path
) -> None:
    program = target("truth_objects")
    start = program.ask(f"load {build}/truth_plugin.so")["start"]

    with markerjit.attach(program.pid) as session:
        session.enable("truth_*", mode=Mode.INT3)
        (site,) = session.sites("truth_plugin")
        program.command("call 3")
        occupying(program)()
        session.disable("*")  # by which the plugin is known to have gone

        assert program.ask(f"trap {site.address - start}") == {"ok": 1}
        assert program.ask("counts")["own_traps"] == 1
