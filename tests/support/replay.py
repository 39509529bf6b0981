"""Replays a page of the documentation: runs its console blocks and compares what is printed.

    for difference in replay(page, directory): ...

All commands of a page run in one bash, in order, in a directory of their own. A block that follows
a file name on a line of its own (`ticker.c`:) is written to that file first. What a block needs
beyond that stands in HTML comments, which a reader of the page does not see:

    <!-- replay: run COMMAND -->      run it; its output is not compared
    <!-- replay: check COMMAND = LINE -->  run it; it must print this line
    <!-- replay: pid 3106 = $! -->    from here on 3106 stands for that value
    <!-- replay: port 7777 -->        from here on 7777 stands for a free port
    <!-- replay: name A/B/PROGRAM --> from here on PROGRAM stands for a copy of that program whose
                                      name no other process has, and A/B/PROGRAM for its path
    <!-- replay: file A.c of PAGE --> write the file A.c as another page shows it
    <!-- replay: rate 5000 -->        from here on the demo's load makes so many requests a second
                                      at most: it would take a CPU that other tests need
    <!-- replay: numbers A B -->      every number of the next block may differ; the words A and B
                                      may stand for each other
    <!-- replay: linked -->           addresses and displacements of the next block may be others,
                                      as a compiler and a linker give them
    <!-- replay: pipe COMMAND -->     the next block is the input of the command, and the block
                                      after it is the output
    <!-- replay: needs TOOL -->       the next block is run where this tool is installed;
                                      `python:NAME` is a module
    <!-- replay: skip REASON -->      the next block is not run

Where a page shows `pid=3106`, 3106 stands for the process that was printed, from there on.

In the output that a page shows, a line `…` stands for any lines, and `…` in a line for any text.
Times, addresses, durations, CPUs, pids and thread ids are compared by their form, because they
differ from run to run. White space and rules of tables are compared as one character each, because
columns are as wide as their numbers.

A page without a console block is not checked, and neither are pictures.
"""

from __future__ import annotations

import atexit
import importlib.util
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from tests.support.commands import server_name
from tests.support.timing import Limited, Wait

_ROOT = Path(__file__).resolve().parents[2]
_END = "\x1e"
_END_OF_INPUT = "END_OF_INPUT"
_PID = re.compile(r"\bpid=(\d+)")

_ITEM = re.compile(
    r"^<!-- replay: (?P<directive>.*?) -->$"
    r"|^```(?P<language>\w*)\n(?P<body>.*?)^```$"
    r"|^`(?P<file>[\w.]+)`:$",
    re.MULTILINE | re.DOTALL,
)

# What differs from run to run, most specific first: what a page shows, and what may be printed.
_OF_A_RUN = (
    # DuckDB leaves out the zeros at the end of a time.
    (r"\d\d:\d\d:\d\d\.\d{9}\+00", r"\d\d:\d\d:\d\d(?:\.\d{1,9})?\+00"),
    # polars does, too, and then has room for the zone.
    (r"\d\d:\d\d:\d\d\.\d{9} …", r"\d\d:\d\d:\d\d(?:\.\d{3,9})? (?:…|UTC)"),
    (r"\d\d:\d\d:\d\d\.\d{9}", r"\d\d:\d\d:\d\d\.\d{9}"),
    (r"cpu\d+ \d+", r"cpu\d+ \d+"),
    (r"0x[0-9a-f]{6,}", r"0x[0-9a-f]+"),
    (r"\b[0-9a-f]{12}\b", r"[0-9a-f]+"),
    # On a busy machine a stop may be so long that its parts are printed.
    (
        r"\d+ (?:thread was|threads were) stopped, for at most \d[\d,]* µs$",
        r"\d+ (?:thread was|threads were) stopped, for at most \d[\d,]* (?:µs|ms)"
        r"(?:: [\d,]+ until the last one stood, .* went on)?",
    ),
    (
        r"\d+ (?:thread was|threads were) stopped",
        r"\d+ (?:thread was|threads were) stopped",
    ),
    (r"\bpid \d+", r"pid \d+"),
    (r"\b\d[\d,]*(?:\.\d+)? (?:ns|µs|ms|s)\b", r"\d[\d,]*(?:\.\d+)? (?:ns|µs|ms|s)"),
    (r"\bLinux [\w.-]+", r"Linux [\w.-]+"),
    (r"\buid \d+", r"uid \d+"),
    (r" #+$", r" #+"),
    (r"[▏▎▍▌▋▊▉█]+$", r"[▏▎▍▌▋▊▉█]*"),
    (r"[─═]{2,}", r"[─═]+"),
    (r"[^\S\n]*[│┆][^\S\n]*", r"[^\S\n]*[│┆][^\S\n]*"),
)
_NUMBER = (r"\d[\d.,]*", r"\d[\d.,]*")
_LINKED = (
    (r"\be9(?: [0-9a-f]{2}){4}\b", r"e9(?: [0-9a-f]{2}){4}"),
    (r"\ba9(?: [0-9a-f]{2}){4}\b", r"a9(?: [0-9a-f]{2}){4}"),
    (r"\b(?:0x)?[0-9a-f]{4,6}\b", r"(?:0x)?[0-9a-f]{4,12}"),
)


class Block(NamedTuple):
    """One command of a page, and its output as the page shows it. `line` is its line there."""

    line: int
    command: str
    output: tuple[str, ...]
    numbers: bool
    words: tuple[str, ...] = ()
    linked: bool = False


class Difference(NamedTuple):
    """A command whose output is not what the page shows."""

    block: Block
    printed: tuple[str, ...]

    def __str__(self) -> str:
        shown = "\n".join(f"    {line}" for line in self.block.output) or "    nothing"
        printed = "\n".join(f"    {line}" for line in self.printed) or "    nothing"
        where = f"line {self.block.line}: $ {self.block.command}"
        return f"{where}\n  the page shows\n{shown}\n  printed was\n{printed}"


class _Ahead(NamedTuple):
    """What the directives before a block say of it."""

    numbers: bool = False
    words: tuple[str, ...] = ()
    linked: bool = False
    pipe: str = ""
    skipped: bool = False


def replay(page: Path, directory: Path) -> Iterator[Difference]:
    """Run a page in an empty directory and yield what differs. What it started is ended."""
    shell = _Shell(directory)
    try:
        yield from _Replay(page, shell, directory).differences()
    finally:
        shell.end()


def skipped(page: Path) -> list[str]:
    """The reasons of a page's blocks that are not run."""
    directives = (match["directive"] or "" for match in _ITEM.finditer(page.read_text()))
    return [text.partition(" ")[2] for text in directives if text.split()[:1] == ["skip"]]


def has_console(page: Path) -> bool:
    """Whether a page has a console block."""
    return any(match["language"] == "console" for match in _ITEM.finditer(page.read_text()))


class _Replay:
    """One run of a page: the values that its names stand for, and the directives in force."""

    def __init__(self, page: Path, shell: _Shell, directory: Path) -> None:
        self._page = page
        self._shell = shell
        self._directory = directory
        self._names: dict[str, str] = {}
        self._ahead = _Ahead()
        self._file = ""
        self._piped: Block | None = None

    def differences(self) -> Iterator[Difference]:
        text = self._page.read_text()
        for item in _ITEM.finditer(text):
            line = text.count("\n", 0, item.start()) + 1
            if item["file"]:
                self._file = item["file"]
            elif item["directive"]:
                yield from self._obey(item["directive"], line)
            else:
                yield from self._block(item["language"], item["body"], line + 1)

    def _obey(self, directive: str, line: int) -> Iterator[Difference]:
        verb, _, rest = directive.partition(" ")
        left, _, right = rest.partition(" = ")
        if verb == "run":
            self._shell.run(self._renamed(rest), 0)
        elif verb == "check":
            yield from self._compare(Block(line, left, (right,), False))
        elif verb == "pid":
            self._names[left] = self._shell.run(f"echo {right}", 1)[0]
        elif verb == "port":
            self._names[rest] = str(_free_port())
        elif verb == "name":
            self._name_alone(rest)
        elif verb == "rate":
            self._names["demo/kvload"] = f"demo/kvload --rate {rest}"
        elif verb == "file":
            name, _, page = rest.partition(" of ")
            (self._directory / name).write_text(_file_in(self._page.parent / page, name))
        elif verb == "numbers":
            self._ahead = self._ahead._replace(numbers=True, words=tuple(rest.split()))
        elif verb == "linked":
            self._ahead = self._ahead._replace(linked=True)
        elif verb == "pipe":
            self._ahead = self._ahead._replace(pipe=rest)
        elif verb == "skip" or (verb == "needs" and not all(map(_is_installed, rest.split()))):
            self._ahead = self._ahead._replace(skipped=True)
        elif verb != "needs":
            raise ValueError(f"{self._page}:{line}: no such directive: {verb}")

    def _name_alone(self, program: str) -> None:
        """Others may run the same program, and a command by its name would mean theirs, too."""
        name = Path(program).name
        unique = f"{name}{self._shell.pid}"
        shutil.copy2(_ROOT / program, self._directory / ".bin" / unique)
        self._names[program] = f".bin/{unique}"
        self._names[name] = unique

    def _block(self, language: str, body: str, line: int) -> Iterator[Difference]:
        ahead, self._ahead = self._ahead, _Ahead()
        if self._file:
            (self._directory / self._file).write_text(body)
            self._file = ""
        elif self._piped and not language:
            yield from self._compare(self._piped._replace(output=tuple(body.splitlines())))
            self._piped = None
        elif ahead.skipped:
            pass
        elif ahead.pipe:
            command = f"{ahead.pipe} <<'{_END_OF_INPUT}'\n{body}{_END_OF_INPUT}"
            self._piped = Block(line, command, (), ahead.numbers, ahead.words)
        elif language == "console":
            for block in blocks(body, line, numbers=ahead.numbers):
                yield from self._compare(block._replace(words=ahead.words, linked=ahead.linked))

    def _compare(self, block: Block) -> Iterator[Difference]:
        printed = self._shell.run(self._renamed(block.command), len(block.output))
        for line, real in zip(block.output, printed, strict=False):
            if (shown := _PID.search(line)) and (actual := _PID.search(real)):
                self._names[shown[1]] = actual[1]
        output = [self._renamed(line) for line in block.output]
        if not matches(
            output, printed, numbers=block.numbers, words=block.words, linked=block.linked
        ):
            yield Difference(block, tuple(printed))

    def _renamed(self, text: str) -> str:
        for name, value in self._names.items():
            text = re.sub(rf"(?<![\w.]){re.escape(name)}(?!\w|\.\d)", value, text)
        return text


def _file_in(page: Path, name: str) -> str:
    """The block that a page shows under this file name."""
    items = list(_ITEM.finditer(page.read_text()))
    (body,) = (after["body"] for item, after in pairwise(items) if item["file"] == name)
    return str(body)


def _is_installed(tool: str) -> bool:
    kind, _, module = tool.rpartition(":")
    return bool(importlib.util.find_spec(module) if kind == "python" else shutil.which(module))


def blocks(body: str, line: int, *, numbers: bool = False) -> Iterator[Block]:
    """The commands of a console block, each with its output. The block begins at `line`."""
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
    linked: bool = False,
) -> bool:
    """Whether the printed lines are those that a page shows, apart from what differs by run."""
    lines = (
        r"(?:[^\n]*\n)*?"
        if line.strip() == "…"
        else f"{pattern_of(line, numbers=numbers, linked=linked)}\n"
        for line in shown
    )
    pattern = "".join(lines)
    if words:
        any_word = "|".join(map(re.escape, words))
        pattern = re.sub(rf"\b(?:{any_word})\b", f"(?:{any_word})", pattern)
    return re.fullmatch(pattern, "".join(f"{line}\n" for line in printed)) is not None


def pattern_of(line: str, *, numbers: bool = False, linked: bool = False) -> str:
    """The pattern of a line that a page shows."""
    kinds = (*_OF_A_RUN, *(_LINKED if linked else ()), *((_NUMBER,) if numbers else ()))
    any_kind = re.compile("|".join(f"({kind})" for kind, _ in kinds) + r"|(\s*…)|(\s+)")
    pattern, end = "", 0
    for match in any_kind.finditer(line):
        pattern += re.escape(line[end : match.start()])
        end = match.end()
        group = (match.lastindex or 0) - 1
        if group < len(kinds):
            pattern += kinds[group][1]
        else:
            pattern += r"[^\n]*" if group == len(kinds) else r"[^\S\n]+"
    return pattern + re.escape(line[end:]) + r"[^\S\n]*"


def _free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port


@cache
def client() -> Path:
    """The program that is called markerjit in a shell: it has its commands forked."""
    folder = tempfile.TemporaryDirectory(prefix="mj-client-")
    atexit.register(folder.cleanup)
    client = Path(folder.name) / "markerjit"
    source = Path(__file__).with_name("command_client.c")
    subprocess.run(["gcc", "-O1", "-Wall", "-Werror", "-o", client, source], check=True)
    return client


class _Shell:
    """A bash that runs one command after the other, with `markerjit` and our programs at hand."""

    def __init__(self, directory: Path) -> None:
        tools = directory / ".bin"
        tools.mkdir()
        shutil.copy2(client(), tools / "markerjit")
        python = tools / "python"
        python.write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
        python.chmod(0o755)
        for name in ("markerjit", "docs"):
            (directory / name).symlink_to(_ROOT / name)
        # What programs allocate and print depends on the locale; some users have none.
        environment = {
            "LANG": "C.UTF-8",
            **os.environ,
            "PATH": f"{tools}:{os.environ['PATH']}",
            "PYTHONPATH": str(_ROOT),
            "COLUMNS": "200",
            "TERM": "dumb",
            "TZ": "UTC",
            "COMMAND_SERVER": server_name(),
        }
        self._bash = Limited(
            ["bash", "--noprofile", "--norc"],
            cwd=directory,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,  # so that all it started can be ended with it
        )

    @property
    def pid(self) -> int:
        return self._bash.pid

    def run(self, command: str, lines: int) -> list[str]:
        """What a command prints. A command in the background is read until it has printed this
        many lines."""
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
        wait = Wait("the shell")
        data = b""
        while not is_enough(data.decode(errors="replace")):
            wait.for_input(output)
            piece = os.read(output, 1 << 16)
            if not piece:
                raise AssertionError(f"the shell ended; it printed {data.decode()!r}")
            data += piece
        return data.decode(errors="replace")
