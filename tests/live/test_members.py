"""Members of structures in questions, against a program that fills them by the number of a turn,
and against gdb's view of the same types."""

from __future__ import annotations

import ctypes
import json
import os
import shutil
import subprocess
from collections.abc import Callable

import pytest

import markerjit
from markerjit.elf import FileImage
from markerjit.elf.prototypes import prototypes_of
from tests.support.code_bytes import code_of
from tests.support.commands import cli
from tests.support.programs import Target

pytestmark = pytest.mark.live

PROGRAM = "truth_members"
TURNS = 40
_FRAME = {"cpu": 0, "tid": 1, "fields": {"req": 4096}}


@pytest.fixture
def program(target: Callable) -> Target:
    pytest.importorskip("drgn")
    started: Target = target(PROGRAM)
    return started


def float32(i: int) -> float:
    """The ratio of a turn: what the program's 0.1f * i is."""
    tenth = ctypes.c_float(0.1).value
    return float(ctypes.c_float(tenth * i).value)


def fields_of(program: Target, function: str, select: str, turns: int = TURNS) -> list[dict]:
    """The selected fields of each turn."""
    with (
        markerjit.attach(program.pid) as session,
        session.trace(f"func:{function}", select=select) as stream,
    ):
        program.ask(f"run {turns}")
        return [dict(event.fields) for event in stream.drain()]


def chosen(program: Target, function: str, where: str, turns: int = TURNS) -> int:
    """How many turns meet a condition."""
    name = f"func:{function}"
    with markerjit.attach(program.pid) as session:
        session.enable(name, where=where)
        program.ask(f"run {turns}")
        (status,) = session.status(name)
        session.disable(name)
    return status.hits


def test_members_have_the_values_that_the_program_gave_them(program: Target) -> None:
    before = code_of(program)
    select = (
        "req->url, req->name, p=req->addr.port, host=req->addr.host[3], key=req->first->next->key, "
        "req->delta, req->method, req->wide, req->done, req->open, req->state"
    )
    more = "v=req->vec[2], one=req->pair[1].port, req->high, last=node->next->next->key, i=req->id"
    first = fields_of(program, "handled", select)
    second = fields_of(program, "handled", more)

    assert first == [
        {
            "url": ["/", "/index", "/a/b", None][i % 4],
            "name": "".join(chr(ord("a") + (i + at) % 26) for at in range(8)),
            "p": 8000 + i,
            "host": i,
            "key": i + 1,
            "delta": i % 32 - 16 if i % 32 - 16 < 16 else 0,
            "method": i % 8,
            "wide": 0xF000000000 + i,
            "done": bool(i % 2),
            "open": i % 3 == 0,
            "state": 1 if i % 2 else -1,
        }
        for i in range(TURNS)
    ]
    assert second == [
        {"v": 3 * i, "one": i, "high": i, "last": i + 2, "i": -i} for i in range(TURNS)
    ]
    assert code_of(program) == before


def test_floats_have_the_values_that_the_program_gave_them(program: Target) -> None:
    """As fields, and added up."""
    read = fields_of(program, "handled", "req->load, req->ratio, minus=req->ratios[1]")
    with markerjit.attach(program.pid) as session:
        with session.aggregate("func:handled", "stat(req->load)", by="int(req->ratio)") as adding:
            program.ask(f"run {TURNS}")
        rows = {row.key[0]: row.answer for row in adding.read().rows}

    assert read == [{"load": i / 2, "ratio": float32(i), "minus": -i / 4} for i in range(TURNS)]
    for whole, answer in rows.items():
        loads = [i / 2 for i in range(TURNS) if int(float32(i)) == whole]
        assert (answer.events, answer.sum, answer.min, answer.max) == (
            len(loads), sum(loads), min(loads), max(loads),
        )  # fmt: skip
    assert sum(answer.events for answer in rows.values()) == TURNS


def test_wild_floats_are_missing_and_harm_nothing(program: Target) -> None:
    """Each second turn of `wild` has a wild pointer."""
    assert chosen(program, "wild", "req->load >= 0 or req->ratio < 1") == TURNS // 2
    assert chosen(program, "wild", "req->load is None and req->ratio is None") == TURNS // 2


def test_what_pointers_lead_to_is_read(program: Target) -> None:
    read = fields_of(program, "counted", "a=*numbers, b=numbers[1], c=*rows[1], d=rows[0][1]")

    assert read == [{"a": i, "b": -i, "c": -i, "d": -i} for i in range(TURNS)]


def test_bits_that_cross_their_units_are_read(program: Target) -> None:
    read = fields_of(program, "packed", "packed->before, packed->middle")

    assert read == [{"before": i % 64, "middle": 0x20000000 + i} for i in range(TURNS)]


def test_a_wild_pointer_is_missing_and_harms_nothing(program: Target) -> None:
    read = fields_of(program, "wild", "known=req->id is not None, req->id")
    equal = chosen(program, "wild", "req->id <= 0")
    other = chosen(program, "wild", "req->url == '/index' or req->peer->port > 1")
    missing = chosen(program, "wild", "req->id is None")

    assert read == [{"known": i % 2 == 0, "id": 0 if i % 2 else -i} for i in range(TURNS)]
    assert (equal, missing) == (TURNS // 2, TURNS // 2)
    assert other == sum(i % 2 == 0 and i % 5 != 0 for i in range(TURNS))
    assert program.process.poll() is None


@pytest.mark.parametrize(
    ("where", "holds"),
    [
        ("req->peer is None", lambda i: i % 5 == 0),
        ("req->peer is not None", lambda i: i % 5),
        ("req->url is None", lambda i: i % 4 == 3),
        ("req->url.startswith('/') and req->method in (1, 2)",
         lambda i: i % 4 != 3 and i % 8 in (1, 2)),
        ("not req->done and -req->id >= 10", lambda i: i % 2 == 0 and i >= 10),
        ("req->name[:2] == 'bc'", lambda i: i % 26 == 1),
        ("req->vec[1] - req->vec[0] > 5", lambda i: i > 5),
        ("req->load > 4.25", lambda i: i > 8.5),
        ("req->ratios[1] <= -1 and int(req->load) == req->load", lambda i: i >= 4 and i % 2 == 0),
        ("req->ratio * 10 > req->load * 2", lambda i: float32(i) * 10 > i),
        ("node->key == req->first->key and node->key < 4", lambda i: i < 4),
    ],
)  # fmt: skip
def test_conditions_are_met_as_by_the_program(
    program: Target, where: str, holds: Callable[[int], bool]
) -> None:
    assert chosen(program, "handled", where) == sum(bool(holds(i)) for i in range(TURNS))


def test_members_are_keys_and_values(program: Target) -> None:
    with markerjit.attach(program.pid) as session:
        with session.aggregate(
            "func:handled", "sum(req->vec[3])", by="req->method, req->state"
        ) as adding:
            program.ask(f"run {TURNS}")
        rows = {row.key: row.answer.sum for row in adding.read().rows}
        with session.latency("func:handled", by="ret->method", where="req->id < -9") as latency:
            program.ask(f"run {TURNS}")
        calls = {row.key[0]: row.calls for row in latency.read().rows}
        with session.latency(
            "func:handled", "func:handled:return", by="req->id", end_by="ret->id"
        ) as pairs:
            program.ask(f"run {TURNS}")

    assert rows == {
        (method, state): sum(4 * i for i in range(method, TURNS, 8))
        for method in range(8)
        for state in [1 if method % 2 else -1]
    }
    assert calls == {method: sum(i % 8 == method for i in range(10, TURNS)) for method in range(8)}
    assert pairs.read().pairs == TURNS


def test_functions_with_a_name_of_the_same_type_are_asked_together(program: Target) -> None:
    with (
        markerjit.attach(program.pid) as session,
        session.trace("func:handled,func:wild,func:packed", where="req->id == -2") as stream,
    ):
        program.ask("run 4")
        names = [event.name for event in stream.drain()]

    assert names == ["func:handled", "func:wild"]


@pytest.mark.parametrize(
    ("name", "where", "sentence", "marked"),
    [
        ("func:handled", "req->ulr == 'x'", "no member ulr; did you mean url?", "ulr"),
        ("func:handled", "req->url == 3", "a text and a number", "req->url == 3"),
        ("func:handled", "rek->id", "did you mean req?", "rek"),
        ("func:handled", "req->addr", "name a member of it", "req->addr"),
        (
            "func:handled",
            "req->exact > 1",
            "does not read memory of type long double",
            "req->exact",
        ),
        ("func:opaque", "hidden->x", "the members of struct hidden are not known", "hidden->"),
        ("func:handled,func:other", "req->id", "struct node * in func:other", "req"),
        ("func:main", "arg0->x", "it takes no arguments", "arg0"),
        ("func:packed", "packed->far", "9 bytes", "packed->far"),
    ],
)
def test_a_wrong_member_is_refused(
    program: Target, name: str, where: str, sentence: str, marked: str
) -> None:
    with markerjit.attach(program.pid) as session:
        with pytest.raises(markerjit.BadQuestion) as caught, session.trace(name, where=where):
            pass
        assert not any(each.mode for each in session.status())
    error = caught.value

    assert sentence in str(error)
    assert error.text == where
    assert where[error.start : error.end] == marked


def test_without_debugging_information_it_is_said_how_to_get_some(target: Callable) -> None:
    program = target("truth_members")
    stripped = program.path.with_name("truth_members_stripped")
    subprocess.run(["objcopy", "-g", program.path, stripped], check=True)
    try:
        refused = cli("explain", stripped, "func:handled", "--where", "arg0->id == 1")
    finally:
        os.unlink(stripped)

    assert refused.returncode == 1
    assert "has no debugging information here" in refused.stderr
    assert "debuginfod-find debuginfo" in refused.stderr


def test_explain_shows_the_reads(program: Target) -> None:
    shown = cli("explain", program.path, "func:handled", "--where", "req->peer->port > 80").stdout
    running = cli("explain", program.pid, "func:handled", "--where", "req->peer->port > 80").stdout

    assert shown == running
    assert "load : u16" in shown
    assert "u16(u64(req + 48) + 4)" in shown


def test_list_shows_the_c_types(program: Target) -> None:
    listed = cli("list", program.pid, "func:handled").stdout
    facts = json.loads(cli("list", program.pid, "func:handled", "--json").stdout)

    assert "req: struct request *, node: const struct node *" in listed
    assert facts["functions"][0]["types"] == {
        "req": "struct request *", "node": "const struct node *",
    }  # fmt: skip


def test_a_stored_trace_has_no_members(program: Target, tmp_path: object) -> None:
    path = f"{tmp_path}/events.jsonl"
    with (
        markerjit.attach(program.pid) as session,
        session.trace("func:handled") as stream,
        open(path, "w") as file,
    ):
        program.ask("run 2")
        for event in stream.drain():
            file.write(json.dumps({**_FRAME, "time": event.time, "name": "handled"}) + "\n")

    refused = cli("read", path, "--where", "req->id == 1")

    assert refused.returncode == 1
    assert refused.stderr.startswith("markerjit: members of structures, such as req->url")


@pytest.mark.skipif(not shutil.which("gdb"), reason="gdb is the judge")
def test_gdb_has_each_member_at_the_same_place(program: Target) -> None:
    with FileImage(os.fspath(program.path)) as image:
        prototypes = prototypes_of(image)
        assert prototypes is not None
        types = prototypes.layouts_of(["handled"], 0, local=False)
    assert types == {}, "that is not its address"
    symbols = subprocess.run(["nm", program.path], capture_output=True, text=True, check=True)
    address = next(
        int(line.split()[0], 16)
        for line in symbols.stdout.splitlines() if line.endswith(" T handled")
    )  # fmt: skip
    request = prototypes.layouts_of(["handled"], address, local=False)["req"].inner
    names = [name for name in request.names if not request.member(name).bits]
    words = [
        word for name in names for word in ("-ex", f"print (long)&((struct request *)0)->{name}")
    ]
    run = subprocess.run(
        ["gdb", "-q", "-nx", "-batch", *words, program.path],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    places = [int(line.rpartition("=")[2]) for line in run.stdout.splitlines() if "=" in line]

    assert places == [request.member(name).bit_offset // 8 for name in names]
    assert len(names) > 12
