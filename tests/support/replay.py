"""Replays a page of the documentation: runs its console blocks and compares what is printed.

    for difference in replay(page, directory): ...

All commands of a page run in one bash, in order, in a directory of their own. C blocks that are
introduced by a file name (`ticker.c`:) are written there first. What the prose does between two
blocks stands in HTML comments, which no reader sees:

    <!-- replay: run COMMAND -->     run it, and show its output to nobody
    <!-- replay: check COMMAND = LINE -->  run it: it prints this line
    <!-- replay: pid 3106 = $! -->   from here on 3106 stands for that process
    <!-- replay: port 7777 -->       from here on 7777 stands for a free port
    <!-- replay: numbers A B -->     every number of the next block is that of a run, and may be
                                     another; so may the words, which stand for each other
    <!-- replay: skip REASON -->     the next block is not run

A `pid=3106` in what a page shows has 3106 stand for the process that was printed, from there on.

In what a page shows, a line `…` stands for any lines and `…` in a line for any text. What no two
runs have in common is compared by its form: times, addresses, durations, CPUs, pids and thread ids.
White space is compared as one blank, because columns are as wide as their numbers.

What this does not do: judge a page that has no console block, or look at pictures.
"""

from __future__ import annotations

import os
import re
import select
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

_ROOT = Path(__file__).resolve().parents[2]
_END = "\x1e"
_WITHIN_S = 120

_FENCE = re.compile(
    r"^<!-- replay: (?P<directive>.*?) -->$"
    r"|^```(?P<language>\w*)\n(?P<body>.*?)^```$"
    r"|^`(?P<file>[\w.]+)`:$",
    re.MULTILINE | re.DOTALL,
)

# What a run decides, most special first. Each group of a page's line becomes its pattern.
_OF_A_RUN = (
    (r"\d\d:\d\d:\d\d\.\d{9}", r"\d\d:\d\d:\d\d\.\d{9}"),
    (r"cpu\d+ \d+", r"cpu\d+ \d+"),
    (r"0x[0-9a-f]{6,}", r"0x[0-9a-f]+"),
    (r"\b[0-9a-f]{12}\b", r"[0-9a-f]+"),
    (r"\d+ (?:thread was|threads were) stopped", r"\d+ (?:thread was|threads were) stopped"),
    (r"\bpid \d+", r"pid \d+"),
    (r"\b\d+(?:\.\d+)? (?:ns|µs|ms|s)\b", r"\d+(?:\.\d+)? (?:ns|µs|ms|s)"),
    (r"\bLinux [\w.-]+", r"Linux [\w.-]+"),
    (r"\buid \d+", r"uid \d+"),
)
_NUMBER = (r"\d[\d.,]*", r"\d[\d.,]*")


class Block(NamedTuple):
    """One command of a page and what it prints, as the page shows it. `line` is for messages."""

    line: int
    command: str
    output: tuple[str, ...]
    numbers: bool
    words: tuple[str, ...] = ()


class Difference(NamedTuple):
    """A command whose output is not what the page shows."""

    block: Block
    printed: tuple[str, ...]

    def __str__(self) -> str:
        shown = "\n".join(f"    {line}" for line in self.block.output) or "    nothing"
        printed = "\n".join(f"    {line}" for line in self.printed) or "    nothing"
        where = f"line {self.block.line}: $ {self.block.command}"
        return f"{where}\n  the page shows\n{shown}\n  printed was\n{printed}"


def replay(page: Path, directory: Path) -> Iterator[Difference]:
    """Run a page in an empty directory and yield what differs. What it started is ended."""
    shell = _Shell(directory)
    try:
        yield from _replay(page.read_text(), shell, directory)
    finally:
        shell.end()


def _replay(text: str, shell: _Shell, directory: Path) -> Iterator[Difference]:
    names: dict[str, str] = {}
    name = ""
    numbers = skip = False
    words: tuple[str, ...] = ()
    for found in _FENCE.finditer(text):
        line = text.count("\n", 0, found.start()) + 1
        if found["file"]:
            name = found["file"]
        elif found["directive"]:
            verb, _, rest = found["directive"].partition(" ")
            if verb == "run":
                shell.run(_renamed(rest, names), 0)
            elif verb == "check":
                command, _, output = rest.partition(" = ")
                yield from _compare(Block(line, command, (output,), False), shell, names)
            elif verb == "pid":
                number, _, value = rest.partition(" = ")
                names[number] = shell.run(f"echo {value}", 1)[0]
            elif verb == "port":
                names[rest] = str(_free_port())
            if verb == "numbers":
                numbers, words = True, tuple(rest.split())
            skip = skip or verb == "skip"
        elif found["language"] == "c" and name:
            (directory / name).write_text(found["body"])
            name = ""
        elif found["language"] == "console":
            if not skip:
                for block in blocks(found["body"], line + 1, numbers=numbers):
                    yield from _compare(block._replace(words=words), shell, names)
            numbers, skip, words = False, False, ()


def _compare(block: Block, shell: _Shell, names: dict[str, str]) -> Iterator[Difference]:
    printed = shell.run(_renamed(block.command, names), len(block.output))
    for line, real in zip(block.output, printed, strict=False):
        if (known := re.search(r"\bpid=(\d+)", line)) and (
            there := re.search(r"\bpid=(\d+)", real)
        ):
            names[known[1]] = there[1]
    shown = [_renamed(line, names) for line in block.output]
    if not matches(shown, printed, numbers=block.numbers, words=block.words):
        yield Difference(block, tuple(printed))


def blocks(body: str, line: int, *, numbers: bool = False) -> Iterator[Block]:
    """The commands of a console block, each with the lines below it. `line` is the first's."""
    command, output, start = "", list[str](), line
    for number, text in enumerate(body.splitlines(), line):
        if text.startswith("$ "):
            if command:
                yield Block(start, command, tuple(output), numbers)
            command, output, start = text[2:], [], number
        elif command.endswith("\\"):
            command = f"{command}\n{text}"
        else:
            output.append(text)
    if command:
        yield Block(start, command, tuple(output), numbers)


def matches(
    shown: Sequence[str],
    printed: Sequence[str],
    *,
    numbers: bool = False,
    words: Sequence[str] = (),
) -> bool:
    """Whether lines are those that a page shows, as far as two runs have them in common."""
    pattern = "".join(
        r"(?:[^\n]*\n)*?" if line.strip() == "…" else f"{pattern_of(line, numbers=numbers)}\n"
        for line in shown
    )
    if words:
        any_word = "|".join(map(re.escape, words))
        pattern = re.sub(rf"\b(?:{any_word})\b", f"(?:{any_word})", pattern)
    return re.fullmatch(pattern, "".join(f"{line}\n" for line in printed)) is not None


def pattern_of(line: str, *, numbers: bool = False) -> str:
    """The pattern of a line that a page shows."""
    kinds = (*_OF_A_RUN, _NUMBER) if numbers else _OF_A_RUN
    any_kind = re.compile("|".join(f"({kind})" for kind, _ in kinds) + r"|(\s*…)|(\s+)")
    pattern, end = "", 0
    for found in any_kind.finditer(line):
        pattern += re.escape(line[end : found.start()])
        end = found.end()
        group = (found.lastindex or 0) - 1
        if group < len(kinds):
            pattern += kinds[group][1]
        else:
            pattern += r"[^\n]*" if group == len(kinds) else r"[^\S\n]+"
    return pattern + re.escape(line[end:]) + r"[^\S\n]*"


def _renamed(text: str, names: dict[str, str]) -> str:
    for name, value in names.items():
        text = re.sub(rf"(?<![\d.]){re.escape(name)}(?![\d.]\d)", value, text)
    return text


def _free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port


class _Shell:
    """A bash that runs one command after the other, with `markerjit` and our programs at hand."""

    def __init__(self, directory: Path) -> None:
        tools = directory / ".bin"
        tools.mkdir()
        command = tools / "markerjit"
        command.write_text(f'#!/bin/sh\nexec {sys.executable} -m markerjit.cli.main "$@"\n')
        command.chmod(0o755)
        (directory / "markerjit").symlink_to(_ROOT / "markerjit")
        environment = {
            **os.environ,
            "PATH": f"{tools}:{os.environ['PATH']}",
            "PYTHONPATH": str(_ROOT),
            "COLUMNS": "200",
            "TERM": "dumb",
        }
        self._bash = subprocess.Popen(
            ["bash", "--noprofile", "--norc"],
            cwd=directory,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,  # so that all it started can be ended with it
        )

    def run(self, command: str, lines: int) -> list[str]:
        """What a command prints. One in the background is waited for until it has printed as many
        lines as are wanted."""
        assert self._bash.stdin
        in_background = command.rstrip().endswith("&")
        self._bash.stdin.write(f"{command}\nprintf '{_END}'\n".encode())
        self._bash.stdin.flush()
        text = self._read_until(lambda text: _END in text)
        text = text.replace(_END, "", 1)
        if in_background and text.count("\n") < lines:
            text += self._read_until(lambda more: (text + more).count("\n") >= lines)
        return text.splitlines()

    def end(self) -> None:
        """End the shell and what it started."""
        os.killpg(self._bash.pid, 9)
        self._bash.wait()
        assert self._bash.stdin and self._bash.stdout
        self._bash.stdin.close()
        self._bash.stdout.close()

    def _read_until(self, is_enough: Callable[[str], bool]) -> str:
        assert self._bash.stdout
        output = self._bash.stdout.fileno()
        deadline = time.monotonic() + _WITHIN_S
        data = b""
        while not is_enough(data.decode(errors="replace")):
            ready, _, _ = select.select([output], [], [], max(deadline - time.monotonic(), 0))
            piece = os.read(output, 1 << 16) if ready else b""
            if not piece:
                raise AssertionError(f"the shell ended or hangs; it printed {data.decode()!r}")
            data += piece
        return data.decode(errors="replace")
