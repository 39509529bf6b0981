"""USDT probes of programs that nobody prepared: switched, traced, and off again byte for byte."""

from __future__ import annotations

from collections.abc import Callable

import pytest

import markerjit
from markerjit import Mode
from tests.support.programs import Target

pytestmark = pytest.mark.live


def code_of(program: Target) -> bytes:
    """All bytes of the program's own code, as they are now."""
    with markerjit.View(program.pid) as view:
        spans = [
            (each.start, each.end) for each in view._target.seen.maps
            if each.executable and each.path.endswith(program.path.name)
        ]  # fmt: skip
        return b"".join(view.read(start, end - start) for start, end in spans)


def test_probe_is_counted_and_off_again_byte_for_byte(target: Callable) -> None:
    program = target("truth_usdt")
    before = code_of(program)

    with markerjit.attach(program.pid) as session:
        session.enable("truth:turn")
        raised = program.ask("run 1000")["turns_raised"]
        (on,) = session.statistics("truth:turn")
        opened = code_of(program)
        session.disable("truth:turn")
        after = program.ask("run 500")
        (off,) = session.statistics("truth:turn")

    assert (on.mode, on.hits, on.probe) == (Mode.JUMP, 1000, "count")
    assert raised == 1
    assert opened != before
    assert (off.mode, after["turns_raised"]) == (None, 0)
    assert off.total == 1000
    assert code_of(program) == before


@pytest.mark.parametrize("mode", [Mode.JUMP, Mode.INT3])
def test_events_have_the_values_that_the_program_passed(target: Callable, mode: Mode) -> None:
    program = target("truth_usdt")

    with (
        markerjit.attach(program.pid) as session,
        session.trace("truth:*", mode=mode) as stream,
    ):
        counts = program.ask("run 100")
        events = list(stream.drain())
    by_name: dict[str, list[dict[str, object]]] = {}
    for event in events:
        by_name.setdefault(event.name, []).append(event.fields)

    assert counts["guarded"] == 100
    assert by_name.keys() == {"truth:turn", "truth:guarded", "truth:values"}
    assert by_name["truth:turn"] == [{"arg0": i, "arg1": i + 1} for i in range(100)]
    assert by_name["truth:guarded"] == [{"arg0": i} for i in range(100)]
    for i, fields in enumerate(by_name["truth:values"]):
        *numbers, address = fields.values()
        assert numbers == [-i, (i * 1000 + 32768) % 65536 - 32768, i + 0.5, i - 0.25, 7]
        assert isinstance(address, int)
    assert program.ask("counts")["turns_raised"] == 0


def test_thread_at_full_speed_is_switched_again_and_again(target: Callable) -> None:
    program = target("truth_usdt")
    before = code_of(program)
    program.command("resume")

    with markerjit.attach(program.pid) as session:
        for _ in range(100):
            session.enable("truth:spin")
            session.disable("truth:spin")
        session.enable("truth:spin")
        start = program.ask("counts")["spin"]
        while program.ask("counts")["spin"] < start + 1000:
            pass
        program.command("pause")
        (spin,) = session.statistics("truth:spin")
        session.disable("truth:spin")

    assert spin.hits >= 1000
    assert code_of(program) == before


def test_another_controller_switches_off_what_one_has_left_on(target: Callable) -> None:
    program = target("truth_usdt")
    before = code_of(program)
    with markerjit.attach(program.pid) as session:
        session.enable("truth:*")

    with markerjit.attach(program.pid) as other:
        assert {one.name for one in other.statistics() if one.mode} == {
            f"truth:{name}" for name in ("child", "guarded", "spin", "turn", "values")
        }
        other.disable("truth:*")

    assert code_of(program) == before
    assert program.ask("counts")["guarded_raised"] == 0


def test_use_of_a_semaphore_by_another_tool_survives(target: Callable) -> None:
    program = target("truth_usdt")

    with markerjit.attach(program.pid) as session:
        (probe,) = session.usdt("truth:guarded").probes
        semaphore = probe.states[0].site.recipe.semaphore
        session._target.memory.write(semaphore, (5).to_bytes(2, "little"))
        session.enable("truth:guarded")
        on = program.ask("counts")["guarded_raised"]
        session._target.memory.write(semaphore, (8).to_bytes(2, "little"))
        session.disable("truth:guarded")
        off = program.ask("counts")["guarded_raised"]

    assert (on, off) == (6, 7)


def test_child_of_a_fork_runs_on_and_records_nothing(target: Callable) -> None:
    program = target("truth_usdt")

    with markerjit.attach(program.pid) as session, session.trace("truth:child") as stream:
        answer = program.ask("fork 100")
        events = list(stream.drain())

    assert answer["children"] == 1
    assert events == []


def test_unknown_probe_is_named_with_its_nearest(target: Callable) -> None:
    program = target("truth_usdt")

    with markerjit.attach(program.pid) as session:
        with pytest.raises(markerjit.UnknownMarker, match="truth:turn"):
            session.enable("truth:turm")
        assert not session.has_runtime
