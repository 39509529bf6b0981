"""Instructions in the middle of functions: every register, and off again byte for byte."""

from __future__ import annotations

import os
import random
import re
import signal
import subprocess
from collections.abc import Callable

import pytest

import markerjit
from markerjit import Mode
from markerjit.elf import FileImage
from markerjit.elf.functions import Functions
from markerjit.x86.flow import flow
from markerjit.x86.forms import NEAR_LENGTH
from tests.support.commands import cli, facts, one_line
from tests.support.processes import text_of
from tests.support.timing import Limited
from tests.support.tracing import stop_at
from tests.support.usdt import debian

pytestmark = pytest.mark.live

TURN = "insn:looping@truth_functions+0x2"
"""`inc %rax` in a loop from 0; %rdi counts down."""
REGISTERS = (
    *("rax", "rbx", "rcx", "rdx", "rsi", "rdi", "rbp", "rsp"),
    *(f"r{number}" for number in range(8, 16)),
    "rip",
)


@pytest.mark.parametrize("mode", [Mode.JUMP, Mode.INT3])
def test_an_event_has_every_register_by_its_name(target: Callable, mode: Mode) -> None:
    program = target("truth_functions")
    before = text_of(program.pid)

    with markerjit.attach(program.pid) as session, session.trace(TURN, mode=mode) as stream:
        program.ask("run 10")
        (site,) = session.sites(TURN)
        events = list(stream.drain())

    assert {event.name for event in events} == {"insn:looping+0x2"}
    assert all((*event.fields,) == REGISTERS for event in events)
    seen = [(event.fields["rax"], event.fields["rdi"]) for event in events]
    assert seen == [(0, 3), (1, 2), (2, 1)] * 10
    assert {event.fields["rip"] for event in events} == {site.address}
    assert len({event.fields["rsp"] for event in events}) == 1
    assert text_of(program.pid) == before


def test_a_question_is_asked_of_registers(target: Callable) -> None:
    program = target("truth_functions")

    with (
        markerjit.attach(program.pid) as session,
        session.trace(TURN, where="rax == 2 and rdi < 2", fields=["rdi", "r15"]) as stream,
    ):
        program.ask("run 10")
        events = list(stream.drain())

    assert [[*event.fields] for event in events] == [["rdi", "r15"]] * 10
    assert {event.fields["rdi"] for event in events} == {1}


def test_an_instruction_is_one_by_its_function_and_by_its_file(target: Callable) -> None:
    program = target("truth_functions")
    with markerjit.attach(program.pid) as session:
        session.enable(TURN)
        (site,) = session.sites(TURN)
        by_file = f"insn:truth_functions+{site.offset:#x}"

        program.ask("run 5")
        (status,) = session.statistics(by_file)
        session.disable(by_file)
        (off,) = session.statistics("insn:*")

    assert (status.name, status.mode, status.hits) == ("insn:looping+0x2", Mode.JUMP, 15)
    assert (off.name, off.mode) == ("insn:looping+0x2", None)


def test_another_controller_switches_an_instruction_off(target: Callable) -> None:
    program = target("truth_functions")
    before = text_of(program.pid)

    on = cli("on", program.pid, TURN)
    program.ask("run 5")
    status = facts("status", program.pid)
    off = cli("off", program.pid, "insn:*")

    assert on.returncode == off.returncode == 0
    (marker,) = status["markers"]
    assert (marker["name"], marker["hits"]) == ("insn:looping+0x2", 15)
    assert text_of(program.pid) == before


def test_neighbours_are_counted_together_and_none_is_passed_over(target: Callable) -> None:
    """A jump over five bytes would take the instructions of the others."""
    program = target("truth_functions")
    before = text_of(program.pid)
    names = [f"insn:looping+{offset:#x}" for offset in (0, 2, 5, 8, 0xA)]

    with markerjit.attach(program.pid, breakpoints=True) as session:
        session.enable(",".join(names))
        program.ask("run 10")
        hits = {status.name: status.hits for status in session.statistics("insn:*")}
        session.disable("insn:*")
    with markerjit.attach(program.pid) as unasked:
        left_out = unasked.enable(",".join(names)).left_out
        unasked.disable("insn:*")

    assert hits == dict(zip(names, (10, 30, 30, 30, 10), strict=True))
    assert {each.reason for each in left_out} == {markerjit.Reason.NEEDS_BREAKPOINT}
    assert text_of(program.pid) == before


def test_two_that_need_the_same_bytes_are_on_one_after_the_other(target: Callable) -> None:
    program = target("truth_functions")
    before = text_of(program.pid)
    with markerjit.attach(program.pid) as session:
        session.enable(TURN)
        with pytest.raises(markerjit.Refused, match="a marker has its instructions, or"):
            session.enable("insn:looping+0x5")
        session.disable(TURN)
        session.enable("insn:looping+0x5")
        with pytest.raises(markerjit.Refused, match=r"while insn:looping\+0x5 .* is on"):
            session.enable(TURN)
        program.ask("run 10")
        hits = {status.name: status.hits for status in session.statistics("insn:*")}
        session.disable("insn:*")
        session.enable(TURN)
        session.disable(TURN)

    assert hits == {"insn:looping+0x2": 0, "insn:looping+0x5": 30}
    assert text_of(program.pid) == before


def test_no_jump_is_written_around_the_place_where_a_thread_comes_back(target: Callable) -> None:
    """A thread in the stub of a site that is off by now."""
    program = target("truth_functions")
    before = text_of(program.pid)
    second = "insn:looping+0x5"
    with markerjit.attach(program.pid) as session:
        session.enable(second)  # its stub cannot be made while the program is stopped
        session.disable(second)
        session.enable(TURN)
        (site,) = session.sites(TURN)
        assert site.address + 3 < site.body.end < site.address + 3 + NEAR_LENGTH
        stop_at(program, site.address, lambda: program.send("run 10"), behind=site.body.entry)
        session.disable(TURN)

        with pytest.raises(markerjit.Refused, match=r"thread \d+ is inside .* try again"):
            session.enable(second)
        assert text_of(program.pid) == before
        os.kill(program.pid, signal.SIGCONT)
        program.read_line()
        session.enable(second)
        program.ask("run 10")
        (status,) = session.status(second)
        session.disable(second)

    assert (status.mode, status.hits) == (Mode.JUMP, 30)
    assert text_of(program.pid) == before


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("insn:looping+0x3", "in the middle of 'inc rax', which is insn:looping+0x2"),
        ("insn:looping+0x100", "behind the end of its function, which has 11 bytes"),
        ("insn:truth_functions+0x1", "in no function that its object knows of"),
        ("insn:loping+0x2", "no function or object matches 'insn:loping+0x2'"),
        ("insn:*", "names every instruction"),
        ("insn:landing+0x0", "begins with an endbr64"),
    ],
)
def test_what_is_no_instruction_is_refused_and_nothing_is_touched(
    target: Callable, name: str, says: str
) -> None:
    program = target("truth_functions")
    before = text_of(program.pid)

    refused = cli("on", program.pid, name)

    one_line(refused, re.escape(says))
    assert text_of(program.pid) == before


def test_the_list_shows_instructions(target: Callable) -> None:
    program = target("truth_functions")
    cli("on", program.pid, TURN)

    listed = cli("list", program.pid, "insn:looping+0x2")
    of_file = facts("list", program.path, "insn:looping+0x5")

    assert listed.stdout.splitlines()[1].split()[:3] == ["insn:looping+0x2", "on", "(jump)"]
    assert [each["name"] for each in of_file["functions"]] == ["insn:looping+0x5"]


COUNTING = """
import json, re, sys
for line in sys.stdin:
    text = json.dumps([{"a": n, "b": str(n)} for n in range(200)])
    print(len(re.findall(r"[0-9]+", text)), sum(each["a"] for each in json.loads(text)), flush=True)
"""
PYTHON = "/usr/bin/python3.11"


def instructions_of(path: str, count: int) -> list[int]:
    """Random ones, of functions that are not small."""
    chosen = random.Random(7)
    with FileImage(path) as image:
        functions = Functions(image)
        sizes = functions.ends - functions.starts
        indexes = [index for index, size in enumerate(sizes.tolist()) if 64 < size < 4096]
        places = []
        for index in chosen.sample(indexes, count):
            start, size = int(functions.starts[index]), int(sizes[index])
            places.append(chosen.choice(list(flow(image.read(start, size), start).starts)))
        return sorted(places)


def test_python_goes_on_with_instructions_of_its_own_code_on() -> None:
    debian(PYTHON)
    names = ",".join(f"insn:python3.11+{place:#x}" for place in instructions_of(PYTHON, 40))
    with Limited(
        [PYTHON, "-c", COUNTING], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as program:
        assert program.stdin and program.stdout

        def ask() -> str:
            print("go", file=program.stdin, flush=True)
            return program.stdout.readline()

        first, before = ask(), text_of(program.pid)
        with markerjit.attach(program.pid) as session:
            left_out = session.enable(names).left_out
            on = [status for status in session.statistics("insn:*") if status.mode]
            answers = [ask() for _ in range(3)]
            session.disable("insn:*")
        after = text_of(program.pid)
        program.stdin.close()
        assert program.wait() == 0

    assert answers == [first] * 3
    assert len(on) + len(left_out) == 40
    assert len(left_out) < 4, left_out
    assert after == before
