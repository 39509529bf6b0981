"""Defaults of options: from the environment, or from config.toml in $XDG_CONFIG_HOME/markerjit.

    color = "always"            of each command that has --color
    ring-size = 4

    [trace]                     of this command alone
    time = "coarse"

The command line comes before the environment (MARKERJIT_RING_SIZE=4), and that before the file.
Another user's file is not read.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterator, Mapping
from typing import Any

from markerjit.cli.parser import COMMANDS
from markerjit.errors import Refused
from markerjit.ours import config_folder, read_linked_file
from markerjit.tuples import NamedTuple

KEYS = {
    "color": "auto, always or never",
    "columns": "the parts of the lines of events",
    "every": "how often status --watch and top look",
    "quiesce": "how threads are kept from harm",
    "ring-growth": "MiB by which rings may grow",
    "ring-size": "MiB of records for each CPU",
    "rows": "the most rows of top",
    "seccomp": "what is done about seccomp filters",
    "strings": "how strings are read",
    "text": "the most bytes of a string",
    "time": "where an event's time comes from",
}
"""The options that may have another default, and what they are."""
BUILT_IN = {
    "color": "auto",
    "columns": "time,cpu,tid,name,fields",
    "every": "1",
    "quiesce": "stop",
    "ring-growth": "64",
    "ring-size": "1",
    "rows": "20",
    "seccomp": "read",
    "strings": "fast",
    "text": "256",
    "time": "tsc",
}
"""What holds where nothing else is set, as it could be written in the file. A terminal gets as many
`rows` as it has lines."""
_OF = {"every": ("status", "top")}
"""Commands that a key is for which is of some only. Others have an option of this name that means
something else, and a table of their own."""
_PREFIX = "MARKERJIT_"


class Setting(NamedTuple):
    """A default as it was written, and where: the file, or the variable of the environment.
    `command` is the one that it is for, "" for all."""

    key: str
    value: str
    origin: str
    command: str = ""


def settings() -> list[Setting]:
    """All that are written somewhere; of one key the later ones hold. Raises Refused for a key
    that there is not, and for a file that makes no sense."""
    return [*_of_file(), *_of_environment()]


def apply(parser: argparse.ArgumentParser, command: str) -> None:
    """Give the options of a command these defaults. Raises Refused for a value that its option
    does not take."""
    options = {name: action for action in parser._actions for name in action.option_strings}
    preset: dict[str, Any] = {}
    for setting in settings():
        action = options.get(f"--{setting.key}")
        is_for = command in _OF.get(setting.key, (command,)) and not setting.command
        if action is not None and (is_for or setting.command == command):
            preset[action.dest] = _converted(action, setting)
    parser.set_defaults(**preset, preset=preset)


def path() -> str:
    """The file, which need not be there."""
    return os.path.join(config_folder(), "markerjit", "config.toml")


def _of_file() -> Iterator[Setting]:
    name = path()
    try:
        content = read_linked_file(name)
        import tomllib

        document = tomllib.loads(content.decode())
    except (FileNotFoundError, NotADirectoryError):
        return
    except PermissionError:  # another user's, whose HOME sudo and su may leave: repair has to work
        return
    except OSError as error:
        raise Refused(f"cannot read {name}: {error.strerror or error}") from None
    except ValueError as error:  # TOML or UTF-8
        raise Refused(f"{name} is not TOML: {error}") from None
    tables = {key: value for key, value in document.items() if isinstance(value, dict)}
    for command in tables:
        if command not in COMMANDS:
            raise Refused(f"{name}: there is no command {command}{_near(command, COMMANDS)}")
    common = {key: value for key, value in document.items() if key not in tables}
    for command, table in {"": common, **tables}.items():
        for key, value in table.items():
            if key not in KEYS:
                raise Refused(f"{name}: there is no key {key}{_near(key, KEYS)}")
            yield Setting(key, _text(value), name, command)


def _of_environment() -> Iterator[Setting]:
    for key in KEYS:
        variable = _PREFIX + key.upper().replace("-", "_")
        value = os.environ.get(variable)
        if value:
            yield Setting(key, value, variable)


def _text(value: object) -> str:
    """A value of TOML as it would stand on a command line."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list):
        return ",".join(map(_text, value))
    return str(value)


def _converted(action: argparse.Action, setting: Setting) -> Any:
    try:
        kind: Any = action.type or str
        value = kind(setting.value)
        if action.choices is not None and value not in action.choices:
            raise argparse.ArgumentTypeError(
                f"'{value}' is none of {', '.join(map(str, action.choices))}"
            )
    except (argparse.ArgumentTypeError, ValueError) as error:
        raise Refused(f"{setting.origin}: {setting.key}: {error}") from None
    return value


def _near(name: str, known: Mapping[str, str]) -> str:
    import difflib

    near = difflib.get_close_matches(name, known, 1)
    return f"; did you mean {near[0]}?" if near else f"; there are {', '.join(known)}"
