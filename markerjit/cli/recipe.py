"""`markerjit recipe list|show|run`: questions that others have written down.

A recipe is a small file, NAME.toml, in the package or in $XDG_CONFIG_HOME/markerjit/recipes:

    about = "commands of the demo's server, by name"
    needs = "a kvserver of markerjit's demo"
    command = "count"
    arguments = ["kv_command", "--by", "name"]

Its command is run with the target in front of its arguments, and our options behind them; for a
program that is started (`recipe run NAME -- COMMAND`), without a target. A file of the user's own
comes before one of the package, and one that another user could have written is not read.
"""

from __future__ import annotations

import argparse
import os
import tomllib
from collections.abc import Mapping, Sequence
from contextlib import suppress

import markerjit
from markerjit.cli import arguments, output
from markerjit.cli.parser import COMMANDS, LAUNCHING, command_parser, parser_of
from markerjit.ours import config_folder, own_directory, read_own_file
from markerjit.printable import printable
from markerjit.tuples import NamedTuple

_RECIPES = os.path.join(os.path.dirname(__file__), "recipes")
_OWN = ("markerjit", "recipes")
_SUFFIX = ".toml"
_MOST_BYTES = 1 << 16
_ASKING = ("count", "stat", "hist", "quantiles", "latency", "trace", "top", "alloc")
"""The commands that a recipe may have: they are over when they end, and write no file of their
own accord."""


class Recipe(NamedTuple):
    """A question that was written down. `instead` are other arguments, for targets whose markers do
    not have the names of the first ones. `origin` is the file."""

    name: str
    about: str
    needs: str
    command: str
    arguments: tuple[str, ...]
    instead: tuple[tuple[str, ...], ...]
    origin: str

    def line(self, target: str | None, given: Sequence[str] = (), number: int = 0) -> list[str]:
        """The words of the command line that it is for a target; None: for a program behind it."""
        chosen = (self.arguments, *self.instead)[number]
        return [self.command, *([] if target is None else [target]), *chosen, *given]


def configure(parser: argparse.ArgumentParser) -> None:
    """The command's arguments."""
    parser.add_argument(
        "action",
        metavar="ACTION",
        choices=("list", "show", "run"),
        help="list: print the recipes; show: print one; run: run one on a process",
    )
    parser.add_argument("name", metavar="RECIPE", nargs="?", help="the name of a recipe")
    parser.add_argument(
        "target",
        metavar="TARGET",
        nargs="?",
        help="for run: the processes; or end with -- COMMAND, a program to start",
    )
    parser.add_argument("-d", "--duration", metavar="S", help="for run: end after S, such as 10s")
    parser.add_argument("--every", metavar="S", help="for run: show an answer every S seconds")
    parser.add_argument("--top", metavar="N", help="for run: show the N most frequent keys")
    arguments.add_json(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """List recipes, show one, or run it."""
    if options.program and options.action != "run":
        raise markerjit.Refused(f"{options.action} starts no program; leave out -- and the rest")
    if options.action == "list":
        return _list(options)
    if options.name is None:
        raise markerjit.Refused("name a recipe; `markerjit recipe list` has them")
    recipe = _find(options.name)
    if options.action == "show":
        return _show(recipe, options)
    if options.program and options.target is not None:
        raise markerjit.Refused("a program that is started is the target: leave out the other")
    if options.program and recipe.command not in LAUNCHING:
        raise markerjit.Refused(
            f"{recipe.command}, of this recipe, starts no program; name a process"
        )
    if options.target is None and not options.program:
        raise markerjit.Refused(
            f"name a process: markerjit recipe run {recipe.name} PID, or end with -- COMMAND; it "
            f"is for {recipe.needs}"
        )
    given = ["--json"] if options.json else []
    for option in ("duration", "every", "top"):
        if (value := getattr(options, option)) is not None:
            _check_option(recipe, f"--{option}")
            given += [f"--{option}", value]
    return _run(recipe, options, given)


def _check_option(recipe: Recipe, option: str) -> None:
    """Refuse an option that the recipe's command does not have."""
    options = command_parser(recipe.command)._option_string_actions
    if option not in options:
        raise markerjit.Refused(
            f"{recipe.command}, the command of this recipe, has no {option}; leave it out"
        )


def _list(options: argparse.Namespace) -> int:
    """All recipes, and what is wrong with the other files."""
    recipes, unread, broken = recipes_here()
    if options.json:
        output.print_json([_facts(recipe) for recipe in recipes])
    else:
        output.print_table(
            ["RECIPE", "COMMAND", "ANSWERS"],
            [[recipe.name, recipe.command, recipe.about] for recipe in recipes],
        )
    for problem in (*unread, *broken):
        output.say(f"markerjit: {problem}", error=True)
    return bool(broken)


def _show(recipe: Recipe, options: argparse.Namespace) -> int:
    if options.json:
        output.print_json(_facts(recipe))
        return 0
    from shlex import join

    output.say(f"{recipe.name}: {printable(recipe.about)}")
    output.say(f"needs: {printable(recipe.needs)}")
    output.say(f"is: markerjit {printable(join(recipe.line('TARGET')))}")
    for number in range(len(recipe.instead)):
        output.say(f"or: markerjit {printable(join(recipe.line('TARGET', number=number + 1)))}")
    output.say(f"from: {printable(recipe.origin)}")
    return 0


def _facts(recipe: Recipe) -> dict[str, object]:
    return recipe._asdict()


def _run(recipe: Recipe, chosen: argparse.Namespace, given: Sequence[str]) -> int:
    """The recipe's command. A name that the target's markers do not have is refused before anything
    is switched on, so the next arguments can be tried."""
    from markerjit.cli import defaults
    from markerjit.cli.parser import chosen_parser

    first: markerjit.BadQuestion | None = None
    for number in range(1 + len(recipe.instead)):
        words = recipe.line(chosen.target, given, number)
        parser = parser_of(*words, program=chosen.program)
        defaults.apply(chosen_parser(parser, recipe.command), recipe.command)
        options = parser.parse_args(words)
        try:
            return int(options.run(options))
        except markerjit.BadQuestion as error:
            first = first or error
        except markerjit.UnknownMarker as error:
            error.add_note(f"the recipe {recipe.name} is for {printable(recipe.needs)}")
            raise
    assert first
    raise first


# ---- files ---------------------------------------------------------------------------------------


class _File(NamedTuple):
    """A file of a recipe, whatever is in it."""

    path: str
    content: bytes


def _files() -> tuple[Mapping[str, _File], Sequence[markerjit.Refused]]:
    """The files of all recipes, by their names, and why others are not read. One of the user's own
    comes before one of the package."""
    files = {}
    for name in _names_of(os.listdir(_RECIPES)):
        path = os.path.join(_RECIPES, name + _SUFFIX)
        with open(path, "rb") as file:
            files[name] = _File(path, file.read())
    unread = []
    base = config_folder()
    with suppress(OSError), own_directory(base, _OWN) as directory:
        for name in _names_of(os.listdir(directory)):
            path = os.path.join(base, *_OWN, name + _SUFFIX)
            try:
                content = read_own_file(directory, name + _SUFFIX, _MOST_BYTES)
            except OSError as error:
                unread.append(markerjit.Refused(f"{path} is not read: {error.strerror or error}"))
            else:
                files[name] = _File(path, content)
    return dict(sorted(files.items())), unread


def _names_of(entries: Sequence[str]) -> list[str]:
    return [entry.removesuffix(_SUFFIX) for entry in sorted(entries) if entry.endswith(_SUFFIX)]


class Recipes(NamedTuple):
    """All recipes, by name; why files are not read, and why others are no recipes."""

    recipes: Sequence[Recipe]
    unread: Sequence[markerjit.Refused]
    broken: Sequence[markerjit.Refused]


def recipes_here() -> Recipes:
    """The recipes of the package and of the user."""
    files, unread = _files()
    recipes, broken = [], []
    for name, file in files.items():
        try:
            recipes.append(_recipe(name, file))
        except markerjit.Refused as problem:
            broken.append(problem)
    return Recipes(recipes, unread, broken)


def _find(name: str) -> Recipe:
    files, _ = _files()
    if name in files:
        return _recipe(name, files[name])
    import difflib

    nearest = difflib.get_close_matches(name, files)
    hint = f"; did you mean {nearest[0]}?" if nearest else "; `markerjit recipe list` has them"
    raise markerjit.Refused(f"there is no recipe {printable(name)}{hint}")


def _recipe(name: str, file: _File) -> Recipe:
    path = file.path
    try:
        document = tomllib.loads(file.content.decode())
        recipe = Recipe(
            name,
            _text(document["about"]),
            _text(document.get("needs", "any process")),
            _text(document["command"]),
            _texts(document["arguments"]),
            tuple(map(_texts, document.get("instead", []))),
            path,
        )
    except KeyError as error:
        raise markerjit.Refused(f"{path} has no {error.args[0]}") from None
    except (ValueError, TypeError, RecursionError) as error:
        raise markerjit.Refused(f"{path} is not a recipe: {error}") from None
    if recipe.command not in _ASKING or recipe.command not in COMMANDS:
        raise markerjit.Refused(
            f"{path} has a command that a recipe cannot have; there are {', '.join(_ASKING)}"
        )
    return recipe


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise ValueError(f"{value!r} is not a text")
    return value


def _texts(value: object) -> tuple[str, ...]:
    if not isinstance(value, list):
        raise ValueError(f"{value!r} is not a list of texts")
    return tuple(map(_text, value))
