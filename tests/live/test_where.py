"""Questions that are asked in the process: what does not meet the condition is neither counted nor
recorded, and the program knows how much that is."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

import markerjit
from markerjit import Mode
from markerjit.abi import CONTROL, Control
from markerjit.arena.code import Places
from markerjit.model import RemoteAddress
from markerjit.probes import idle
from markerjit.remote import references
from markerjit.remote.calls import Call
from markerjit.ring.to_events import events
from tests.support.commands import cli, facts, one_line, python, running
from tests.support.processes import state_of, text_of
from tests.support.timing import wait_until

pytestmark = pytest.mark.live

TURNS = 1000
SYS_GETPID = 39
IN_C = """
#include <markerjit/probe.h>
MJ_COUNTER(calls);
void on_turn(struct mj_slot *slot, int i) { mj_count(&calls); }
"""
SECOND = """
import markerjit, sys
with markerjit.attach(int(sys.argv[1])) as session:
    session.enable(sys.argv[2], where=sys.argv[3])
    print(session._target.seen.arena.code.room.code)
"""
"""Another controller, which asks the same."""


@pytest.fixture(params=["jump", "nop", "pointer"])
def program(request: pytest.FixtureRequest, target: Callable) -> Any:
    return target(f"truth_modes-{request.param}")


def numbers(events: list[markerjit.Event]) -> list[int]:
    return [event.fields["i"] for event in events]  # type: ignore[misc]


def room_for_code(session: markerjit.Session) -> int:
    arena = session._target.seen.arena
    assert arena
    return arena.code.room.code


@pytest.mark.parametrize(
    ("where", "hits"),
    [
        ("i % 3 == 0", 334), ("i < 0", 0), ("i >= 0", TURNS), ("10 <= i < 20 or i == 999", 11),
        ("evaluated > 990", 10), ("float(i) / 4 == 0.25", 1), ("not i", 1),
        ('name == "truth_mode" and i < 5', 5), ('name == "another"', 0),
    ],
)  # fmt: skip
def test_what_meets_the_condition_is_counted(program: Any, where: str, hits: int) -> None:
    before = text_of(program.pid)
    with markerjit.attach(program.pid) as session:
        session.enable("truth_mode", where=where)
        answer = program.ask(f"run {TURNS}")
        (marker,) = session.statistics("truth_mode")
        session.disable("truth_mode")
        program.ask("run 10")
        (after,) = session.statistics("truth_mode")

    assert answer["evaluated"] == TURNS
    assert (marker.hits, marker.lost, marker.probe, marker.where) == (hits, 0, "count", where)
    assert (after.mode, after.total, after.where) == (None, hits, None)
    assert text_of(program.pid) == before


def test_what_meets_the_condition_is_recorded(program: Any) -> None:
    with markerjit.attach(program.pid) as session:
        with session.trace("truth_mode", where="i % 97 == 5 and evaluated != 6") as stream:
            (marker,) = session.statistics("truth_mode")
            program.ask(f"run {TURNS}")
        seen = list(stream.drain())

    assert (marker.probe, marker.where) == ("record", "i % 97 == 5 and evaluated != 6")
    assert numbers(seen) == [*range(5 + 97, TURNS, 97)]
    assert stream.statistics().lost == 0


def test_breakpoint_asks_too(target: Callable) -> None:
    program = target("truth_modes-jump")
    with markerjit.attach(program.pid) as session:
        session.enable("truth_mode", mode=Mode.INT3, where="i % 2 == 1")
        program.ask("run 100")

        assert session.statistics("truth_mode")[0].hits == 50


def test_question_stands_before_the_recorder_of_any_event(target: Callable) -> None:
    """A program that can have a child in its own memory has no recorders of its markers' own."""
    program = target("truth_follow")
    with markerjit.attach(program.pid) as session:
        with session.trace("truth_follow", where="who == 0 and pid > 0") as stream:
            program.ask("vfork 3")
        seen = list(stream.drain())
        with session.trace("truth_follow", where="who == 1") as none:
            program.ask("vfork 3")

    assert [event.fields["who"] for event in seen] == [0, 0, 0]
    assert list(none.drain()) == []


def test_question_about_a_number_beside_a_text(target: Callable) -> None:
    """The text is recorded only where it is asked for."""
    program = target("truth_texts")
    with markerjit.attach(program.pid) as session:
        with session.trace("texts_string") as stream:
            program.ask("pass 8")
        every = list(stream.drain())
        with session.trace("texts_string", where="at % 3 == 1") as stream:
            program.ask("pass 8")
        some = list(stream.drain())

    assert every
    chosen = [event.fields for event in every if event.fields["at"] % 3 == 1]  # type: ignore[operator]
    assert [event.fields for event in some] == chosen


PLACES = (
    "null", "small", "unmapped", "kernel", "last", "not_canonical", "no_access", "behind_file",
)  # fmt: skip
"""Of truth_texts: addresses at which nothing can be read."""


@pytest.mark.parametrize(
    ("name", "where", "places"),
    [
        ("texts_string", 's == "a text"', {"text"}),
        ("texts_string", 's.startswith("at") and at > 0', {"ends_at_gap"}),
        ("texts_string", '"gap" in s', {"ends_at_gap"}),
        ("texts_string", "s is None", {*PLACES}),
        ("texts_string", "len(s) == 0", {*PLACES, "empty", "empty_at_gap"}),
        ("texts_string", 's == ""', {"empty", "empty_at_gap"}),
        ("texts_string", "len(s) == 256", {"mebibyte"}),
        ("texts_string", 's[2:] in ("text", "end")', {"text"}),
        ("texts_string", 'name == s or s[:6] == "no end"', {"open_at_gap"}),
        ("texts_bounded", 's == "a te"', {"text"}),
        ("texts_bounded", "len(s) == n and s[:2] == 'no'", {"open_at_gap", "not_yet_read"}),
        ("texts_raw", 's == "a te"', {"text"}),
        ("texts_four", 's == "a te"', {"text"}),
        ("texts_four", 's == "a t"', set()),
    ],
)
@pytest.mark.parametrize("way", ["recorded", "counted", "careful"])
def test_texts_are_asked_as_they_are_recorded(
    target: Callable, name: str, where: str, places: set[str], way: str
) -> None:
    """With and without a bound, at all sorts of addresses, and no byte beside them is touched."""
    program = target("truth_texts")
    names = program.command("places").split()[1:]
    with markerjit.attach(program.pid) as session:
        if way == "counted":
            session.enable(name, where=where)
            answer = program.ask("pass 4")
            assert session.statistics(name)[0].hits == len(places)
        else:
            strings = "fast" if way == "recorded" else way
            with session.trace(name, where=where, strings=strings, fields="at") as stream:
                answer = program.ask("pass 4")
            met = {names[event.fields["at"]] for event in stream.drain()}  # type: ignore[index]
            assert met == places

    assert answer["bad"] == 0


def test_thread_is_asked_for_by_its_id(target: Callable) -> None:
    program = target("truth_crowd", "4")
    with markerjit.attach(program.pid) as session:
        with session.trace("crowd_turn") as stream:
            program.ask("run 5")
        tids = sorted({event.tid for event in stream.drain()})
        where = f"tid == {tids[1]} or {tids[2]} == tid"
        with session.trace("crowd_turn", where=where) as stream:
            program.ask("run 100")
        seen = Counter(event.tid for event in stream.drain())

    assert len(tids) == 4
    assert seen == {tids[1]: 100, tids[2]: 100}


def test_flight_recorder_keeps_what_meets_the_condition(target: Callable) -> None:
    program = target("truth_modes-jump")
    with markerjit.attach(program.pid) as session:
        session.record("truth_mode", where="i >= 995")
        program.ask(f"run {TURNS}")
        (marker,) = session.statistics("truth_mode")
        picture = session.flight().picture()
        session.disable("truth_mode")

    assert numbers(events(picture.batch.columns, picture.clock)) == [*range(995, TURNS)]
    assert (marker.hits, marker.probe, marker.held) == (5, "record", "flight")


def test_marker_that_counted_behind_a_question_does_so_again_after_a_trace(
    target: Callable,
) -> None:
    program = target("truth_modes-jump")
    with markerjit.attach(program.pid) as session:
        session.enable("truth_mode", where="i % 2 == 0")
        program.ask("run 10")
        with session.trace("truth_mode", where="i == 7") as stream:
            program.ask("run 10")
        program.ask("run 10")
        (marker,) = session.statistics("truth_mode")

    assert numbers(list(stream.drain())) == [7]
    assert (marker.probe, marker.where) == ("count", "i % 2 == 0")
    assert marker.hits == 5 + 1 + 5


def test_questions_follow_each_other_and_their_code_is_used_again(target: Callable) -> None:
    program = target("truth_modes-jump")
    hits = []
    with markerjit.attach(program.pid) as session:
        for where in ("i < 3", None, "i < 4", "i < 3"):
            session.enable("truth_mode", where=where)
            before = session.statistics("truth_mode")[0].total
            program.ask("run 10")
            hits.append(session.statistics("truth_mode")[0].total - before)
        room = room_for_code(session)
    done = python(SECOND, program.pid, "truth_mode", "i < 4")
    program.ask("run 10")
    with markerjit.View(program.pid) as view:
        (marker,) = view.statistics("truth_mode")

    assert hits == [3, 10, 4, 3]
    assert int(done.stdout) == room
    assert (marker.where, marker.total) == ("i < 4", 24)


@pytest.mark.product
@pytest.mark.parametrize("probe", ["count", "record"])
def test_code_of_questions_is_given_back(
    program: Any, probe: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(idle, "MOST_IDLE", 4)
    rooms, used, hits = [], [], []
    with markerjit.attach(program.pid) as session:
        for least in range(30):
            session.enable("truth_mode", where=f"i >= {least} and i < 1000000", probe=probe)
            before = session.statistics("truth_mode")[0].total
            program.ask("run 100")
            hits.append(session.statistics("truth_mode")[0].total - before)
            arena = session._target.seen.arena
            assert arena
            rooms.append(arena.code.room.code)
            used.append(arena.markers.used)
            if probe == "record":  # what is in the rings has its types there
                with session.trace("truth_mode"):
                    pass
        session.disable("*")

    assert hits == [100 - least for least in range(30)]
    assert min(rooms[10:]) >= min(rooms[:10])
    assert max(used) <= 10


@pytest.mark.parametrize("often", ["truth_mode", "truth_spin"])
def test_question_of_two_markers_is_asked_of_both_where_one_had_many(
    program: Any, often: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Code that is made for the first is not given back for that of the second."""
    monkeypatch.setattr(idle, "MOST_IDLE", 4)
    with markerjit.attach(program.pid) as session:
        for least in range(5):
            session.enable(often, where=f"i >= {least}")
        session.disable("*")

        session.enable("truth_*", where="i < 3")
        asked = {marker.name: marker.where for marker in session.statistics("truth_*")}
        session.disable("*")

    assert asked == {"truth_mode": "i < 3", "truth_spin": "i < 3"}


def test_room_for_questions_that_is_needed_is_made_by_those_that_nothing_asks(
    program: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The room ends behind the first of two markers: its code is idle as well, and made again."""
    with markerjit.attach(program.pid) as session:
        session.enable("truth_mode", where="i >= 0")
        session.disable("*")
        full: list[int] = []
        take = Places.take

        def taken(places: Places, size: int, align: int) -> RemoteAddress | None:
            full.append(size)
            return None if len(full) == 2 else take(places, size, align)

        monkeypatch.setattr(Places, "take", taken)
        session.enable("truth_*", where="i < 3")
        asked = {marker.name: marker.where for marker in session.statistics("truth_*")}
        session.disable("*")

    assert asked == {"truth_mode": "i < 3", "truth_spin": "i < 3"}
    assert len(full) >= 4


def test_another_session_finds_that_its_question_was_given_back(
    program: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(idle, "MOST_IDLE", 2)
    with markerjit.attach(program.pid) as first, markerjit.attach(program.pid) as second:
        first.enable("truth_mode", where="i < 3")
        first.disable("truth_mode")
        for least in range(10):
            second.enable("truth_mode", where=f"i < {least + 50}")
        second.disable("truth_mode")
        first.enable("truth_mode", where="i < 3")
        before = first.statistics("truth_mode")[0].total
        program.ask("run 100")
        (marker,) = first.statistics("truth_mode")

    assert (marker.where, marker.total - before) == ("i < 3", 3)


def test_code_that_a_thread_may_be_in_is_not_given_back(
    program: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A word on a stack, or in a register, keeps it."""
    monkeypatch.setattr(idle, "MOST_IDLE", 2)
    with markerjit.attach(program.pid) as session:
        session.enable("truth_mode", where="i < 3")
        arena = session._target.seen.arena
        assert arena
        (kept,) = [entry for entry in arena.markers.entries() if entry.asks]
        real = references.referred

        def referred(target: Any, ranges: Any) -> list[bool]:
            inside = arena.base + int(kept.recorder)
            answers = real(target, ranges)
            starts = (start for start, _ in ranges)
            return [each or start == inside for each, start in zip(answers, starts, strict=True)]

        monkeypatch.setattr(references, "referred", referred)
        for least in range(8):
            session.enable("truth_mode", where=f"i < {least + 50}")
        after = arena.markers.entry(int(kept.id))
        session.disable("truth_mode")

    assert (after.question, after.recorder) == (kept.question, kept.recorder)


def test_addresses_that_threads_have_are_found(target: Callable) -> None:
    program = target("truth_threads", "2")
    with markerjit.attach(program.pid) as session:
        session.enable("truth_loop", where="n < 0")
        session.disable("truth_loop")
        with session._switcher.turn() as turn:
            maps = turn.seen.maps
            code = [each for each in maps if each.executable and "libc" in each.path]
            arena = session._target.seen.arena
            assert arena
            empty = (arena.base + arena.geometry.scratch.offset, 64)
            libc = (code[0].start, code[0].end - code[0].start)
            ranges = sorted((empty, libc))
            answers = references.referred(turn.native_target(), ranges)

    assert dict(zip(ranges, answers, strict=True)) == {empty: False, libc: True}


def test_sequence_that_a_waiting_thread_has_left_is_found(program: Any) -> None:
    """The kernel looks at its descriptor when the thread goes on."""
    with markerjit.attach(program.pid) as session:
        session.enable("truth_mode", where="i < 0")
        session.disable("truth_mode")
        with session._switcher.turn() as turn:
            arena, memory = session._target.seen.arena, session._target.memory
            assert arena
            _, threads = turn.caller().run_alone([Call("getpid", SYS_GETPID, ())])
            thread = next(each for each in threads if each.tid == program.pid)
            descriptor = RemoteAddress(arena.base + CONTROL + Control.sequences.offset)
            ranges = [(int(descriptor), 32)]
            before = references.referred(turn.native_target(), ranges)
            # Until it sleeps again it goes through the kernel, which looks at the word.
            wait_until(lambda: state_of(program.pid) == "S", "the thread to wait for a command")
            memory.write(RemoteAddress(thread.rseq + 8), descriptor.to_bytes(8, "little"))
            after = references.referred(turn.native_target(), ranges)

    assert (before, after) == ([False], [True])
    assert program.ask("run 3")


def test_children_are_not_asked(target: Callable) -> None:
    program = target("truth_family")
    with markerjit.attach(program.pid) as session:
        session.enable("truth_family", where="n % 2 == 0")
        grown = program.ask("grow 2 10")
        (marker,) = session.statistics("truth_family")

    assert grown["bad"] == 0
    assert 0 < marker.hits <= 20


def test_functions_and_usdt_probes_are_asked(target: Callable) -> None:
    function, usdt = target("truth_functions"), target("truth_usdt")
    with markerjit.attach(function.pid) as session:
        with session.trace("func:truth_functions:turn", where="arg0 % 10 == 3") as stream:
            function.ask("run 100")
        seen = list(stream.drain())
    with markerjit.attach(usdt.pid) as session:
        session.enable("truth:turn", where="arg0 % 2 == 0")
        usdt.ask("run 1000")
        (marker,) = session.statistics("truth:turn")

    assert [event.fields["arg0"] for event in seen] == [*range(3, 100, 10)]
    assert marker.hits == 500


@pytest.mark.parametrize(
    ("where", "hits"),
    [
        ("u8(arg1) == 0 and u64(arg0) is None", 0),
        ("u8(arg1) > 0 and str(arg1) is not None and u64(arg0) is None", 100),
        ("u8(arg1 + arg0 * 1000000000000) == 0 or arg0 == 0", 1),
        ("len(str(arg1)) > 0 and len(str(arg0)) == 0", 100),
        ("cpu < 4096 and time > 0", 100),
    ],
)
def test_memory_is_read_without_harm(target: Callable, where: str, hits: int) -> None:
    program = target("truth_functions")
    with markerjit.attach(program.pid) as session:
        session.enable("func:truth_functions:turn", where=where)
        program.ask("run 100")
        (function,) = session.statistics("func:truth_functions:turn")

    assert function.hits == hits


@pytest.mark.parametrize("mode", ["jump", "int3"])
def test_a_function_has_a_caller(target: Callable, mode: str) -> None:
    program = target("truth_functions")
    with markerjit.attach(program.pid) as session:
        code = [each for each in session._target.seen.maps
                if each.executable and each.path.endswith("truth_functions")]  # fmt: skip
        start, end = code[0].start, code[-1].end
        hits = []
        for where in (f"{start} <= caller < {end}", f"caller < {start} or caller >= {end}"):
            session.enable("func:truth_functions:turn", mode=mode, where=where)
            before = session.statistics("func:truth_functions:turn")[0].total
            program.ask("run 50")
            hits.append(session.statistics("func:truth_functions:turn")[0].total - before)

    assert hits == [50, 0]


def test_name_that_only_some_markers_have_is_unknown_to_the_others(target: Callable) -> None:
    """As in a stored trace: a part that is unknown decides nothing."""
    program = target("truth_threads", "1")
    where = 'n >= 0 and i >= 0 or name == "truth_birth" and id >= 0'
    with markerjit.attach(program.pid) as session:
        applied = session.enable("truth_*", where=where)
        on = {marker.name: marker.where for marker in session.statistics() if marker.mode}
        wait_until(lambda: session.statistics("truth_loop")[0].hits, "hits")
        session.disable("*")

    assert applied.left_out == ()
    assert on == {"truth_birth": where, "truth_loop": where}


# ---- refused -------------------------------------------------------------------------------------


def test_markers_without_the_name_are_left_out(target: Callable) -> None:
    program = target("truth_threads", "1")
    with markerjit.attach(program.pid) as session:
        applied = session.enable("truth_*", where="n >= 0")
        on = [marker.name for marker in session.statistics() if marker.mode]
        session.disable("*")
        with session.trace("truth_*", where="n >= 0") as stream:
            pass
        recorded = session.record("truth_*", where="n >= 0")
        session.disable("*")

    (left,) = applied.left_out
    assert (left.marker, left.reason) == ("truth_birth", markerjit.Reason.NO_QUESTION)
    assert left.sentence == "no event of truth_birth meets the condition: no n"
    assert applied.left_out == stream.unswitched == recorded.left_out
    assert on == ["truth_loop"]


@pytest.mark.parametrize(
    ("where", "error", "words"),
    [
        ("caller == 1", markerjit.BadQuestion, "only the entry and the returns"),
        ("u8('a') == 1", markerjit.BadQuestion, "this is a text, and u8 takes a number"),
        ("att == 1", markerjit.BadQuestion, "did you mean at?"),
        ("at ==", markerjit.BadQuestion, "this is not an expression"),
        ("", markerjit.BadQuestion, "an expression is empty"),
        ("s == '\udc80'", markerjit.BadQuestion, "cannot be printed"),
        ("at == 1 or " * 400 + "at", markerjit.BadQuestion, "more than 4096 characters"),
        ("at == 'a'", markerjit.BadQuestion, "a text and a number cannot be compared"),
        ("import os", markerjit.BadQuestion, "this is not an expression"),
        (3, markerjit.BadArgument, "where is 3"),
    ],
)
@pytest.mark.parametrize("way", ["enable", "record", "trace"])
def test_wrong_questions_are_refused_and_nothing_is_written(
    target: Callable, where: Any, error: type[Exception], words: str, way: str
) -> None:
    program = target("truth_texts")
    before = text_of(program.pid)
    with markerjit.attach(program.pid) as session:
        with pytest.raises(error, match=re.escape(words)):
            if way == "trace":
                with session.trace("texts_string", where=where):
                    pass
            else:
                getattr(session, way)("texts_string", where=where)
        assert session.arena() is None

    assert text_of(program.pid) == before


@pytest.mark.parametrize("name", ["truth_threads-1", "truth_modes-sentinel"])
def test_bodies_that_call_c_functions_are_not_asked(target: Callable, name: str) -> None:
    program = target(name)
    with (
        markerjit.attach(program.pid) as session,
        pytest.raises(markerjit.Refused, match="calls its probe as a C function"),
    ):
        session.enable("*", where="i >= 0")


def test_probes_in_c_are_not_asked(target: Callable, probe: Callable) -> None:
    program = target("truth_modes-jump")
    with (
        markerjit.attach(program.pid) as session,
        pytest.raises(markerjit.BadArgument, match="probe in C"),
    ):
        session.enable("truth_mode", probe=probe(IN_C, "on_turn"), where="i >= 0")


def test_question_with_the_number_of_another_is_refused(
    target: Callable, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = target("truth_modes-jump")
    with markerjit.attach(program.pid) as session:
        session.enable("truth_mode", where="i < 3")
        monkeypatch.setattr("markerjit.patch.where.fnv1a", lambda data: 7)
        session.enable("truth_mode", where="i < 4")
        with pytest.raises(markerjit.Refused, match="the same number as this one"):
            session.enable("truth_mode", where="i < 5")
        program.ask("run 10")

        assert session.statistics("truth_mode")[0].where == "i < 4"


def test_text_that_the_process_has_written_over_is_shown_as_it_is(target: Callable) -> None:
    program = target("truth_modes-jump")
    with markerjit.attach(program.pid) as session:
        session.enable("truth_mode", where="i < 3")
        arena = session._target.seen.arena
        assert arena
        for field, value in (("question_size", 0xFFFFFFFF), ("question_text", 0xFFFFFFF0)):
            arena.markers._table.write_field(0, field, value.to_bytes(4, "little"))
            assert len(session.statistics("truth_mode")[0].where or "") < 1 << 15
        program.ask("run 10")

        assert session.statistics("truth_mode")[0].hits == 3
        session.disable("truth_mode")


# ---- at the command line -------------------------------------------------------------------------


def test_command_line_asks(target: Callable) -> None:
    program = target("truth_modes-jump")

    switched = cli("on", program.pid, "truth_mode", "--where", "i % 4 == 0")
    program.ask("run 100")
    (marker,) = facts("list", program.pid, "truth_mode")["markers"]
    listed, status = (cli(command, program.pid).stdout for command in ("list", "status"))
    shown = cli("explain", program.pid, "truth_mode").stdout
    with running("trace", program.pid, "truth_mode", "--where", "i == 9", "--json") as tracer:
        wait_until(lambda: "record" in cli("list", program.pid, "truth_mode").stdout, "a trace")
        program.ask("run 100")
        tracer.send_signal(2)
        printed, _ = tracer.communicate()
    *events, summary = map(json.loads, printed.splitlines())

    assert switched.stdout.startswith("truth_mode: on (jump, count) where i % 4 == 0, 1 site\n")
    assert "\nwhere i % 4 == 0: truth_mode\n" in listed
    assert "\nwhere i % 4 == 0: truth_mode\n" in status
    assert (marker["hits"], marker["probe"], marker["where"]) == (25, "count", "i % 4 == 0")
    assert "where i % 4 == 0" in shown
    assert "commit: the execution is counted" in shown
    assert [event["fields"]["i"] for event in events] == [9]
    assert summary["summary"]["events"] == 1


def test_command_line_refuses(target: Callable, probe: Callable) -> None:
    program = target("truth_modes-jump")
    for command in (["on"], ["trace"], ["flight", "start"]):
        wrong = cli(*command, program.pid, "truth_mode", "--where", "ii < 3")
        assert wrong.returncode == 1
        assert wrong.stderr.splitlines()[:3] == [
            "markerjit: there is no name ii; did you mean i?", "  ii < 3", "  ^^",
        ]  # fmt: skip
    in_c = cli("on", program.pid, "*", "--probe", probe(IN_C, "on_turn"), "--where", "i < 3")
    one_line(in_c, "a probe in C has its own conditions; leave out --where")
