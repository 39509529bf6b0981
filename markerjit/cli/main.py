"""`markerjit`: choose the command, print errors as one line, turn them into an exit code.

0 done; 1 refused or failed, with one line of reason on standard error; 2 wrong usage. A bug of ours
keeps its traceback. A command's module is imported when the command is used.
"""

from __future__ import annotations

import argparse
import errno
import os
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import NoReturn

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


def main(argv: Sequence[str] | None = None) -> NoReturn:
    """The entry point of the command."""
    sys.exit(run(argv))


def run(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code; wrong usage exits with 2 by itself."""
    arguments = list(sys.argv[1:] if argv is None else argv)
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
    from markerjit.errors import MarkerError

    try:
        return int(options.run(options))
    except MarkerError as error:
        line = str(error).replace("\n", "\\n")  # a name or a path may have one
        print(f"markerjit: {line}", file=sys.stderr)
        return 1
    except BrokenPipeError:
        # Whoever read our output has gone, as `head` does. Keep the interpreter from complaining.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except OSError as error:
        from markerjit.cli.common import DISK_ERRORS

        if error.errno not in (*DISK_ERRORS, errno.EBADF):
            raise  # a bug of ours
        print(f"markerjit: the output cannot be written: {error.strerror}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130


def package_path(name: str) -> str:
    """Where a built part of the package is, installed or in a checkout."""
    package = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    return os.path.join(package, "_native", name)


def _parser(wanted: str) -> argparse.ArgumentParser:
    """The command that is wanted, with its arguments; all of them, by name, when it is none."""
    parser = argparse.ArgumentParser(
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
