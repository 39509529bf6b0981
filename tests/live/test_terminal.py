"""What a target or a trace file says does not reach the terminal as a command to it.

The target has escape sequences and newlines wherever it can: in the names, formats and source files
of its markers, in its path and in its arguments.
"""

from __future__ import annotations

import ast
import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from markerjit.printable import printable
from markerjit.ring.types import RecordType
from markerjit.trace.lines import line_formatter
from markerjit.trace.open import open_sink
from tests.support.commands import cli
from tests.support.made_traces import EVENTS, make_batch, make_info
from tests.support.programs import ROOT
from tests.support.timing import Limited

CLEAR, TITLE = "\x1b[2J", "\x1b]0;x\x07"
SOURCE = """
#include <markerjit/marker.h>
#include <stdio.h>
#include <unistd.h>
#line 9 "\\033[2J\\nforged.c"
int main(void) {
    puts("ready");
    fflush(stdout);
    for (int i = 0;; i++) {
        MARK(esc_name, "a clear %d\\033[2J\\n", i);
        usleep(1000);
    }
}
"""


@pytest.fixture
def hostile(tmp_path: Path) -> Path:
    """A program with a marker whose format and source are hostile, as is the program's path."""
    folder = tmp_path / f"fold{CLEAR}er"
    folder.mkdir()
    program = folder / f"pro{TITLE}gram"
    subprocess.run(
        ["gcc", "-O2", "-w", f"-I{ROOT}/native/include", "-xc", "-", "-o", program],
        input=SOURCE, text=True, check=True,
    )  # fmt: skip
    return program


@pytest.fixture
def pid(hostile: Path) -> Iterator[int]:
    with Limited([hostile, f"arg{CLEAR}", "two\nlines"], stdout=subprocess.PIPE) as process:
        assert process.stdout and process.stdout.readline() == b"ready\n"
        yield process.pid
        process.kill()


def is_harmless(*texts: str) -> bool:
    """Whether it is lines of printable text."""
    return all(line.isprintable() for text in texts for line in text.split("\n"))


@pytest.mark.parametrize(
    "args",
    [
        ("list", "{pid}"), ("list", "{pid}", "--json"), ("list", "{path}"), ("list", "{path}", "x"),
        ("explain", "{pid}", "*"), ("explain", "{path}", "*"), ("explain", "{pid}", "*", "--json"),
        ("on", "{pid}", "*"), ("on", "{pid}", "*", "--mode", "pointer"), ("off", "{pid}", "*"),
        ("status", "{pid}"), ("doctor", "{pid}"), ("trace", "{pid}", "*", "--events", "3"),
        ("trace", "{pid}", "*", "--events", "3", "--json"),
        ("flight", "start", "{pid}", "*"),
    ],
)  # fmt: skip
def test_a_command_shows_what_a_target_says_as_printable_text(
    args: tuple[str, ...], hostile: Path, pid: int
) -> None:
    done = cli(*(word.format(pid=pid, path=hostile) for word in args))

    assert is_harmless(done.stdout, done.stderr)
    assert "Traceback" not in done.stderr


def test_a_name_that_is_no_identifier_is_told_as_printable_text(hostile: Path) -> None:
    image = hostile.read_bytes()
    assert b"esc_name" in image
    hostile.write_bytes(image.replace(b"esc_name", f"{CLEAR}name".encode()))

    done = cli("list", hostile)

    assert (done.returncode, done.stdout) == (1, "")
    assert "has a name that is not a C identifier" in done.stderr
    assert is_harmless(done.stderr)


def test_a_newline_in_a_source_does_not_make_a_line(hostile: Path, pid: int) -> None:
    _, *rows = cli("list", pid).stdout.splitlines()

    assert len(rows) == 1
    assert r"\x1b[2J\nforged.c:" in rows[0]


@pytest.mark.parametrize("suffix", [".txt", ".jsonl", ".ctf", ".json", ".pftrace"])
@pytest.mark.parametrize("options", [(), ("--stats",), ("--json",), ("--marker", "x")])
def test_a_trace_file_does_not_command_the_terminal(
    suffix: str, options: tuple[str, ...], tmp_path: Path
) -> None:
    path = tmp_path / f"a{TITLE}{suffix}"
    info = make_info()
    types = tuple(
        RecordType(kind.id, f"{kind.marker}{CLEAR}", kind.format, kind.fields, time=kind.time)
        for kind in info.types
    )
    info = info._replace(types=types, command=CLEAR, host=TITLE)
    events = [event._replace(name=f"{event.name}{CLEAR}") for event in EVENTS]
    if suffix != ".ctf":
        sink = open_sink(str(path), info)
        sink.write(make_batch(info, events))
        sink.close({(0, f"odd{CLEAR}"): 1})
    else:
        path.mkdir()
        (path / "metadata").write_text(f"/* CTF 1.8 */\n{CLEAR}")

    done = cli("read", path, *options)

    assert is_harmless(done.stdout, done.stderr)
    assert "Traceback" not in done.stderr


def test_json_lines_have_no_control_characters_of_the_second_set() -> None:
    """U+009B is what ESC [ is; JSON lets it stand in a string."""
    event = EVENTS[0]._replace(name="a\x9b2J", fields={"b\x7f": "\x9b"})

    line = line_formatter({}, json=True)(event)

    assert line.isprintable()
    assert json.loads(line)["name"] == event.name


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain µ…", "plain µ…"),
        ("\x1b[2J", r"\x1b[2J"),
        ("a\nb\r\t", r"a\nb\r\t"),
        ("\x9b2J", r"\x9b2J"),
        ("\u202egnp", r"\u202egnp"),
        ("\udc80", r"\udc80"),
    ],
)
def test_what_is_not_printable_is_an_escape(text: str, shown: str) -> None:
    assert printable(text) == shown
    assert shown.isprintable()


def test_commands_print_by_the_functions_that_make_it_printable() -> None:
    """A print() of its own would be the next hole."""
    folder = ROOT / "markerjit" / "cli"
    prints = {
        path.name
        for path in folder.glob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id == "print"
    }

    assert prints == {"output.py", "main.py", "parser.py"}  # parser.py: what argparse makes
