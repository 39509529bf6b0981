"""Functions when they are called by others: by the return address at the entry."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable

import pytest

import markerjit
from markerjit.facts.aggregates import answers_facts
from markerjit.session.addresses import AddressNames
from markerjit.session.target import Target
from tests.support.commands import cli, facts, one_line
from tests.support.processes import text_of

pytestmark = pytest.mark.live

PROGRAM = "truth_call_sites"


@pytest.mark.product
@pytest.mark.parametrize(
    ("pattern", "where", "per_turn"),
    [
        ("func:leaf@direct", None, 2),
        ("func:leaf@pointed", None, 1),  # by a pointer, which a call's name could not say
        ("func:leaf@pointe*", None, 1),
        ("func:leaf", 'caller == "direct"', 2),
        ("func:leaf", 'caller in ("direct", "pointed")', 3),
        ("func:leaf@direct", "{field} % 2 == 0", 1),
        # What a jump calls last returns to the caller of that: `turn`, for `handed` and `near`.
        ("func:leaf@handed", None, 0),
    ],
)
@pytest.mark.parametrize("mode", ["jump", "int3"])
def test_entries_are_counted_by_their_callers(
    target: Callable, pattern: str, where: str | None, per_turn: int, mode: str
) -> None:
    program = target(PROGRAM)
    before = text_of(program.pid)
    field = facts("list", program.path, "func:leaf")["functions"][0]["fields"][0]["name"]

    with markerjit.attach(program.pid) as session:
        session.enable(pattern, where=where and where.format(field=field), mode=mode)
        program.ask("run 50")
        (status,) = session.statistics(pattern)
        session.disable(pattern)

    assert (status.name, status.hits) == ("func:leaf", 50 * per_turn)
    assert text_of(program.pid) == before


def test_events_and_sums_are_those_of_a_caller(target: Callable) -> None:
    program = target(PROGRAM)

    with markerjit.attach(program.pid) as session:
        with session.trace("func:leaf@direct") as stream:
            program.ask("run 5")
            events = [next(iter(event.fields.values())) for event in stream.drain()]
        with session.aggregate("func:leaf@direct", "count()") as adding:
            program.ask("run 5")
            rows = adding.read()

    assert events == [value for n in range(5) for value in (n, n + 1)]
    assert "10" in repr(rows)


def test_the_command_line_takes_a_caller_and_its_status_says_where(target: Callable) -> None:
    program = target(PROGRAM)
    before = text_of(program.pid)

    on = cli("on", program.pid, "func:leaf@direct")
    program.ask("run 10")
    (status,) = facts("status", program.pid)["markers"]
    off = cli("off", program.pid, "func:leaf@direct")

    assert (on.returncode, off.returncode) == (0, 0)
    assert status["hits"] == 20
    assert re.fullmatch(r"\(0x[0-9a-f]+ < caller <= 0x[0-9a-f]+\)", status["where"])
    assert text_of(program.pid) == before


def test_too_many_callers_are_refused(target: Callable) -> None:
    program = target(PROGRAM)
    with (
        markerjit.attach(program.pid) as session,
        pytest.raises(markerjit.BadQuestion, match="pieces of code; at most 64"),
    ):
        session.enable("func:leaf", where='caller == "*"')


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("on", "func:leaf@dirrect"), "no function matches 'dirrect'; did you mean direct"),
        (("off", "func:leaf@dirrect"), "no function matches 'dirrect'"),
        (("on", "func:leaf", "--where", 'caller == "dirrect"'), "no function matches 'dirrect'"),
        (("on", "func:leaf@direct,func:wide"), "by itself"),
    ],
)
def test_nonsense_is_refused_and_nothing_is_touched(
    target: Callable, arguments: tuple[str, ...], says: str
) -> None:
    program = target(PROGRAM)
    before = text_of(program.pid)
    command, *others = arguments

    one_line(cli(command, program.pid, *others), re.escape(says))

    assert text_of(program.pid) == before


def test_keys_of_callers_have_their_names(target: Callable) -> None:
    program = target(PROGRAM)
    with markerjit.attach(program.pid) as session:
        with session.aggregate(f"func:leaf@{PROGRAM}", by="caller, tid") as adding:
            program.ask("run 20")
            meanwhile = adding.read()
        answers = adding.read()
        taken = adding.take()

    assert meanwhile == answers == taken
    calls: Counter[str] = Counter()
    for row in answers.rows:
        name, thread = row.names
        assert thread is None
        assert name is not None
        calls[name.partition("+")[0]] += row.events
    assert (calls["direct"], calls["pointed"]) == (2 * 20, 20)
    assert calls.keys() <= {"direct", "pointed", "turn"}
    document = answers_facts(answers)
    assert [row["names"] for row in document["rows"]] == [list(row.names) for row in answers.rows]
    assert all(isinstance(row["key"][0], int) for row in document["rows"])


def test_names_of_a_program_that_has_ended_are_known() -> None:
    pattern = "func:libc.so*:malloc"
    done = cli("count", pattern, "--by", "caller", "--json", "--", "/bin/ls", "/")
    document = json.loads(done.stdout.splitlines()[-1])

    assert document["rows"]
    for row in document["rows"]:
        assert re.fullmatch(r"[\w.~:<>(), *&-]+\+0x[0-9a-f]+", row["names"][0]), row


def test_an_address_of_data_is_a_number(target: Callable) -> None:
    program = target(PROGRAM)
    looked = Target(program.pid)
    try:
        looked.look()
        names = AddressNames(looked)

        assert [names.of(at) for at in (0, 4096, 1 << 63)] == ["0x0", "0x1000", f"{1 << 63:#x}"]
    finally:
        looked.close()


def test_names_are_known_when_the_session_has_ended(target: Callable) -> None:
    program = target(PROGRAM)
    with markerjit.attach(program.pid) as session:
        with session.aggregate(f"func:leaf@{PROGRAM}", by="caller") as adding:
            program.ask("run 20")
        seen = adding._names
    known = adding.read()

    assert {row.names[0].partition("+")[0] for row in known.rows} >= {"direct", "pointed"}
    seen._known.clear()
    assert all(row.names == (f"{row.key[0]:#x}",) for row in adding.read().rows)


def test_times_of_calls_are_by_the_name_of_the_caller(target: Callable) -> None:
    program = target(PROGRAM)

    with (
        markerjit.attach(program.pid) as session,
        session.latency("func:leaf", by="caller, tid") as latency,
    ):
        program.ask("run 5")
    times = latency.read()

    calls: Counter[str] = Counter()
    for row in times.rows:
        calls[str(row.names[0]).partition("+")[0]] += row.calls
    assert (calls["direct"], calls["pointed"]) == (10, 5)
    assert all(row.names[1] is None for row in times.rows)
