"""Programs without names: their functions are those of the unwind tables, known by addresses."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

import markerjit
from tests.support.call_graphs import followed
from tests.support.code_bytes import code_of
from tests.support.commands import cli, one_line, running
from tests.support.markers import wait_on
from tests.support.processes import text_of
from tests.support.programs import Target
from tests.support.terminals import in_terminal
from tests.support.timing import Limited

pytestmark = pytest.mark.live

COUNTED = (
    "leaf", "twice", "deep", "even", "odd", "handed", "catcher", "middle", "thrower", "after",
)  # fmt: skip


class Stripped(NamedTuple):
    """A truth program without symbols, and the names of its functions by those that it had."""

    program: Target
    places: dict[str, str]

    def names(self, truth: dict[str, int]) -> dict[str, int]:
        """What the program has counted, by the names without symbols."""
        return {self.places[name]: truth[name] for name in COUNTED}


def strip(path: Path, stripped: Path) -> dict[str, int]:
    """Strip a copy of a program; returns where the functions are that had names."""
    subprocess.run(["strip", "-s", "-o", stripped, path], check=True)
    text = subprocess.run(["nm", path], capture_output=True, text=True, check=True).stdout
    lines = (line.split() for line in text.splitlines())
    return {line[2]: int(line[0], 16) for line in lines if len(line) == 3 and line[1] in "tT"}


@pytest.fixture
def stripped(target: Callable, tmp_path: Path) -> Iterator[Stripped]:
    path = tmp_path / "nameless"
    addresses = strip(target("truth_calls").path, path)
    program = Target(path)
    program.wait_ready()
    yield Stripped(program, {name: f"nameless+{at:#x}" for name, at in addresses.items()})
    code = program.end()
    assert code is None or code >= 0


def test_all_functions_are_listed_and_some_by_a_pattern(stripped: Stripped) -> None:
    pid = str(stripped.program.pid)

    whole = cli("list", pid, "func:nameless:*").stdout
    page = stripped.places["leaf"][:-2]
    some = cli("list", pid, f"func:{page}*").stdout

    for name in COUNTED:
        assert f"func:{stripped.places[name]} " in whole
    assert f"func:{stripped.places['leaf']} " in some
    assert all(line.startswith(f"func:{page}") for line in some.splitlines()[1:])
    assert len(some.splitlines()) < len(whole.splitlines())
    assert not any("main" in line for line in whole.splitlines())


def test_those_that_a_name_leaves_out_are_counted_where_a_file_keeps_some_names(
    target: Callable, tmp_path: Path
) -> None:
    path = tmp_path / "few"
    subprocess.run(
        ["strip", "-s", "-K", "leaf", "-o", path, target("truth_calls").path], check=True
    )

    listed = cli("list", path, "func:few:*")
    document = json.loads(cli("list", path, "func:few:*", "--json").stdout)
    whole = cli("list", path, "func:few+0x*")
    others = [cli("list", path, pattern) for pattern in ("func:few:leaf", "func:few+0x*")]
    missed = cli("list", path, "func:few:deep*")
    on_terminal = in_terminal("list", path, "func:few:*")

    number = len(whole.stdout.splitlines()) - 1
    hint = f"{number} functions of few have no name; 'func:few+0x*' names them by address"
    assert number > len(COUNTED)
    assert [line.split()[0] for line in listed.stdout.splitlines()] == ["FUNCTION", "func:leaf"]
    assert listed.stderr == f"{hint}\n"
    assert document["nameless"] == {"few": number}
    assert [other.stderr for other in others] == ["", ""]
    assert one_line(missed, "func:few:deep").endswith(f"; {hint}\n")
    assert hint in on_terminal.replace("\n  ", " ")


def test_entries_and_returns_are_counted_and_off_again_byte_for_byte(stripped: Stripped) -> None:
    program = stripped.program
    before = code_of(program)
    names = [f"func:{stripped.places[name]}" for name in ("leaf", "twice", "thrower")]
    pattern = ",".join((*names, *(f"{name}:return" for name in names)))

    with markerjit.attach(program.pid) as session:
        session.on(pattern)
        truth = program.ask("run 50")
        hits = {each.name: each.hits for each in session.statistics(pattern)}
        session.off("func:*,func:*:return")

    assert code_of(program) == before
    assert [hits[name] for name in names] == [truth[name] for name in ("leaf", "twice", "thrower")]
    assert hits[f"{names[0]}:return"] == truth["leaf"]
    assert hits[f"{names[2]}:return"] == truth["thrower"] - truth["jumped"]


def test_a_trace_has_arguments_and_results(stripped: Stripped) -> None:
    program = stripped.program
    name = f"func:{stripped.places['twice']}"

    with running("trace", str(program.pid), f"{name}:return", "-n", "3", "--json") as trace:
        wait_on(program.pid, f"{name}:return", trace)
        program.ask("run 3")
        out, _ = trace.communicate()

    assert trace.returncode == 0
    assert out.count(f'"{name}:return"') >= 3
    for number in range(3):  # leaf(n) + leaf(n + 1)
        assert f'"ret": {2 * number + 3}' in out


def test_calls_of_all_functions_are_those_that_the_program_counts(stripped: Stripped) -> None:
    program = stripped.program
    before = code_of(program)

    with followed(program, breakpoints=True) as graphs:
        truth = program.ask("run 40")
    (graph,) = graphs

    assert code_of(program) == before
    assert graph.lost == 0
    calls = {each.name: each.calls for each in graph.functions}
    assert stripped.names(truth).items() <= calls.items()
    among = {(each.caller, each.callee): each.calls for each in graph.callings}
    places = stripped.places
    assert among[places["twice"], places["leaf"]] == 2 * truth["twice"]
    assert among[places["catcher"], places["after"]] == truth["after"]


def test_coverage_is_that_of_the_program_with_names(target: Callable, tmp_path: Path) -> None:
    path = target("truth_calls").path
    strip(path, tmp_path / "nameless")

    named, nameless = (cli("coverage", each) for each in (path, tmp_path / "nameless"))

    assert (named.returncode, nameless.returncode) == (0, 0)
    _, *lines = named.stdout.splitlines()
    assert lines == nameless.stdout.splitlines()[1:]
    assert lines


@pytest.mark.parametrize("name", ["nameless+0x1", "nameless+0xzz", "other+0x*", "leaf"])
def test_what_is_no_function_of_it_is_refused_in_one_line(stripped: Stripped, name: str) -> None:
    before = code_of(stripped.program)

    refused = cli("on", stripped.program.pid, f"func:{name}")

    one_line(refused, re.escape(f"no function matches 'func:{name}'"))
    assert code_of(stripped.program) == before


def test_a_program_of_debian_goes_on_with_all_its_functions_followed() -> None:
    sed = shutil.which("sed")
    assert sed
    with Limited(
        [sed, "-u", "-E", "s/(a+)b/<\\1>/g; y/xyz/XYZ/"], stdin=subprocess.PIPE,
        stdout=subprocess.PIPE, text=True,
    ) as program:  # fmt: skip
        assert program.stdin and program.stdout

        def ask(line: str) -> str:
            print(line, file=program.stdin, flush=True)
            return program.stdout.readline()

        expected = ask("xaab yab")
        before = text_of(program.pid)
        with markerjit.attach(program.pid) as session:
            with session.trace_calls("sed+0x*") as trace:
                answers = {ask("xaab yab") for _ in range(100)}
                trace.poll()
            graph = trace.graph()
        after = text_of(program.pid)
        program.stdin.close()

    assert answers == {expected} == {"X<aa> Y<a>\n"}
    assert after == before
    assert len(graph.opened) > 100
    assert graph.calls >= 300
    assert all(name.startswith("sed+0x") for name in graph.opened)
    assert not any(each.cut for each in graph.functions)
