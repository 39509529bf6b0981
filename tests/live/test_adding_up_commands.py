"""`count`, `stat`, `hist` and `quantiles`, as a user sees them."""

from __future__ import annotations

import json
import re
import shutil
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support.commands import cli, running
from tests.support.markers import wait_until_on
from tests.support.programs import Target
from tests.support.terminals import in_terminal, screen_of

pytestmark = pytest.mark.live


@pytest.fixture
def program(target: Callable) -> Any:
    return target("truth_keys", "1", "--keys", "4")


def while_it_adds(program: Any, *arguments: object, do: tuple[str, ...]) -> str:
    """The output of a command that is interrupted when the program has done something."""
    with running(*arguments, stderr=None) as process:
        try:
            wait_until_on(program.pid, lambda: "added up" in cli("status", program.pid).stdout)
            for line in do:
                program.ask(line)
        finally:
            process.send_signal(signal.SIGTERM)
        printed, _ = process.communicate()
    assert process.returncode == 0
    assert "added up" not in cli("status", program.pid).stdout
    return printed


def test_interrupted_command_prints_what_it_has(program: Any) -> None:
    printed = while_it_adds(
        program, "count", program.pid, "truth_key", "--by", "key, text", "--text", 8,
        do=("null 30", "long 2"),
    )  # fmt: skip

    assert printed == (
        "KEY  TEXT  COUNT      %\n"
        " -1  None     30  100.0\n"
        "1 key, 30 events\n"
        "2 events had a text of more than 8 bytes in the key; cut it, as in key[:32], or --text "
        "16\n"
    )


def test_several_processes_have_one_answer_unless_each_is_asked_for(target: Callable) -> None:
    programs = [target("truth_keys", "1", "--keys", "4") for _ in range(2)]
    pids = ",".join(str(program.pid) for program in programs)

    def shown(*words: object) -> str:
        with running(*words, stderr=None) as process:
            try:
                for program, turns in zip(programs, (3, 5), strict=True):
                    pid = program.pid
                    wait_until_on(pid, lambda: "added up" in cli("status", pid).stdout)  # noqa: B023
                    program.ask(f"null {turns}")
            finally:
                process.send_signal(signal.SIGTERM)
            printed, _ = process.communicate()
        return printed

    together = shown("count", pids, "truth_key", "--by", "key")
    each = shown("count", pids, "truth_key", "--by", "key", "--each")
    documents = shown("hist", pids, "truth_key", "key + 21", "--json")

    assert together.splitlines() == [
        "2 processes together:", "KEY  COUNT      %", " -1      8  100.0", "1 key, 8 events"
    ]  # fmt: skip
    lines = each.splitlines()
    assert lines[::4] == [f"process {program.pid}:" for program in programs]
    assert [lines[3], lines[7]] == ["1 key, 3 events", "1 key, 5 events"]
    parts = [*map(json.loads, documents.splitlines())]
    assert [part["events"] for part in parts] == [3, 5]


def test_statistics_histogram_and_quantiles_are_shown(program: Any) -> None:
    shown = {
        name: while_it_adds(program, name, program.pid, "truth_key", value, do=("null 3",))
        for name, value in {"stat": "key * 2", "hist": "key + 21", "quantiles": "key + 8"}.items()
    }

    assert shown["stat"] == "COUNT  SUM  MIN  AVG  MAX\n    3   -6   -2   -2   -2\n3 events\n"
    assert re.fullmatch(r"  \[16, 32\)  3  █{63}█*\n3 events\n", shown["hist"])
    assert max(map(len, shown["hist"].splitlines())) <= 80
    assert shown["quantiles"].splitlines()[1].split() == ["3", "7", "7", "7", "7"]


def test_document_has_all_rows_and_what_was_missed(program: Any) -> None:
    printed = while_it_adds(
        program, "count", program.pid, "truth_key", "--by", "key", "--json", do=("null 5",)
    )

    assert json.loads(printed) == {
        "pid": program.pid, "what": "count()", "by": "key", "rows": [{"key": [-1], "count": 5}],
        "events": 5, "missed": {"full": 0, "long": 0, "nan": 0, "unreadable": 0}, "keys": 1,
        "room": 1024,
    }  # fmt: skip


def test_interval_has_what_came_in_it(program: Any) -> None:
    program.ask("resume")
    done = cli("stat", program.pid, "truth_key", "key", "--every", "100ms", "-d", "350ms", "--json")
    documents = [json.loads(line) for line in done.stdout.splitlines()]

    assert done.returncode == 0, done.stderr
    assert len(documents) >= 2
    assert all(document["events"] > 0 for document in documents[:-1])
    assert all("min" not in row for document in documents for row in document["rows"])


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("count", "truth_key", "--by", "kee"), "there is no name kee; did you mean key"),
        (("hist", "truth_key", "text"), "this is a text"),
        (("hist", "truth_key", "key", "--by", "key", "--keys", "1M"), r"1000000 keys .*--keys"),
        (("count", "truth_none"), "truth_none"),
        (("count", "truth_key", "--top", "3"), "--top 3 is of keys; add some, such as --by name"),
    ],
)  # fmt: skip
def test_nonsense_is_refused_in_a_sentence(
    program: Any, arguments: tuple[str, ...], sentence: str
) -> None:
    command, *rest = arguments
    done = cli(command, program.pid, *rest)

    assert done.returncode == 1
    assert re.search(sentence, done.stderr)


def test_process_that_ends_is_said_to_have_ended(program: Any) -> None:
    with running("count", program.pid, "truth_key") as process:
        wait_until_on(program.pid, lambda: "added up" in cli("status", program.pid).stdout)
        program.ask("null 3")
        program.process.stdin.close()
        program.wait()
        printed, error = process.communicate()

    assert printed == "3 events\n"
    assert "has ended" in error
    assert process.returncode == 1


def test_question_that_is_wrong_for_all_that_are_there_is_refused(
    build: Path, tmp_path: Path
) -> None:
    path = Path(shutil.copy(build / "truth_keys", tmp_path))
    new = ("--exe", path, "truth_key", "--by", "kye", "--new")

    program = Target(path, "1", "--keys", "4")
    try:
        program.wait_ready()
        done = cli("count", *new)
    finally:
        program.end()

    assert done.returncode == 1
    assert "there is no name kye; did you mean key?" in done.stderr


def test_remarks_at_the_end_stand_above_the_last_table_and_not_on_it(
    build: Path, tmp_path: Path
) -> None:
    path = Path(shutil.copy(build / "truth_keys", tmp_path))  # no other test looks at this file
    new = ("--exe", path, "truth_key", "--by", "key", "--new")

    program = Target(path, "1", "--keys", "4")
    try:
        program.wait_ready()
        shown = screen_of(in_terminal("count", *new, "-d", "1200ms", NO_COLOR="1"))
    finally:
        program.end()

    begin, end, *table = [line for line in shown if line]
    assert begin.startswith("those that start later are seen by")
    assert end == "1 program with such markers, and 0 without"
    assert table == ["0 keys, 0 events"]
