"""What several commands share: their arguments, and how facts are printed."""

from __future__ import annotations

import argparse
import errno
import os
import stat
import sys
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from markerjit.errors import Refused
from markerjit.printable import printable

if TYPE_CHECKING:
    from markerjit import ArenaStatus, Field, LeftOut, MarkerStatus, Site, UnexpectedBytes, View

Json = dict[str, Any]

DISK_ERRORS = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)
"""Why a file cannot be written on, through no fault of ours."""


def say(line: str, *, error: bool = False) -> None:
    """Print a line on standard output, or on standard error. What comes from a target or a file
    may be in it."""
    print(printable(line), file=sys.stderr if error else sys.stdout)


def print_json(document: object) -> None:
    """Print it on a line, in ASCII: a terminal obeys other characters, and an encoding may not have
    them."""
    import json

    print(json.dumps(document))


def print_progress(text: str) -> None:
    """Write the line on standard error anew; "" takes it away. For where a person sees it."""
    print(f"\r{printable(text)}\x1b[K", end="", file=sys.stderr, flush=True)


def add_pid(parser: argparse.ArgumentParser) -> None:
    """A process."""
    parser.add_argument("pid", metavar="PID", type=process_id, help="a process")


def add_target(parser: argparse.ArgumentParser) -> None:
    """A process or a file."""
    parser.add_argument("target", metavar="PID|FILE", help="a process, or an executable or library")


def add_pattern(parser: argparse.ArgumentParser, *, default: str | None = None) -> None:
    """Which markers."""
    parser.add_argument(
        "pattern",
        metavar="PATTERN",
        nargs="?" if default else None,
        default=default,
        help="a shell glob over marker names, such as 'kv_*'",
    )


def add_json(parser: argparse.ArgumentParser) -> None:
    """Facts for programs."""
    parser.add_argument("--json", action="store_true", help="print JSON")


def add_mode(parser: argparse.ArgumentParser) -> None:
    """How to switch sites on."""
    parser.add_argument(
        "--mode",
        choices=("jump", "nop", "pointer", "sentinel", "immediate", "int3"),
        help="how to switch the sites on (default: as each was compiled)",
    )


def add_force(parser: argparse.ArgumentParser) -> None:
    """Whether others are asked."""
    parser.add_argument(
        "--force",
        action="store_true",
        help="also markers that a trace records or a flight recorder keeps: take them from it",
    )


def add_quiesce(parser: argparse.ArgumentParser) -> None:
    """How threads are kept from harm."""
    parser.add_argument(
        "--quiesce",
        choices=("stop", "membarrier", "none"),
        help="stop all threads (default); let them run and fence all cores, by a borrowed thread; "
        "or let them run and trust that one byte has no parts",
    )


def positive(text: str) -> int:
    """An argument that has to be a number above zero."""
    number = int(text) if text.isascii() and text.isdigit() else 0
    if number <= 0:
        raise argparse.ArgumentTypeError(f"'{text}' is not a positive number")
    return number


def process_id(text: str) -> int:
    """An argument that is a process, by its number."""
    pid = as_pid(text)
    if pid is None:
        raise argparse.ArgumentTypeError(
            f"'{text}' is not the number of a process; pgrep NAME finds it"
        )
    return pid


def file_name(text: str) -> str:
    """An argument that names a file."""
    if not text:
        raise argparse.ArgumentTypeError("an empty name is the name of no file")
    return text


def seconds(text: str) -> float:
    """An argument that is a time which a timer takes."""
    try:
        number = float(text)
    except ValueError:
        number = 0
    if not 0 < number < 1e9:
        raise argparse.ArgumentTypeError(f"'{text}' is not a number of seconds")
    return number


def check_new(paths: Sequence[Path | None]) -> None:
    """Files to be written at the end, where they are asked for. Raises Refused, before the minutes
    that it takes, for one that is there, cannot be written, or is named twice."""
    seen = set()
    for path in filter(None, paths):
        if os.path.exists(path):  # False, without a word, where we may not look
            raise Refused(f"{path} exists already; take another name")
        if not os.access(path.parent, os.W_OK):
            raise Refused(f"cannot write {path}: there is no such directory, or it is not ours")
        if path.resolve() in seen:
            raise Refused(f"{path} is to be written twice; take another name for one of them")
        seen.add(path.resolve())


def check_file(path: str) -> None:
    """A file that is to be read as a whole. Raises Refused, with the reason, where that does not
    work, and for a pipe or a device, which might be waited for."""
    try:
        if not stat.S_ISREG(os.stat(path).st_mode):
            raise Refused(f"{path} is not a regular file")
        open(path, "rb").close()
    except OSError as error:
        raise Refused(f"cannot read {path}: {error.strerror}") from None


def as_pid(target: str) -> int | None:
    """The pid that a PID|FILE means: digits are one; a file of such a name is `./123`."""
    return int(target) if target.isascii() and target.isdigit() and int(target) else None


def pid_or_file(target: str) -> int | None:
    """The pid, or None for a file. Raises Refused where it is neither."""
    pid = as_pid(target)
    if pid is None:
        try:
            os.lstat(target)
        except FileNotFoundError:
            raise Refused(
                f"'{target}' is neither the number of a process nor a file; "
                "pgrep NAME finds a process by its name"
            ) from None
        except OSError as error:
            raise Refused(f"cannot read {target}: {error.strerror}") from None
    return pid


def line_of_process(pid: int, line: str, *, json: bool) -> str:
    """An event's line, with its end, where several processes have events."""
    return f'{{"pid": {pid}, {line[1:]}\n' if json else f"{pid} {line}\n"


def fields_text(fields: Iterable[Field]) -> str:
    """`key: string, len: int`."""
    return ", ".join(f"{field.name}: {field.type}" for field in fields)


def site_json(site: Site, problem: UnexpectedBytes | None = None) -> Json:
    """A site as `list` and `status` print it."""
    altered = problem and {
        "found": problem.found.hex(),
        "expected": problem.expected.hex(),
        "problem": problem.fact,
    }
    return {
        "address": site.address,
        "object": site.object.path,
        "offset": site.offset,
        "source": site.source,
        "kind": str(site.kind),
        "deleted": site.object.deleted,
        "altered": altered,
    }


def marker_json(marker: MarkerStatus) -> Json:
    """A marker as `list` and `status` print it."""
    altered = {problem.address: problem for problem in marker.altered}
    return {
        "name": marker.name,
        "format": marker.format,
        "fields": [{"name": field.name, "type": str(field.type)} for field in marker.fields],
        "kind": str(marker.kind),
        "mode": str(marker.mode) if marker.mode else None,
        "on": marker.mode is not None,
        "partly": marker.partly,
        "probe": marker.probe or None,
        "since": marker.since or None,
        "by": marker.by or None,
        "hits": marker.hits,
        "lost": marker.lost,
        "total": marker.total,
        "held": marker.held,
        "sites": [site_json(site, altered.get(site.address)) for site in marker.sites],
    }


def arena_json(status: ArenaStatus | None) -> Json | None:
    """What a process holds of ours."""
    if status is None:
        return None
    reader = status.reader
    return {
        "owner": status.owner.pid,
        "since": status.since,
        "runtime": f"{status.runtime:016x}",
        "reader": reader.owner.pid if reader else None,
        "lease_s": round(reader.left_s, 1) if reader and reader.left_s is not None else None,
        "writer": status.writer.pid if status.writer else None,
        "to_mend": status.to_mend,
    }


def print_left_out(left_out: Iterable[LeftOut]) -> None:
    """Say on standard error which markers matched and were left as they were."""
    for marker in left_out:
        say(f"markerjit: left out: {marker.reason}", error=True)


def left_out_json(left_out: Iterable[LeftOut]) -> list[Json]:
    """The same for programs."""
    return [marker._asdict() for marker in left_out]


def offer_repair(view: View) -> None:
    """Say on standard error what a dead controller left, or why the runtime that is there cannot be
    used, and what to do."""
    if view.runtime_problem:
        say(f"markerjit: {view.runtime_problem}", error=True)
    status = view.arena()
    if status and status.to_mend:
        say(f"markerjit: {status.to_mend}: markerjit repair {view.pid}", error=True)


def state_text(marker: MarkerStatus) -> str:
    """`off`, or how it is on, or that its code is neither."""
    if len(marker.altered) == len(marker.sites):
        return "altered"
    state = f"on ({marker.mode}, {marker.probe})" if marker.mode else "off"
    if marker.partly:
        state += ", not all sites"
    if marker.altered:
        state += f", {len(marker.altered)} of {len(marker.sites)} sites altered"
    return state


def print_altered(markers: Iterable[MarkerStatus]) -> None:
    """What stands at sites whose code is neither off nor on, a line each."""
    for marker in markers:
        for problem in marker.altered:
            say(f"altered: {problem.fact}")


def ago(since: int) -> str:
    """How long ago, in words."""
    seconds = max(0, int(time.time()) - since)
    for size, name in ((86400, "d"), (3600, "h"), (60, "min")):
        if seconds >= size:
            return f"{seconds // size} {name}"
    return f"{seconds} s"


def counted(number: int, noun: str) -> str:
    """`1 site`, `2 sites`."""
    return f"{number} {noun}{'' if number == 1 else 's'}"


def short_path(path: str) -> str:
    """A file's name without its directories."""
    return os.path.basename(path) or path


def print_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Columns as wide as they need; a column of numbers is aligned to the right."""
    rows = [[printable(cell) for cell in row] for row in rows]
    columns = list(zip(header, *rows, strict=True))
    widths = [max(map(len, column)) for column in columns]
    numeric = [all(_is_number(cell) for cell in column[1:]) for column in columns]
    for row in (header, *rows):
        cells = (
            cell.rjust(width) if right else cell.ljust(width)
            for cell, width, right in zip(row, widths, numeric, strict=True)
        )
        say("  ".join(cells).rstrip())


def _is_number(text: str) -> bool:
    return text.replace(".", "").replace(",", "").replace("+", "").replace("-", "").isdigit()
