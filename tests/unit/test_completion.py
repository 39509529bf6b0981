"""The candidates for the last word of a command line, without a shell.

tests/live/test_completion.py presses Tab in real ones.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import markerjit
from markerjit.cli import completion, main
from markerjit.cli.complete import Candidate, candidates, in_bash, run, split
from markerjit.cli.parser import COMMANDS, command_parser
from markerjit.cli.values import FREE, KINDS
from tests.support.programs import ROOT

BREAKS = " \t\n\"'@><=;|&(:"
HEAVY = ("numpy", "rich", "textual", "pyarrow", "uvicorn")


def words_for(*words: str) -> list[str]:
    return [candidate.word for candidate in candidates(words).words]


def test_a_command_is_completed_and_explained() -> None:
    assert candidates(["tra"]).words == [Candidate("trace", COMMANDS["trace"])]
    assert set(words_for("")) == set(COMMANDS)
    assert words_for("--v") == ["--version"]
    assert words_for("nothing-such", "") == []


@pytest.mark.parametrize("command", COMMANDS)
def test_every_option_of_every_command_is_a_candidate(command: str) -> None:
    parser = command_parser(command)

    offered = words_for(command, "--")

    assert set(offered) == {
        action.option_strings[-1] for action in parser._actions if action.option_strings
    }


@pytest.mark.parametrize("command", COMMANDS)
def test_every_argument_has_values_or_is_known_to_have_none(command: str) -> None:
    unknown = [
        action
        for action in command_parser(command)._actions
        if action.nargs != 0
        and not action.choices
        and not {*action.option_strings, action.metavar or action.dest.upper()} & {*KINDS, *FREE}
    ]

    assert unknown == []


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("trace", "--mode", "ju"), ["jump"]),
        (("trace", "--mode=ju"), ["--mode=jump"]),
        (("trace", "12", "a", "--quiesce", "n"), ["none"]),
        (("trace", "-d", "5", "--quiesce", "n"), ["none"]),
        (("trace", "12", "--json", "--time", "mono"), ["monotonic"]),
        (("lab", "r"), ["run"]),
        (("lab", "run", "a", "k"), ["k"]),
        (("bench", "dorm"), ["dormant"]),
        (("completion", "b"), ["bash"]),
        (("trace", "-d", ""), []),
        (("completion", "bash", ""), []),
    ],
)
def test_the_argument_that_is_meant_is_found(words: tuple[str, ...], expected: list[str]) -> None:
    assert words_for(*words) == expected


@pytest.mark.parametrize(
    ("words", "others"),
    [
        (("trace", "12", "-o", ""), "files"),
        (("read", ""), "files"),
        (("list", "./"), "files"),
        (("trace", "x", "--", ""), "commands"),
        (("trace", "x", "--", "ls", ""), "files"),
        (("count", "x", "--", ""), "commands"),
        (("off", "x", "--", ""), "-"),
        (("trace", "--mode", ""), "-"),
    ],
)
def test_the_shell_is_asked_for_files_and_commands(words: tuple[str, ...], others: str) -> None:
    assert candidates(words).others == others


def test_a_file_gives_its_markers(build: Path) -> None:
    program = str(build / "truth_threads")

    assert words_for("list", program, "truth_l") == ["truth_loop"]
    assert words_for("list", program, "truth_birth,truth_l") == ["truth_birth,truth_loop"]
    assert words_for("explain", program, "x", "!truth_l") == ["!truth_loop"]
    assert words_for("explain", program, "--in", "truth_") == ["truth_threads"]


@pytest.mark.parametrize("words", [("list", "no-such-f"), ("trace", "--name", "no-such-p")])
def test_no_process_is_looked_into_where_none_has_such_a_name(
    monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...]
) -> None:
    asked: list[int] = []
    monkeypatch.setattr(markerjit, "find_marked", lambda pids: asked.extend(pids) or [])

    assert words_for(*words) == []
    assert asked == []


def test_the_name_of_a_program_with_markers_is_a_candidate(target: Callable) -> None:
    target("truth_modes-jump")

    assert "truth_modes-jum" in words_for("list", "truth_m"), "a name in /proc has 15 characters"


@pytest.mark.parametrize("name", ["$(touch x)", "a b", "a;b", "`x`", "a'b", "a\nb", "~x", "a\x1b"])
def test_a_name_that_a_shell_would_read_as_more_is_no_candidate(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    values = KINDS["PATTERN"]._replace(values=lambda word, given: [(name, ""), ("good", "")])
    monkeypatch.setitem(KINDS, "PATTERN", values)

    assert words_for("list", "12", "") == ["good"]


def test_what_a_candidate_means_reaches_a_terminal_as_text(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    values = KINDS["PATTERN"]._replace(values=lambda word, given: [("good", "\x1b[2J\tx\ny")])
    monkeypatch.setitem(KINDS, "PATTERN", values)

    assert run(["words", "list", "12", ""]) == 0

    assert capsys.readouterr().out == "-\ngood\t\\x1b[2J\\tx\\ny\n"


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("markerjit", ["markerjit"]),
        ("markerjit ", ["markerjit", ""]),
        ("markerjit on 12 'kv_*' kv", ["markerjit", "on", "12", "kv_*", "kv"]),
        ("markerjit on 12 'kv_", ["markerjit", "on", "12", "kv_"]),
        ('markerjit on 12 "a b" c\\ d', ["markerjit", "on", "12", "a b", "c d"]),
        ('markerjit on "a\\"b', ["markerjit", "on", 'a"b']),
        ("markerjit on $(x) ''", ["markerjit", "on", "$(x)", ""]),
        ("markerjit on a\\", ["markerjit", "on", "a"]),
        ("", [""]),
    ],
)
def test_a_line_is_divided_as_a_shell_does_and_nothing_is_expanded(
    line: str, words: list[str]
) -> None:
    assert split(line) == words


def test_bash_replaces_what_stands_behind_its_last_break() -> None:
    meant = [Candidate("--mode=jump"), Candidate("--mode=nop")]

    assert in_bash(meant, "--mode=", "9", BREAKS) == ["jump", "nop"]
    assert in_bash([Candidate("a:b")], "a:", "9", BREAKS) == ["b"]
    assert in_bash([Candidate("a:b")], "a:", "9", " ") == ["a:b"]


def test_bash_says_what_candidates_mean_only_in_a_listing() -> None:
    meant = [Candidate("12", "server"), Candidate("13", "client")]

    assert in_bash(meant, "1", "63", BREAKS) == ["12  (server)", "13  (client)"]
    assert in_bash(meant, "1", "9", BREAKS) == ["12", "13"]
    assert in_bash(meant[:1], "1", "63", BREAKS) == ["12"]


IMPORTS = """
import json, os, sys
from markerjit.cli import main
for command in sys.argv[1:]:
    sys.stdout.flush()
    if not (child := os.fork()):
        main.run(["complete", "words", command, "--"])
        print(json.dumps([command, *sorted(sys.modules)]), flush=True)
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0, command
"""
"""A fork for each command, of a process that has imported what is common to all."""


def test_completing_an_option_imports_nothing_heavy() -> None:
    done = subprocess.run(
        [sys.executable, "-c", IMPORTS, *COMMANDS],
        cwd=ROOT, capture_output=True, text=True, check=True,
    )  # fmt: skip

    imports = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("[")]
    heavy = {command: {*HEAVY} & {*names} for command, *names in imports}

    assert [*heavy] == [*COMMANDS]
    assert heavy.pop("lab") <= {"numpy"}  # its experiments measure
    assert {command: names for command, names in heavy.items() if names} == {}


@pytest.mark.parametrize("shell", completion.SCRIPTS)
def test_a_script_names_the_python_that_printed_it(
    shell: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main.run(["completion", shell]) == 0

    script = capsys.readouterr().out
    assert f"{sys.executable} -P -m markerjit complete" in script
    assert "@" not in script.replace("(@", "").replace("[@", "").replace("@f", "")


@pytest.mark.parametrize("shell", completion.SCRIPTS)
def test_a_script_of_a_copied_folder_says_where_that_is(shell: str, tmp_path: Path) -> None:
    """Nothing else says so when a shell runs it: not the present folder, and no variable."""
    folder = tmp_path / "a folder"
    folder.mkdir()
    (folder / "markerjit").symlink_to(ROOT / "markerjit")
    (folder / "__main__.py").symlink_to(ROOT / "markerjit" / "__main__.py")
    command = [sys.executable, "-I", folder, "completion", shell]

    script = subprocess.run(command, capture_output=True, text=True, check=True).stdout

    complete = f"env 'PYTHONPATH={folder}' {sys.executable} -P -m markerjit complete"
    assert complete in script
    words = subprocess.run(
        ["sh", "-c", f"{complete} words tra"], cwd="/", env={"PATH": os.environ["PATH"]},
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert "trace" in words.stdout


def test_the_hidden_command_is_hidden(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main.run(["--help"])
    assert "  complete " not in capsys.readouterr().out
    assert run(["tcsh"]) == 2
