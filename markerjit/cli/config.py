"""`markerjit config`: the defaults of options, and where they are set."""

from __future__ import annotations

import argparse

from markerjit.cli import arguments, defaults, output
from markerjit.cli.parser import COMMANDS, command_parser


def configure(parser: argparse.ArgumentParser) -> None:
    """The command's arguments."""
    arguments.add_json(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Print each key with its value and its origin. Values are checked by the commands that have
    the option."""
    settings = defaults.settings()
    for command in COMMANDS:
        defaults.apply(command_parser(command), command)
    if options.json:
        document = {
            "file": defaults.path(),
            "settings": [
                {**setting._asdict(), "command": setting.command or None} for setting in settings
            ],
        }
        output.print_json(document)
        return 0
    last = {(setting.key, setting.command): setting for setting in settings}
    rows = []
    for key, meaning in defaults.KEYS.items():
        of_key = [setting for (known, _), setting in last.items() if known == key]
        for setting in of_key:
            shown = f"{key} of {setting.command}" if setting.command else key
            rows.append([shown, setting.value, setting.origin, meaning])
        if not of_key:
            rows.append([key, defaults.BUILT_IN[key], "built in", meaning])
    output.print_table(["KEY", "VALUE", "FROM", "IS"], rows)
    output.say(f"the file is {defaults.path()}")
    return 0
