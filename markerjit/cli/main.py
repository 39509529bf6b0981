"""`markerjit`: choose the command, print errors as one line, turn them into an exit code.

0 done; 1 refused or failed, with one line of reason on standard error; 2 wrong usage; 128 and its
number for a signal. A bug of ours keeps its traceback. A command's module is imported when the
command is used, and so is everything else: until `main` is called, Ctrl-C is Python's, and shows a
traceback.
"""

from __future__ import annotations

import errno
import os
import sys

TYPE_CHECKING = False  # type checkers take it for true; typing is not imported this early

if TYPE_CHECKING:
    from argparse import ArgumentParser
    from collections.abc import Sequence
    from typing import Any, NoReturn, TextIO

COMMANDS = {
    "demo": "the bundled server under load: list, switch, watch, compare",
    "doctor": "what will work here, or on a process, and why not",
    "list": "the markers of a process or a file",
    "on": "switch markers of a process on",
    "off": "switch markers of a process off",
    "status": "what is on in a process, since when, by whom, hits and losses",
    "trace": "switch markers on, stream their events, switch them off",
    "record": "a flight recorder: keep the newest events, with nobody reading",
    "dump": "save what a flight recorder has kept",
    "read": "print, sum up or convert a trace that was written to a file",
    "repair": "after an accident: finish or take back what a controller left",
    "bench": "what a marker costs on this machine, in every form",
    "explain": "a marker's note, bytes and assembly, and what a switch would write",
}


_OUTPUT_ERRORS = (
    errno.EAGAIN,
    errno.EBADF,
    errno.ECONNRESET,
    errno.EDQUOT,
    errno.EFBIG,
    errno.EIO,
    errno.ENOSPC,
)
"""What becomes of a write where there is no room, or nobody at the other end."""


def main(argv: Sequence[str] | None = None) -> NoReturn:
    """The entry point of the command."""
    from markerjit.cli import signals

    signals.end_at_once()  # first: what is imported below takes most of a short command's time
    sys.exit(_prepare_output() or run(argv))


def run(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code; argparse ends wrong usage, with SystemExit(2)."""
    from markerjit.errors import MarkerError

    arguments = list(sys.argv[1:] if argv is None else argv)
    try:
        try:
            return _run(arguments)
        except MarkerError as error:
            return _complain(str(error))
        except KeyboardInterrupt as interrupted:
            return int(getattr(interrupted, "code", 130))
        finally:
            sys.stdout.flush()  # here, where an error can still be told
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
    parser = _parser(arguments[0] if arguments else "")
    options = parser.parse_args(arguments)
    if not options.command:
        parser.print_help()
        return 2
    return int(options.run(options))


def _prepare_output() -> int:
    """Make sure, before anything is done, that the outcome can be told. Returns the exit code: not
    0 where it cannot.

    A descriptor below 3 that is closed would be given to the next file that is opened, such as the
    memory of a process, and whatever is printed would go there.
    """
    import fcntl

    while (descriptor := os.open(os.devnull, os.O_RDWR)) <= 2:
        os.set_inheritable(descriptor, True)  # the same goes for programs that we start
    os.close(descriptor)
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w")  # noqa: SIM115  (print() takes None for stdout)
    if sys.stdout is None:
        return _complain("standard output is closed; send it to /dev/null if it is not wanted")
    if fcntl.fcntl(sys.stdout.fileno(), fcntl.F_GETFL) & os.O_ACCMODE == os.O_RDONLY:
        return _complain("standard output is not open for writing")
    # What its encoding does not know is shown as an escape: µ as \xb5.
    sys.stdout.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]
    return 0


def _complain(reason: str) -> int:
    """Say why a command failed, in one line, and return its exit code."""
    from markerjit.printable import printable

    try:
        print(f"markerjit: {printable(reason)}", file=sys.stderr)
    except OSError:
        _abandon(sys.stderr)
    return 1


def _abandon(stream: TextIO) -> None:
    """Have what a stream still keeps go nowhere, or the interpreter would complain at its end."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def package_path(name: str) -> str:
    """Where a built part of the package is, installed or in a checkout."""
    package = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    return os.path.join(package, "_native", name)


def _parser(wanted: str) -> ArgumentParser:
    """The command that is wanted, with its arguments; all of them, by name, when it is none."""
    import argparse
    from importlib import import_module

    class Parser(argparse.ArgumentParser):
        """One that lets an output which cannot be written be told: argparse of later Pythons 3.11
        passes over that."""

        def _print_message(self, message: str, file: Any = None) -> None:
            print(message, end="", file=file or sys.stderr)

    parser = Parser(
        prog="markerjit",
        description="Markers in running programs: find them, switch them on and off, watch them.",
        epilog="markerjit COMMAND --help explains a command. "
        "--cflags prints what a C program needs to find markerjit/marker.h, --libs the library of "
        "markerjit/probes.h, --version the version.",
    )
    # Named, because argparse would import shutil to find the name out.
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", prog="markerjit")
    for name in [wanted] if wanted in COMMANDS else COMMANDS:
        line = COMMANDS[name]
        command = commands.add_parser(name, help=line, description=f"{line}.".capitalize())
        if name == wanted:
            import_module(f"markerjit.cli.{name}").configure(command)
    return parser


if __name__ == "__main__":
    main()
