"""Programs that fork, vfork and become others: their children have the code and share the arena,
and still no process is counted as another, and none comes to harm."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import markerjit
from markerjit import Mode
from tests.support.native_calls import BORROW, WRITE, just_before
from tests.support.processes import text_of
from tests.support.timing import wait_until, within

FAMILIES = [
    ("truth_family", Mode.JUMP),
    ("truth_family", Mode.INT3),
    ("truth_family_nop", Mode.NOP),
    ("truth_family_nop", Mode.INT3),
    ("truth_family_pointer", Mode.POINTER),
]
BUILDS = ["truth_family", "truth_family_nop", "truth_family_pointer"]
in_every_mode = pytest.mark.parametrize(("build_name", "mode"), FAMILIES)


def seen_and_lost(session: markerjit.Session, events: list[markerjit.Event]) -> int:
    (status,) = session.statistics()
    assert status.hits == len(events) + status.lost
    return status.total


def fields_of(events: list[markerjit.Event], name: str) -> set[object]:
    return {event.fields[name] for event in events}


# ---- fork ---------------------------------------------------------------------------------------


@in_every_mode
def test_family_is_forked_while_it_is_traced_and_only_the_first_is_seen(
    target: Callable, build_name: str, mode: Mode
) -> None:
    program = target(build_name)

    with markerjit.attach(program.pid) as session:
        with session.trace("truth_family", mode=mode) as stream:
            for _ in range(5):
                counts = program.ask("grow 3 20")
        events = stream.drain()

        assert counts["bad"] == 0
        assert counts["other"] == 5 * 8 * 20
        assert seen_and_lost(session, events) == counts["first_evaluated"] == counts["first"] == 200
    assert fields_of(events, "pid") == {event.tid for event in events} == {program.pid}


@in_every_mode
def test_families_are_forked_while_the_marker_is_switched(
    target: Callable, build_name: str, mode: Mode
) -> None:
    program = target(build_name)
    text = text_of(program.pid)

    program.command("spin")
    with markerjit.attach(program.pid) as session:
        for _ in range(50):
            session.enable("truth_family", mode=mode, probe="record")
            session.disable("truth_family")
        session.enable("truth_family", mode=mode)
        before = program.ask("counts")["first_evaluated"]
        wait_until(lambda: program.ask("counts")["first_evaluated"] > before + 10, "more turns")
        counts = program.ask("rest")
        session.disable("truth_family")
        (status,) = session.statistics()

    assert counts["bad"] == 0
    assert status.total == counts["first_evaluated"] > 10
    assert counts["other"] > 10
    assert text_of(program.pid) == text


@in_every_mode
def test_child_is_switched_off_and_traced_by_its_own_pid(
    target: Callable, build_name: str, mode: Mode
) -> None:
    program = target(build_name)
    text = text_of(program.pid)

    with markerjit.attach(program.pid) as session:
        with session.trace("truth_family", mode=mode) as stream:
            child_pid = int(program.command("keep").split("=")[1])
            with markerjit.attach(child_pid) as child:
                (inherited,) = child.statistics()
                program.command("child pass 10")
                child.disable("*")
                assert text_of(child_pid) == text
                program.command("child pass 10")
                with child.trace("*", mode=mode) as child_stream:
                    program.command("child grow 2 10")
                    program.command("grow 2 10")
                of_child = child_stream.drain()
                child_hits = seen_and_lost(child, of_child)
            assert text_of(child_pid) == text
        of_parent = stream.drain()
        counts = program.ask("counts")

        assert seen_and_lost(session, of_parent) == counts["first_evaluated"] == 20
    assert (inherited.mode, inherited.probe, inherited.hits) == (mode, "inherited", 0)
    # ten of its evaluations were for the parent's probe, which does nothing in a child
    assert child_hits == counts["kept_evaluated"] - 10 == 20
    assert fields_of(of_parent, "pid") == {event.tid for event in of_parent} == {program.pid}
    assert fields_of(of_child, "pid") == {event.tid for event in of_child} == {child_pid}
    assert program.command("child quit") == "child status=0"
    assert text_of(program.pid) == text


# ---- vfork --------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", [Mode.JUMP, Mode.INT3])
def test_switch_while_threads_vfork_and_exec_is_done_or_to_be_tried_again(
    target: Callable, mode: Mode
) -> None:
    program = target("truth_vfork", "2")
    text = text_of(program.pid)
    done: Counter[str] = Counter()

    with markerjit.attach(program.pid) as session:
        session.enable("*", mode=mode)
        program.command("resume")
        for turn in range(60):
            try:
                if turn % 2:
                    session.enable("*", mode=mode, probe=("count", "record")[turn // 2 % 2])
                else:
                    session.disable("*")
                done["done"] += 1
            except markerjit.Refused as refused:
                assert refused.try_again, refused
                done["refused"] += 1
        counts = program.ask("pause")
        session.disable("*")
        (status,) = session.statistics()

    assert counts["bad"] == 0
    assert counts["children"] == counts["parents"] > 0
    assert status.total == counts["evaluated"]
    assert done["done"] > 0
    assert text_of(program.pid) == text


def test_child_of_vfork_shares_the_memory_and_is_seen_like_a_thread(target: Callable) -> None:
    program = target("truth_vfork", "1")

    with markerjit.attach(program.pid) as session:
        with session.trace("*") as stream:
            program.command("resume")
            wait_until(lambda: program.ask("counts")["children"] > 20, "children")
            counts = program.ask("pause")
        events = stream.drain()

        assert seen_and_lost(session, events) == counts["evaluated"]
    who = Counter(event.fields["who"] for event in events)
    assert who == {0: counts["parents"], 1: counts["children"]}


# ---- exec ---------------------------------------------------------------------------------------


def test_trace_of_a_program_that_becomes_another_ends(target: Callable, build: Path) -> None:
    program = target("truth_fork")
    seen: list[Any] = []

    with markerjit.attach(program.pid) as session:
        with session.trace("truth_parent") as stream:
            program.command("fork 1")
            assert program.command(f"exec {build}/truth_fork").startswith("ready")
            text = text_of(program.pid)
            program.command("fork 1")  # is nobody's to be seen
            too_late = threading.Timer(10, stream.stop)
            too_late.start()
            seen.extend(stream)
            too_late.cancel()
            assert stream.target_ended
        with pytest.raises(markerjit.MarkerError, match=rf"process {program.pid} "):
            session.enable("truth_parent")

    assert [event.fields["turn"] for event in seen] == [1]
    assert text_of(program.pid) == text
    with markerjit.attach(program.pid) as session:
        with session.trace("truth_parent") as stream:
            program.command("fork 1")
        assert [event.fields["turn"] for event in stream.drain()] == [2]
    assert text_of(program.pid) == text


@pytest.mark.parametrize("call", [WRITE, BORROW])
def test_program_that_becomes_another_between_plan_and_write_is_not_touched(
    target: Callable, build: Path, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    program = target("truth_fork")

    def become() -> None:
        assert program.command(f"exec {build}/truth_threads 1 --rate 100").startswith("ready")
        become.text = text_of(program.pid)  # type: ignore[attr-defined]

    with markerjit.attach(program.pid) as session:
        if call == WRITE:
            session.enable("truth_parent")
        just_before(monkeypatch, call, become)
        with pytest.raises(markerjit.MarkerError, match=rf"process {program.pid} "):
            within(20, lambda: session.enable("truth_*"))

    assert "memfd:markerjit" not in Path(f"/proc/{program.pid}/maps").read_text()
    assert text_of(program.pid) == become.text  # type: ignore[attr-defined]
    assert program.ask("counts")["threads"] == 1
