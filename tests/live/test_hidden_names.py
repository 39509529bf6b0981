"""`event("tid")`: what an event has besides its fields, where a field has the same name; and names
of C++ as keys."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

import markerjit
from tests.support.commands import cli
from tests.support.compilers import INCLUDE
from tests.support.programs import Target

pytestmark = pytest.mark.live

TURNS = 24
PROGRAM = r"""
#include <markerjit/marker.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

namespace house {
__attribute__((noipa)) int hidden(int n) { return 3 * n + 1000; }
__attribute__((noipa)) int plain(int n) { return 5 * n + 1000; }
}

__attribute__((noipa)) static void run(int turns) {
    for (int n = 0; n < turns; n++) {
        MARK(hidden, "name=%d time=%ld tid=%d cpu=%d n=%d", n % 3, 7L, -n, 1000 + n, n);
        house::hidden(n);
        if (n % 2) {
            MARK(plain, "n=%d", n);
            house::plain(n);
        }
    }
}

int main(int argc, char **argv) {
    char line[64];
    if (argc > 1) {
        run(atoi(argv[1]));
        return 0;
    }
    puts("ready");
    fflush(stdout);
    while (fgets(line, sizeof line, stdin) && strcmp(line, "quit\n")) {
        int turns;
        if (sscanf(line, "run %d", &turns) == 1)
            run(turns);
        puts("done");
        fflush(stdout);
    }
}
"""
HIDDEN, PLAIN = "func:_ZN5house6hiddenEi", "func:_ZN5house5plainEi"
WRITTEN, WRITTEN_PLAIN = "func:house::hidden(int)", "func:house::plain(int)"


@pytest.fixture
def program(tmp_path: Path) -> Iterator[Target]:
    source, path = tmp_path / "hiding.cc", tmp_path / "hiding"
    source.write_text(PROGRAM)
    subprocess.run(["g++", "-O1", f"-I{INCLUDE}", "-o", path, source], check=True)
    made = Target(path)
    made.wait_ready()
    yield made
    made.end()


def counted(program: Target, pattern: str, by: str, **asked: str) -> dict[tuple[object, ...], int]:
    with markerjit.attach(program.pid) as session:
        with session.aggregate(pattern, by=by, **asked) as adding:
            program.command(f"run {TURNS}")
        return {row.key: row.events for row in adding.read().rows}


def test_a_key_is_what_the_event_has_and_not_the_field(program: Target) -> None:
    keys = counted(program, "hidden", 'event("name"), event("tid"), name')

    own = ("hidden", program.pid)
    assert keys == {(*own, at): TURNS // 3 for at in range(3)}


def test_a_condition_asks_the_event_and_the_field_apart(program: Target) -> None:
    met = f'event("tid") == {program.pid} and tid == -5 and event("time") > 7 and time == 7'
    cpus = 'event("cpu") < 1000 <= cpu and event("name") == "hidden"'

    keys = counted(program, "hidden", "n", where=f"{met} and {cpus}")

    assert keys == {(5,): 1}


def test_names_of_two_markers_are_keys_where_a_field_hides_one(program: Target) -> None:
    keys = counted(program, "hidden,plain", 'event("name")')

    assert keys == {("hidden",): TURNS, ("plain",): TURNS // 2}


def test_a_field_of_one_marker_is_not_mixed_with_the_names_of_others(program: Target) -> None:
    refused = cli("count", program.pid, "hidden,plain", "--by", "name", "-d", "1ms")
    alone = cli("count", program.pid, "hidden,plain", "--by", 'field("name")', "-d", "1ms")

    assert refused.returncode == 1
    assert (
        'name is a field of hidden, and not of plain; write event("name") for that of the event, '
        'or field("name") for the field alone'
    ) in refused.stderr
    assert alone.returncode == 0
    assert "left out: plain has no field name" in alone.stderr


def test_a_caller_that_is_hidden_is_compared_by_its_name(program: Target) -> None:
    keys = counted(program, HIDDEN, 'event("caller") == 0', where='event("caller") == "run*"')

    assert keys == {(False,): TURNS}


def test_names_of_functions_are_shown_as_they_were_written(program: Target) -> None:
    pattern = f"{HIDDEN},{PLAIN}"
    with markerjit.attach(program.pid, breakpoints=True) as session:
        with session.aggregate(pattern, by="name") as adding:
            program.command(f"run {TURNS}")
        rows = adding.read().rows
        with session.latency(pattern) as timing:
            program.command(f"run {TURNS}")
        times = timing.read().rows

    assert [(row.key, row.names) for row in rows] == [
        ((HIDDEN,), (WRITTEN,)), ((PLAIN,), (WRITTEN_PLAIN,))
    ]  # fmt: skip
    assert {row.names for row in times} == {(WRITTEN,), (WRITTEN_PLAIN,)}


def test_a_table_and_a_document_have_both_spellings_of_a_name(program: Target) -> None:
    asked = ("count", HIDDEN, "--by", "name", "--", program.path, TURNS)

    table, document = cli(*asked), cli(*asked[:4], "--json", *asked[4:])

    assert re.search(rf"^{re.escape(WRITTEN)} +{TURNS} +100.0$", table.stdout, re.MULTILINE)
    (row,) = json.loads(document.stdout)["rows"]
    assert (row["key"], row["names"], row["count"]) == ([HIDDEN], [WRITTEN], TURNS)


TEMPLATES = """
#include <map>
#include <string>
#include <vector>
int main() {
    std::map<std::string, std::vector<std::pair<long, std::string>>> all;
    for (int turn = 0; turn < 7; turn++)
        all[std::string(static_cast<unsigned>(turn) + 1, 'x')].push_back({turn, "y"});
    return all.size() != 7;
}
"""


@pytest.mark.parametrize(
    ("asked", "first"),
    [(("count", "--by", "name"), ("COUNT", "%", "NAME")), (("latency",), ("CALLS", "TOTAL", "50"))],
)
def test_keys_that_are_wider_than_a_line_stand_behind_their_numbers(
    tmp_path: Path, asked: tuple[str, ...], first: tuple[str, ...]
) -> None:
    source, path = tmp_path / "templates.cc", tmp_path / "templates"
    source.write_text(TEMPLATES)
    subprocess.run(["g++", "-O1", "-o", path, source], check=True)

    done = cli(asked[0], "func:templates:*_M_*", *asked[1:], "--", path)

    header, *rows = done.stdout.splitlines()
    assert tuple(header.split()[:3]) == first
    assert header.endswith("NAME")
    assert any(len(row) > 200 and row.split()[0].isdigit() for row in rows)


def test_commands_show_a_name_as_its_source_writes_it(program: Target) -> None:
    """And JSON has the symbol, which is the name of events."""
    on = cli("on", program.pid, "func:house::*")
    status = cli("status", program.pid)
    facts = json.loads(cli("status", program.pid, "--json").stdout)
    top = cli("top", program.pid, "func:house::*", "-d", "10ms")
    off = cli("off", program.pid, "func:house::*")

    for shown in (on.stdout, status.stdout, top.stdout, off.stdout):
        assert WRITTEN in shown
        assert "_Z" not in shown
    assert {HIDDEN, PLAIN} <= {marker["name"] for marker in facts["markers"]}
