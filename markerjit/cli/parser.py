"""The parser of the command line: its commands, and the arguments of the one that is chosen.

A command's module is imported when its parser is asked for, and no other. Nothing is run here.
"""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False  # type checkers take it for true; typing is not imported this early

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace
    from collections.abc import Sequence
    from typing import Any, NoReturn

DESCRIPTION = "Markers in running programs: find them, switch them on and off, watch them."

JOBS = {
    "Look": {
        "ps": "list the processes that have markers, and what is on in them",
        "list": "list the markers of a process or a file",
        "status": "show what is on in a process, since when, with its hits",
        "top": "show hits per second by marker, thread or field",
        "watch": "a live view of markers: rates, bytes in memory, switches",
    },
    "Switch": {
        "on": "switch markers on, and leave them on",
        "off": "switch markers off",
        "replace": "replace a function of a process by one in C, and back",
    },
    "Record": {
        "trace": "switch markers on, stream their events, switch them off",
        "flight": "a flight recorder: keep the newest events, and save them",
        "read": "print, sum up or convert a stored trace",
        "export": "serve markers as metrics for Prometheus, or as OTLP",
    },
    "Ask": {
        "count": "count executions in the process, by key",
        "stat": "sum, minimum, mean and maximum of a value, by key",
        "hist": "a histogram of a value by powers of two, by key",
        "quantiles": "quantiles of a value, by key",
        "latency": "the time from one marker to the next with the same key",
        "recipe": "ready-made questions for known programs",
    },
    "Follow": {
        "calls": "every call of a program's functions: counts, times, callers",
        "alloc": "what a program allocates and does not free, by call site",
        "stack": "the stacks of a process's threads, now or in samples",
    },
    "Check and repair": {
        "doctor": "what will work here, or on a process, and why not",
        "coverage": "how much of a program's code can be opened, and how",
        "repair": "after an accident: clean up what a dead controller left",
    },
    "Learn and measure": {
        "demo": "a tour of the bundled server under load",
        "explain": "a marker's note, bytes and assembly, and what `on` would write",
        "lab": "guided experiments: why live patching is hard",
        "bench": "what a marker costs on this machine",
    },
    "Set up": {
        "config": "the defaults of options, and where they are set",
        "completion": "a script that completes command lines in bash, zsh or fish",
    },
}
"""The commands by job, each with the line that says what it does."""

COMMANDS = {name: line for commands in JOBS.values() for name, line in commands.items()}

OPTIONS = {
    "--cflags": "what a C compiler needs to find markerjit/marker.h",
    "--libs": "the library of markerjit/probes.h",
    "--version": "the version",
    "--help": "the commands",
}
"""Options without a command."""


_BEGINNING = (
    "`markerjit COMMAND --help` explains a command and shows examples. `markerjit demo` needs no "
    "program of your own, and `markerjit doctor` says what will work here."
)

LAUNCHING = (
    *("trace", "on", "flight", "count", "stat", "hist", "quantiles", "latency"),
    *("recipe", "calls", "alloc"),
)
"""Commands that take `-- COMMAND ARGS...`, a program to start."""


def split(arguments: Sequence[str]) -> tuple[Sequence[str], Sequence[str] | None]:
    """The words of our command, and the program behind `--`; None without one."""
    if arguments[:1] and arguments[0] in LAUNCHING and "--" in arguments:
        at = arguments.index("--")
        return arguments[:at], arguments[at + 1 :]
    return arguments, None


def parser_of(
    chosen: str = "", *given: str, program: Sequence[str] | None = None
) -> ArgumentParser:
    """A parser with the chosen command and its arguments, or with the names of all commands. The
    words that are `given`, and a program, decide which arguments the command has (targets.py)."""
    import argparse
    from importlib import import_module

    # It would look for a translation of each word of its own, and import locale for that.
    vars(argparse)["_"] = str

    class Parser(argparse.ArgumentParser):
        """A parser that reports an output which cannot be written. argparse of later Pythons 3.11
        ignores it."""

        def error(self, message: str) -> NoReturn:
            """End with one line; the usage of some commands would be ten more."""
            lacking = message.removeprefix("the following arguments are required: ")
            if lacking != message and {"PATTERN", "FROM"} & {*lacking.split(", ")}:
                given = self.get_default("given") or ()
                first = next(iter(given), "PID")
                where = "PID" if first.startswith("-") else first
                message += f"; `markerjit list {where}` shows the markers that there are"
            if chosen == "recipe" and message.startswith("unrecognized arguments"):
                message += (
                    "; `markerjit recipe show RECIPE` prints the command line that it stands for, "
                    "which may have other options"
                )
            from markerjit.cli.output import say

            say(f"{self.prog}: {message}; `{self.prog} --help` explains it", error=True)
            self.exit(2)

        def _print_message(self, message: str, file: Any = None) -> None:
            print(message, end="", file=file or sys.stderr)

        def _get_formatter(self) -> argparse.HelpFormatter:
            # Asked for by each argument that is added. Without a width it would import shutil, and
            # with that all archives.
            return argparse.HelpFormatter(self.prog, width=_columns() - 2)

    class Overview(Parser):
        """The parser of all commands."""

        def format_help(self) -> str:
            return _overview(_columns() - 2)

    class Command(Parser):
        """The parser of a command. Options may stand between its other arguments, also before one
        that may be left out: argparse would take that as left out where it meets an option. Not so
        with `--`, which parse_known_intermixed_args of Python 3.11 forgets."""

        _is_intermixed = False

        def format_help(self) -> str:
            from markerjit.cli.examples import EXAMPLES

            lines = [f"\n  {line}\n      {meaning}" for line, meaning in EXAMPLES[chosen]]
            return f"{super().format_help()}\nexamples:{''.join(lines)}\n"

        def parse_known_args(  # type: ignore[override]
            self, args: Sequence[str], namespace: Namespace | None = None
        ) -> tuple[Namespace, list[str]]:
            # parse_known_intermixed_args comes back here for each of its two passes.
            if self._is_intermixed or "--" in args:
                return super().parse_known_args(args, namespace)
            self._is_intermixed = True
            return self.parse_known_intermixed_args(args, namespace)

    parser = Overview(prog="markerjit")
    # With its name, because argparse would import shutil to find it out.
    commands = parser.add_subparsers(
        dest="command", metavar="COMMAND", prog="markerjit", parser_class=Command
    )
    for name in [chosen] if chosen in COMMANDS else COMMANDS:
        line = COMMANDS[name]
        command = commands.add_parser(name, help=line, description=sentence(line))
        if name == chosen:
            command.set_defaults(given=given, program=program)
            if program == []:
                command.error("-- is followed by a program and its arguments")
            import_module(f"markerjit.cli.{name}").configure(command)
            command.add_argument(
                "--color",
                metavar="WHEN",
                choices=("auto", "always", "never"),
                default="auto",
                help="colours: auto (default: on a terminal, without NO_COLOR), always, never",
            )
    return parser


def command_parser(name: str, *given: str) -> ArgumentParser:
    """The parser of a command, for what shows its arguments in another form: completion, and man
    pages. Raises SystemExit for wrong usage among the words that are given."""
    return chosen_parser(parser_of(name, *given), name)


def chosen_parser(whole: ArgumentParser, name: str) -> ArgumentParser:
    """The parser of a command in the whole one, which was made for it."""
    commands = next(action for action in whole._actions if action.dest == "command")
    parser: ArgumentParser = commands.choices[name]  # type: ignore[index]
    return parser


def sentence(line: str) -> str:
    """The line of a command as a sentence."""
    return f"{line[0].upper()}{line[1:]}."


def _overview(width: int) -> str:
    """The help of all commands: those of one job stand together."""
    import textwrap

    def entries(texts: dict[str, str]) -> list[str]:
        return [
            textwrap.fill(text, width, initial_indent=f"    {name:<12}", subsequent_indent=" " * 16)
            for name, text in texts.items()
        ]

    lines = ["usage: markerjit COMMAND ...", "", textwrap.fill(DESCRIPTION, width)]
    for job, commands in JOBS.items():
        lines += ["", f"{job}:", *entries(commands)]
    lines += ["", "Options without a command:", *entries(OPTIONS)]
    return "\n".join([*lines, "", textwrap.fill(_BEGINNING, width), ""])


def _columns() -> int:
    """The width of the terminal, as shutil.get_terminal_size has it."""
    with_width = os.environ.get("COLUMNS", "")
    if with_width.isdecimal() and int(with_width):
        return int(with_width)
    try:
        return os.get_terminal_size(sys.__stdout__.fileno()).columns or 80  # type: ignore[union-attr]
    except (AttributeError, ValueError, OSError):
        return 80
