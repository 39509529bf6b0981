"""`markerjit`: choose the command, print errors as one line, turn them into an exit code.

Exit codes are 0 for done, 1 for refused or failed, with one line of reason on standard error, 2 for
wrong usage, and 128 and its number for a signal. A bug of ours keeps its traceback. A command's
module is imported when the command is used, and so is everything else, because until `main` is
called Ctrl-C shows a traceback.
"""

from __future__ import annotations

import errno
import gc
import os
import sys

TYPE_CHECKING = False  # type checkers take it for true; typing is not imported this early

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import FrameType
    from typing import NoReturn, TextIO

SWITCHING = ("on", "off", "repair")
"""Commands that do nothing else, and end."""

_OLDER = {"record": ("flight", "start"), "dump": ("flight", "dump")}
"""Commands as they were called until version 0.5. --flight had to stand behind `record`."""

_OBJECTS_BEFORE_COLLECTING = 50_000
"""New objects before the collector of reference cycles looks at them. Imports make some twenty
thousand that stay, and by default it goes through those again and again."""

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


class _NoDataFrames:
    """A finder of modules that refuses pandas to our own code. Where it is installed, pyarrow would
    import it to see whether what it is given is a data frame. No command gives it one, and pandas
    takes longer to import than all else. A function of the user's (`--probe FILE.py`) may have
    it."""

    @staticmethod
    def find_spec(name: str, path: object = None, target: object = None) -> None:
        """Raises ModuleNotFoundError."""
        if name != "pandas":
            return
        caller: FrameType | None = sys._getframe(1)
        while caller and _package_of(caller) == "importlib":
            caller = caller.f_back
        if caller and _package_of(caller) == "markerjit":
            raise ModuleNotFoundError("no command makes data frames", name=name)


def _package_of(frame: FrameType) -> str:
    return str(frame.f_globals.get("__name__", "")).partition(".")[0]


def main(argv: Sequence[str] | None = None) -> NoReturn:
    """The entry point of the command."""
    from markerjit.cli import signals

    signals.end_at_once()  # first, because imports take most of a short command's time
    gc.set_threshold(_OBJECTS_BEFORE_COLLECTING)
    sys.meta_path.insert(0, _NoDataFrames)
    code = _prepare_output() or run(argv)
    gc.freeze()  # else the interpreter looks for cycles in all that was imported before it ends
    sys.exit(code)


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
    if arguments[:1] == ["complete"]:  # hidden: the scripts of `completion` call it
        from markerjit.cli import complete

        return complete.run(arguments[1:])
    if arguments[:1] and arguments[0] in SWITCHING and not _stays(arguments):
        return _run_first(arguments)
    return _run_command(arguments)


def _stays(arguments: Sequence[str]) -> bool:
    """Whether a command that switches goes on afterwards (cli/stay.py). An option may be short for
    another."""
    return any(word.startswith(("--fol", "--ne")) for word in arguments)


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
    from markerjit.cli.parser import COMMANDS, chosen_parser, parser_of, split

    if arguments[:1] and arguments[0] in _OLDER:
        rest = [word for word in arguments[1:] if word != "--flight"]
        arguments = [*_OLDER[arguments[0]], *rest]
    words, program = split(arguments)
    parser = parser_of(*words, program=program)
    if words and words[0] not in COMMANDS and not words[0].startswith("-"):
        from difflib import get_close_matches

        nearest = get_close_matches(words[0], COMMANDS, 1)
        hint = f"; did you mean {nearest[0]}?" if nearest else ""
        parser.error(f"there is no command {words[0]}{hint}")
    if words and words[0] in COMMANDS:
        from markerjit.cli.defaults import apply

        apply(chosen_parser(parser, words[0]), words[0])
    options, rest = parser.parse_known_args(words)
    if rest:
        chosen = chosen_parser(parser, words[0]) if words[0] in COMMANDS else parser
        chosen.error(f"unrecognized arguments: {' '.join(rest)}")
    if not options.command:
        parser.print_help()
        return 2
    from markerjit.cli.output import set_colour

    set_colour(options.color)
    if getattr(options, "object", None):
        options.pattern = f"{options.pattern or '*'},@{options.object}"
    return int(options.run(options))


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
    from markerjit.cli.output import say

    try:
        for line in (f"markerjit: {reason}", *notes):
            say(line, error=True)
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


if __name__ == "__main__":
    main()
