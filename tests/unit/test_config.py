"""Defaults of options from a file and the environment: what holds, and what is refused."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

import pytest

from markerjit.cli import defaults
from markerjit.cli.main import run
from markerjit.cli.parser import COMMANDS, command_parser
from markerjit.errors import Refused
from tests.support.made_traces import EVENTS, write_trace


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file, in a folder of the test's own."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    for key in defaults.KEYS:
        monkeypatch.delenv(f"MARKERJIT_{key.upper().replace('-', '_')}", raising=False)
    (tmp_path / "markerjit").mkdir()
    return tmp_path / "markerjit" / "config.toml"


def chosen(command: str, *words: str) -> dict[str, object]:
    """The options of a command line."""
    parser = command_parser(command, *words)
    defaults.apply(parser, command)
    return vars(parser.parse_args(words))


def test_each_key_is_an_option_of_some_command() -> None:
    options = {
        name
        for command in COMMANDS
        for action in command_parser(command)._actions
        for name in action.option_strings
    }

    assert {f"--{key}" for key in defaults.KEYS} <= options


def test_the_command_line_comes_before_the_environment_and_that_before_the_file(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert chosen("trace", "7")["ring_size"] is None
    file.write_text('ring-size = 4\nquiesce = "membarrier"\n')
    assert chosen("trace", "7")["ring_size"] == 4 << 20
    monkeypatch.setenv("MARKERJIT_RING_SIZE", "8")
    assert chosen("trace", "7")["ring_size"] == 8 << 20
    assert chosen("trace", "7", "--ring-size", "16")["ring_size"] == 16 << 20
    assert chosen("on", "7", "a")["quiesce"] == "membarrier"


def test_a_table_is_for_one_command(file: Path) -> None:
    file.write_text('color = "never"\n[trace]\ntime = "coarse"\ncolor = "always"\n')

    assert (chosen("trace", "7")["time"], chosen("trace", "7")["color"]) == ("coarse", "always")
    assert chosen("flight", "start", "7", "a")["time"] is None
    assert chosen("status", "7")["color"] == "never"


def test_what_is_built_in_can_be_written_and_changes_nothing(file: Path) -> None:
    assert defaults.BUILT_IN.keys() == defaults.KEYS.keys()
    words = {"read": ("a.ctf",), "flight": ("start", "7", "a"), "trace": ("7",), "top": ("7",)}
    usual = {command: chosen(command, *words[command]) for command in words}
    for before in usual.values():
        del before["preset"]

    file.write_text("".join(f"{key} = '{value}'\n" for key, value in defaults.BUILT_IN.items()))

    for command, before in usual.items():
        after = chosen(command, *words[command])
        for option, value in before.items():
            assert value in (None, after[option]), (command, option)


def test_a_default_is_no_mistake_where_it_has_no_meaning(
    file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """As an option of the command line it is one."""
    trace = write_trace(tmp_path / "a.jsonl", EVENTS[:2], {})
    elsewhere = (["--json"], ["--stats"], ["-o", str(tmp_path / "b.ctf")], ["--format", "{name}"])
    file.write_text("columns = ['tid', 'name']\nevery = 7\n")

    assert run(["read", trace]) == 0
    assert capsys.readouterr().out == "812 query_start\n813 kv_get\n"
    for words in elsewhere:
        assert run(["read", trace, *words]) == 0, words
        assert run(["read", trace, *words, "--columns", "tid"]) == 1, words
    capsys.readouterr()
    nobody = str(1 << 22)  # above the largest pid
    assert run(["status", nobody]) == run(["status", nobody, "--every", "1"]) == 1
    before, after = capsys.readouterr().err.splitlines()
    assert f"no process {nobody}" in before and "--every says how often" in after


def test_how_often_is_of_what_looks_again(file: Path) -> None:
    """`every` of these commands means something else."""
    usual = {"count": chosen("count", "7", "a")["every"], "stack": chosen("stack", "7")["every"]}
    file.write_text("every = 7\n[stack]\nevery = 3\n")

    assert chosen("top", "7")["every"] == chosen("status", "7")["every"] == 7
    assert chosen("count", "7", "a")["every"] == usual["count"]
    assert chosen("stack", "7")["every"] == 3 != usual["stack"]


def test_lists_are_those_of_the_command_line(file: Path) -> None:
    file.write_text('columns = ["time", "delta", "fields"]\n')

    assert chosen("read", "a.ctf")["columns"] == ["time", "delta", "fields"]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("colour = 1", "there is no key colour; did you mean color?"),
        ("nothing-such = 1", "there is no key nothing-such; there are color, "),
        ("[trase]\ntime = 'tsc'", "there is no command trase; did you mean trace?"),
        ("ring-size = 3", "ring-size: '3' is not a power of two of MiB up to 1024"),
        ('time = "never"', "time: 'never' is none of tsc, monotonic, coarse, none"),
        ("color = ", "is not TOML: "),
    ],
)
def test_what_makes_no_sense_is_one_line_of_each_command(
    file: Path, text: str, reason: str, capsys: pytest.CaptureFixture[str]
) -> None:
    file.write_text(text)

    assert run(["trace", "1"]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"markerjit: {file}") and reason in line
    assert run(["config"]) == 1
    assert reason in capsys.readouterr().err


def test_a_wrong_variable_is_named(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MARKERJIT_TEXT", "much")

    with pytest.raises(Refused, match="MARKERJIT_TEXT: text: 'much' is not a positive number"):
        chosen("trace", "7")


def test_a_file_of_another_user_is_not_read(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file.write_text("ring-size = 4")
    monkeypatch.setattr("os.geteuid", lambda: file.stat().st_uid + 1)

    expected = 4 << 20 if file.stat().st_uid == 0 else None
    assert chosen("trace", "7")["ring_size"] == expected


def test_a_file_that_is_a_pipe_is_not_waited_for(
    file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    os.mkfifo(file)

    assert run(["config"]) == 1
    assert capsys.readouterr().err == (f"markerjit: cannot read {file}: it is not a regular file\n")


def test_config_says_each_default_and_where_it_stands(
    file: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file.write_text('[trace]\ntime = "coarse"\n')
    monkeypatch.setenv("MARKERJIT_COLOR", "never")

    assert run(["config"]) == 0
    shown = capsys.readouterr().out.splitlines()
    rows = [re.split(r"  +", line) for line in shown]
    assert ["color", "never", "MARKERJIT_COLOR", "auto, always or never"] in rows
    assert ["time of trace", "coarse", str(file), "where an event's time comes from"] in rows
    assert ["ring-size", "1", "built in", "MiB of records for each CPU"] in rows
    assert shown[-1] == f"the file is {file}"
    assert run(["config", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["file"] == str(file)
    assert {"key": "color", "value": "never", "origin": "MARKERJIT_COLOR", "command": None} in (
        document["settings"]
    )
