"""Recipes as files: of the package and of our own, and what is refused."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from markerjit.cli.main import run


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of recipes, in a configuration of the test's own."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    recipes = tmp_path / "markerjit" / "recipes"
    recipes.mkdir(parents=True)
    return recipes


def write(folder: Path, text: str, name: str = "own") -> Path:
    path = folder / f"{name}.toml"
    path.write_text(text)
    path.chmod(0o644)
    return path


def test_recipes_are_listed_and_shown(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["recipe", "list"]) == 0
    table = capsys.readouterr().out
    assert run(["recipe", "list", "--json"]) == 0
    listed = json.loads(capsys.readouterr().out)
    assert run(["recipe", "show", "libc-malloc"]) == 0
    shown = capsys.readouterr().out

    assert all(len(line) <= 80 for line in table.splitlines())
    assert len(listed) == len(table.splitlines()) - 1 == 17
    assert "is: markerjit hist TARGET 'func:libc.so*:malloc' arg0\n" in shown
    assert "or: markerjit hist TARGET 'func:libc.so*:malloc' bytes\n" in shown


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ('command = "count"\narguments = []', "has no about"),
        ('about = "a"\ncommand = "rm"\narguments = []', "a command that a recipe cannot have"),
        ('about = "a"\ncommand = "count"\narguments = [1]', "is not a recipe: 1 is not a text"),
        ('about = "a"\ncommand = "count"\narguments = "kv"', "is not a recipe: 'kv' is not a list"),
        ("nonsense", "is not a recipe"),
        ("\xff", "is not a recipe"),
    ],
)
def test_file_that_is_no_recipe_is_refused(
    folder: Path, capsys: pytest.CaptureFixture[str], text: str, sentence: str
) -> None:
    path = write(folder, text)

    assert run(["recipe", "list"]) == 1
    listed = capsys.readouterr()
    assert sentence in listed.err and str(path) in listed.err
    assert len(listed.out.splitlines()) == 18
    assert run(["recipe", "show", "own"]) == 1
    assert sentence in capsys.readouterr().err
    assert run(["recipe", "show", "libc-malloc"]) == 0


def shown(capsys: pytest.CaptureFixture[str]) -> str:
    assert run(["recipe", "show", "libc-malloc"]) == 0
    return capsys.readouterr().out


def test_recipe_of_our_own_comes_first_and_one_of_others_is_not_read(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = 'about = "mine"\ncommand = "count"\narguments = ["kv_hit"]'
    path = write(folder, text, "libc-malloc")

    assert "libc-malloc: mine" in shown(capsys)
    os.chmod(path, 0o666)
    assert "libc-malloc: the sizes" in shown(capsys)
    assert run(["recipe", "list"]) == 0
    assert f"{path} is not read: another user can write it" in capsys.readouterr().err


def test_what_is_no_file_is_not_waited_for(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    os.mkfifo(folder / "own.toml", 0o600)
    (folder / "link.toml").symlink_to("/dev/zero")
    (folder / "folder.toml").mkdir()

    assert run(["recipe", "list"]) == 0
    listed = capsys.readouterr()
    assert len(listed.out.splitlines()) == 18
    for name in ("own", "link", "folder"):
        assert f"{folder / name}.toml is not read" in listed.err


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("show", "libc-maloc"), "did you mean libc-malloc"),
        (("show", "zzz"), "markerjit recipe list"),
        (("run", "libc-malloc"), "markerjit recipe run libc-malloc PID"),
        (("show",), "markerjit recipe list"),
        (("run", "cpp-exceptions", "1", "--top", "5"), "trace, the command of this recipe, has no"),
    ],
)
def test_what_is_not_there_is_refused_with_the_next_step(
    folder: Path, capsys: pytest.CaptureFixture[str], words: tuple[str, ...], sentence: str
) -> None:
    assert run(["recipe", *words]) == 1
    assert sentence in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("--top", "x"), "markerjit hist: argument --top: 'x' is not a positive number"),
        (("--keys", "9"), "`markerjit recipe show RECIPE` prints the command line"),
    ],
)
def test_wrong_options_are_refused_by_the_command_or_with_the_way_to_it(
    folder: Path, capsys: pytest.CaptureFixture[str], words: tuple[str, ...], sentence: str
) -> None:
    with pytest.raises(SystemExit, match="2"):
        run(["recipe", "run", "libc-reads", "1", *words])
    assert sentence in capsys.readouterr().err
