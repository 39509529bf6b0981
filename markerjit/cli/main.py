"""`markerjit`: choose the command, print errors as one line, turn them into an exit code.

Exit codes are 0 for done, 1 for refused or failed, with one line of reason on standard error, 2 for
wrong usage, and 128 and its number for a signal. A bug of ours keeps its traceback. A command's
module is imported when the command is used, and so is everything else, because until `main` is
called Ctrl-C shows a traceback.
"""

from __future__ import annotations

import errno
import os
import sys

TYPE_CHECKING = False  # type checkers take it for true; typing is not imported this early

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace
    from collections.abc import Sequence
    from typing import Any, NoReturn, TextIO

COMMANDS = {
    "demo": "the bundled server under load: list, switch, watch, compare",
    "doctor": "what will work here, or on a process, and why not",
    "list": "the markers of a process or a file",
    "ps": "the processes that have markers, and what is on in them",
    "on": "switch markers of a process on",
    "off": "switch markers of a process off",
    "status": "what is on in a process, since when, by which process, hits and losses",
    "watch": "a live view of markers: rates, bytes in memory, switches step by step",
    "trace": "switch markers on, stream their events, switch them off",
    "record": "a flight recorder: keep the newest events, without a reader",
    "dump": "save the events of a flight recorder",
    "read": "print, sum up or convert a trace that was written to a file",
    "repair": "after an accident: finish or take back what a controller left",
    "bench": "what a marker costs on this machine, in every form",
    "explain": "a marker's note, bytes and assembly, and what a switch would write",
    "lab": "guided experiments: why live patching is hard, in processes made to die",
}

SWITCHING = ("on", "off", "repair")
"""Commands that do nothing else, and end."""

LAUNCHING = ("trace",)
"""Commands that take `-- COMMAND ARGS...`, a program to start."""

_OUTPUT_ERRORS = (
    errno.EAGAIN,
    errno.EBADF,
    errno.ECONNRESET,
    errno.EDQUOT,
    errno.EFBIG,
    errno.EIO,
    errno.ENOSPC,
)
"""Numbers of errors of a write that has no room, or no reader at the other end."""


def main(argv: Sequence[str] | None = None) -> NoReturn:
    """The entry point of the command."""
    from markerjit.cli import signals

    signals.end_at_once()  # first, because imports take most of a short command's time
    sys.exit(_prepare_output() or run(argv))


def run(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code; wrong usage ends with a line, and SystemExit(2)."""
    from markerjit.errors import MarkerError

    arguments = list(sys.argv[1:] if argv is None else argv)
    try:
        try:
            return _run(arguments)
        except MarkerError as error:
            return _complain(str(error), *getattr(error, "__notes__", ()))
        except KeyboardInterrupt as interrupted:
            return int(getattr(interrupted, "code", 130))
        finally:
            sys.stdout.flush()  # here, where an error can still be reported
    except BrokenPipeError:
        _abandon(sys.stdout)  # the reader of our output has gone, as `head` does
        return 0
    except OSError as error:
        if error.errno not in _OUTPUT_ERRORS:
            raise  # a bug of ours
        _abandon(sys.stdout)
        return _complain(f"the output cannot be written: {error.strerror}")


def _run(arguments: Sequence[str]) -> int:
    if arguments == ["--cflags"]:
        print(f"-I{package_path('include')}")
        return 0
    if arguments == ["--libs"]:
        print(package_path("libmarkerjit.a"))
        return 0
    if arguments == ["--version"]:
        from markerjit import __version__

        print(f"markerjit {__version__}")
        return 0
    if arguments[:1] and arguments[0] in SWITCHING:
        return _run_first(arguments)
    return _run_command(arguments)


def _run_first(arguments: Sequence[str]) -> int:
    """Run a command that switches, at a raised priority from here on, since most of its time is the
    time of imports. Says why it was slow, where it was not permitted to go first and succeeded."""
    from markerjit import raised_priority, reason_for_waiting

    with raised_priority() as is_first:
        code = _run_command(arguments)
    reason = None if is_first or code else reason_for_waiting()
    if reason:
        _complain(reason)
    return code


def _run_command(arguments: Sequence[str]) -> int:
    words, program = _split(arguments)
    parser = _parser(*words, program=program)
    options = parser.parse_args(words)
    if not options.command:
        parser.print_help()
        return 2
    if getattr(options, "object", None):
        options.pattern += f",@{options.object}"
    return int(options.run(options))


def _split(arguments: Sequence[str]) -> tuple[Sequence[str], Sequence[str] | None]:
    """The words of our command, and the program behind `--`; None without one."""
    if arguments[:1] and arguments[0] in LAUNCHING and "--" in arguments:
        at = arguments.index("--")
        return arguments[:at], arguments[at + 1 :]
    return arguments, None


def _prepare_output() -> int:
    """Make sure, before anything is done, that the outcome can be reported. Returns the exit code,
    which is not 0 where it cannot.

    A descriptor below 3 that is closed would be given to the next file that is opened, such as the
    memory of a process, and our output would go there.
    """
    import fcntl

    while (descriptor := os.open(os.devnull, os.O_RDWR)) <= 2:
        os.set_inheritable(descriptor, True)  # also for programs that we start
    os.close(descriptor)
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w")  # noqa: SIM115  (print() takes None for stdout)
    if sys.stdout is None:
        return _complain("standard output is closed; send it to /dev/null if it is not wanted")
    if fcntl.fcntl(sys.stdout.fileno(), fcntl.F_GETFL) & os.O_ACCMODE == os.O_RDONLY:
        return _complain("standard output is not open for writing")
    # A character that its encoding does not have is shown as an escape, µ as \xb5.
    sys.stdout.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]
    return 0


def _complain(reason: str, *notes: str) -> int:
    """Say why a command failed, in one line and its notes, and return its exit code."""
    from markerjit.printable import printable

    try:
        print(f"markerjit: {printable(reason)}", *map(printable, notes), sep="\n", file=sys.stderr)
    except OSError:
        _abandon(sys.stderr)
    return 1


def _abandon(stream: TextIO) -> None:
    """Send the buffer of a stream nowhere. The interpreter would complain about it at its end."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def package_path(name: str) -> str:
    """The path of a built part of the package, installed or in a checkout."""
    package = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    return os.path.join(package, "_native", name)


def _parser(chosen: str = "", *given: str, program: Sequence[str] | None = None) -> ArgumentParser:
    """A parser with the chosen command and its arguments, or with the names of all commands. The
    words that are `given`, and a program, decide which arguments the command has (targets.py)."""
    import argparse
    from importlib import import_module

    class Parser(argparse.ArgumentParser):
        """A parser that reports an output which cannot be written. argparse of later Pythons 3.11
        ignores it."""

        def error(self, message: str) -> NoReturn:
            """End with one line; the usage of some commands would be ten more."""
            self.exit(2, f"{self.prog}: {message}; `{self.prog} --help` explains it\n")

        def _print_message(self, message: str, file: Any = None) -> None:
            print(message, end="", file=file or sys.stderr)

        def _get_formatter(self) -> argparse.HelpFormatter:
            # Asked for by each argument that is added. Without a width it would import shutil, and
            # with that all archives.
            return argparse.HelpFormatter(self.prog, width=_columns() - 2)

    class Command(Parser):
        """The parser of a command. Options may stand between its other arguments, also before one
        that may be left out: argparse would take that as left out where it meets an option. Not so
        with `--`, which parse_known_intermixed_args of Python 3.11 forgets."""

        _is_intermixed = False

        def parse_known_args(  # type: ignore[override]
            self, args: Sequence[str], namespace: Namespace | None = None
        ) -> tuple[Namespace, list[str]]:
            # parse_known_intermixed_args comes back here for each of its two passes.
            if self._is_intermixed or "--" in args:
                return super().parse_known_args(args, namespace)
            self._is_intermixed = True
            return self.parse_known_intermixed_args(args, namespace)

    parser = Parser(
        prog="markerjit",
        description="Markers in running programs: find them, switch them on and off, watch them.",
        epilog="markerjit COMMAND --help explains a command. "
        "--cflags prints what a C program needs to find markerjit/marker.h, --libs the library of "
        "markerjit/probes.h, --version the version.",
    )
    # With its name, because argparse would import shutil to find it out.
    commands = parser.add_subparsers(
        dest="command", metavar="COMMAND", prog="markerjit", parser_class=Command
    )
    for name in [chosen] if chosen in COMMANDS else COMMANDS:
        line = COMMANDS[name]
        command = commands.add_parser(name, help=line, description=f"{line}.".capitalize())
        if name == chosen:
            command.set_defaults(given=given, program=program)
            if program == []:
                command.error("-- is followed by a program and its arguments")
            import_module(f"markerjit.cli.{name}").configure(command)
    return parser


def _columns() -> int:
    """The width of the terminal, as shutil.get_terminal_size has it."""
    with_width = os.environ.get("COLUMNS", "")
    if with_width.isdecimal() and int(with_width):
        return int(with_width)
    try:
        return os.get_terminal_size(sys.__stdout__.fileno()).columns or 80  # type: ignore[union-attr]
    except (AttributeError, ValueError, OSError):
        return 80


if __name__ == "__main__":
    main()
