"""Arguments that several commands have, and the types of arguments."""

from __future__ import annotations

import argparse
import os
from typing import Any

import markerjit
from markerjit.errors import Refused
from markerjit.model import Mode, Quiescence, Seccomp

_MOST_DIGITS = 40
"""Of the number of a process, far more than one has. Of thousands int() raises ValueError."""


HOW = "how it is done"
"""The section of --help for options that are seldom needed."""


def section(parser: argparse.ArgumentParser, title: str) -> argparse._ArgumentGroup:
    """The section of --help with this title, which is made when it is first asked for."""
    sections = {group.title: group for group in parser._action_groups}
    return sections.get(title) or parser.add_argument_group(title)


def add_pid(parser: argparse.ArgumentParser) -> None:
    """PID: a process. There is none where a program is started."""
    if parser.get_default("program"):
        return
    parser.add_argument(
        "pid",
        metavar="PID",
        type=process_id,
        help="a process: its number, or the name of its program",
    )


def add_target(parser: argparse.ArgumentParser) -> None:
    """PID|FILE: a process or a file."""
    parser.add_argument(
        "target",
        metavar="PID|FILE",
        help="a process: its number, or the name of its program; or an executable or library",
    )


_PATTERN = (
    "markers, by shell globs over their names, such as 'kv_*' or kv_{hit,miss}; '!kv_command' is "
    "for all but this one, and kv_store.c:215 for a line of source. USDT probes are such as "
    "'postgresql:query__*', and functions such as func:malloc"
)


def is_preset(options: argparse.Namespace, name: str) -> bool:
    """Whether an option has the value that was set as its default (defaults.py), and not one of the
    command line. Where it has no meaning, such a value is no mistake."""
    preset = getattr(options, "preset", {})
    return name in preset and preset[name] is getattr(options, name)


def add_pattern(
    parser: argparse.ArgumentParser,
    *,
    default: str | None = None,
    may_be_left_out: bool = False,
    line: str = _PATTERN,
) -> None:
    """PATTERN…: the markers that are meant, as one text. With a default it may be left out; where
    it may be without one, the text is "" then. `line` is its help."""
    parser.add_argument(
        "pattern",
        metavar="PATTERN",
        nargs="*" if default or may_be_left_out else "+",
        action=_Joined,
        default=default,
        help=line,
    )
    parser.add_argument(
        "--in",
        dest="object",
        metavar="OBJECT",
        type=_object,
        help="only in the file of this name, such as 'libkv.so*'",
    )


class _Joined(argparse.Action):
    """Several patterns as a list in one text."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: object,
        option_string: str | None = None,
    ) -> None:
        patterns = [values] if isinstance(values, str) else list(map(str, values))  # type: ignore[call-overload]
        number = next((text for text in patterns if text.isdigit()), None)
        if number:
            parser.error(f"{number} is not a PATTERN; write several processes as PID,PID")
        setattr(namespace, self.dest, ",".join(patterns))


def _object(text: str) -> str:
    if not text or "," in text:
        raise argparse.ArgumentTypeError("it is the name of one file, or a shell glob")
    return text


def add_fields(parser: argparse.ArgumentParser, line: str) -> None:
    """--fields: some of the fields. `line` is its help."""
    parser.add_argument("--fields", metavar="A,B", type=_field_names, help=line)


def _field_names(text: str) -> tuple[str, ...]:
    names = tuple(text.split(","))
    if not all(names):
        raise argparse.ArgumentTypeError(f"'{text}' is not a list of fields, such as key,size")
    return names


def add_json(parser: argparse.ArgumentParser) -> None:
    """--json: facts for programs."""
    parser.add_argument("--json", action="store_true", help="print JSON")


def add_web(parser: argparse.ArgumentParser) -> None:
    """--web and --port: the same in a browser."""
    parser.add_argument(
        "--web", action="store_true", help="show it in a browser of this machine instead"
    )
    parser.add_argument(
        "--port", metavar="N", type=port, help="with --web: this port, or the next free one"
    )


def add_mode(parser: argparse.ArgumentParser) -> None:
    """--mode: how to switch sites on."""
    section(parser, HOW).add_argument(
        "--mode",
        choices=[str(mode) for mode in Mode],
        help="how sites are switched on (default: each as it was compiled)",
    )


def add_breakpoints(parser: argparse.ArgumentParser) -> None:
    """--breakpoints: the word of the operator that breakpoints do no harm."""
    section(parser, HOW).add_argument(
        "--breakpoints",
        action="store_true",
        help="also take functions, USDT probes and others that only a breakpoint opens. It takes "
        "microseconds a hit, and would end the program where a thread that blocks SIGTRAP comes by",
    )


def vouched(options: argparse.Namespace) -> dict[str, Any]:
    """What the operator vouches for, as attaching to a process takes it. A command that only
    switches off has no breakpoints."""
    breakpoints = getattr(options, "breakpoints", False)
    return {"seccomp": options.seccomp, "breakpoints": breakpoints}


def add_force(parser: argparse.ArgumentParser) -> None:
    """--force: take markers from another controller."""
    parser.add_argument(
        "--force",
        action="store_true",
        help="also take markers that a trace, a flight recorder or an aggregate holds",
    )


def add_duration(parser: argparse.ArgumentParser, example: str = "10s") -> None:
    """--duration."""
    parser.add_argument(
        "-d", "--duration", metavar="S", type=seconds, help=f"end after S, such as {example}"
    )


def add_quiesce(parser: argparse.ArgumentParser) -> None:
    """--quiesce: how threads of another process are kept from harm."""
    section(parser, HOW).add_argument(
        "--quiesce",
        choices=[str(way) for way in Quiescence if way is not Quiescence.SIGNALS],
        help="how threads are kept from harm. stop: stop them all (default); membarrier: let them "
        "run, and have a borrowed thread fence all cores; none: let them run, and trust that a "
        "byte is written as a whole",
    )


def add_seccomp(parser: argparse.ArgumentParser) -> None:
    """--seccomp: what is done about filters of the process."""
    section(parser, HOW).add_argument(
        "--seccomp",
        choices=[str(way) for way in Seccomp],
        default=str(Seccomp.READ),
        help="what is done about seccomp filters of the process. read: run them on each system "
        "call that is needed (default; as root); trust-errno: you know that they answer with an "
        "error and never kill",
    )


_COUNTS = {"k": 10**3, "M": 10**6}
_MEBIBYTES = {"": 1, "M": 1, "MiB": 1, "G": 1024, "GiB": 1024}
_DURATIONS = {"us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0}


def positive(text: str) -> int:
    """The type of a whole number above zero: `500`, `100k`, `2M`."""
    digits, factor = text, 1
    if text[-1:] in _COUNTS:
        digits, factor = text[:-1], _COUNTS[text[-1]]
    number = int(digits) if digits.isascii() and digits.isdigit() else 0
    if number <= 0:
        raise argparse.ArgumentTypeError(f"'{text}' is not a positive number, such as 500 or 100k")
    return number * factor


def mebibytes(text: str) -> int | None:
    """A size in MiB, which is the unit without one: `4`, `4M`, `4MiB`, `1GiB`. None for anything
    else; zero is a size."""
    digits = text.rstrip("".join(_MEBIBYTES))
    factor = _MEBIBYTES.get(text[len(digits) :])
    return int(digits) * factor if factor and digits.isascii() and digits.isdigit() else None


def seconds(text: str) -> float:
    """The type of a duration, in seconds without a unit: `0.5`, `500ms`, `10s`, `2min`, `1h`. A
    timer takes no other number, nor does it take nan or inf."""
    number = distance(text)
    if not number:
        raise argparse.ArgumentTypeError(f"'{text}' is not a duration, such as 10s or 500ms")
    return number


def distance(text: str) -> float:
    """The type of a distance in time, in seconds: as a duration, but it may be 0."""
    digits = text.rstrip("µabcdefghijklmnopqrstuvwxyz")
    factor = _DURATIONS.get(text[len(digits) :] or "s", 0)
    try:
        number = float(digits) * factor
    except ValueError:
        number = -1
    if not 0 <= number < 1e9:
        raise argparse.ArgumentTypeError(f"'{text}' is not a duration, such as 10s or 500ms")
    return number


def file_name(text: str) -> str:
    """The type of the name of a file."""
    if not text:
        raise argparse.ArgumentTypeError("the name of a file cannot be empty")
    return text


def process_id(text: str) -> int:
    """The type of a process: its number, or the name of a program that only one process has.
    Raises what `choose_one` raises for a name."""
    pid = as_pid(text)
    if pid is None:
        try:
            named = markerjit.parse_targets(text)
        except markerjit.BadArgument:
            named = None
        if named is None or not named.name:
            raise argparse.ArgumentTypeError(
                f"'{text}' is neither the number of a process nor the name of a program"
            )
        pid = markerjit.choose_one(named)
    return pid


def as_pid(target: str) -> int | None:
    """The pid that a PID|FILE means, None for a file. A file whose name is a number is `./123`."""
    is_number = target.isascii() and target.isdigit() and len(target) <= _MOST_DIGITS
    return int(target) if is_number and int(target) else None


def pid_or_file(target: str) -> int | None:
    """The pid that a PID|NAME|FILE means, None for a file that exists. Raises Refused for none of
    them, and for a name that several processes have."""
    pid = as_pid(target)
    if pid is not None:
        return pid
    try:
        os.lstat(target)
    except FileNotFoundError:
        return _pid_of_name(target)
    except OSError as error:
        raise Refused(f"cannot read {target}: {error.strerror}") from None
    return None


def _pid_of_name(name: str) -> int:
    neither = f"'{name}' is neither the number of a process nor a file"
    try:
        targets = markerjit.parse_targets(name)
    except markerjit.BadArgument:
        raise Refused(neither) from None
    try:
        return markerjit.choose_one(targets)
    except markerjit.NoMatch as error:
        raise Refused(f"{neither}, and {error}") from None


def port(text: str) -> int:
    """The type of a TCP port."""
    number = positive(text)
    if number >= 1 << 16:
        raise argparse.ArgumentTypeError(f"{text} is not a port")
    return number
