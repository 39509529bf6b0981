"""The manual pages are whole, and man programs have nothing against them."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from markerjit.cli.examples import EXAMPLES
from markerjit.cli.manual import pages
from markerjit.cli.parser import COMMANDS, command_parser

PAGES = dict(pages())


def shown(page: str) -> str:
    """A page as text, whose dashes and quotes are those that a user types."""
    escapes = {"\\-": "-", "\\(aq": "'", "\\(ga": "`", "\\(ti": "~", "\\e": "\\", "\\[u2026]": "…"}
    for escape, character in escapes.items():
        page = page.replace(escape, character)
    return re.sub(r"\\f[BIR]", "", page)


def test_there_is_a_page_for_each_command() -> None:
    assert set(PAGES) == {"markerjit.1", *(f"markerjit-{command}.1" for command in COMMANDS)}
    for command, line in COMMANDS.items():
        assert f"markerjit-{command}(1)\n{line}\n" in shown(PAGES["markerjit.1"])


@pytest.mark.parametrize("command", COMMANDS)
def test_a_page_has_each_argument_with_its_help(command: str) -> None:
    page = shown(PAGES[f"markerjit-{command}.1"])

    for action in command_parser(command)._actions:
        names = action.option_strings or [str(action.metavar or action.dest.upper())]
        text = " ".join((action.help or "").replace("%%", "%").split())
        head = rf"^\.TP\n{re.escape(names[0])}(?=[ ,\n]).*\n"
        (entry,) = re.findall(f"{head}(.*)$", page, re.MULTILINE)
        assert all(re.search(rf"(?<![\w-]){re.escape(name)}(?![\w-])", page) for name in names)
        assert not text or entry.removeprefix("\\&") == text


@pytest.mark.parametrize("command", COMMANDS)
def test_a_page_has_the_examples_of_its_command(command: str) -> None:
    examples = shown(PAGES[f"markerjit-{command}.1"]).partition("\n.SH EXAMPLES\n")[2]

    for line, meaning in EXAMPLES[command]:
        assert f".TP\n{line}\n{meaning}\n" in examples


@pytest.mark.parametrize("name", PAGES)
def test_a_page_is_ascii_and_each_request_is_known(name: str) -> None:
    assert PAGES[name].isascii()

    requests = {line.split()[0] for line in PAGES[name].splitlines() if line[:1] in (".", "'")}

    assert requests <= {".TH", ".nh", ".SH", ".TP", ".B", ".BR"}


@pytest.mark.parametrize("name", PAGES)
def test_mandoc_has_no_complaint(name: str, tmp_path: Path) -> None:
    if shutil.which("mandoc") is None:
        pytest.skip("needs mandoc (Debian package mandoc)")
    (tmp_path / name).write_text(PAGES[name])

    done = subprocess.run(
        ["mandoc", "-Tlint", "-Wwarning", name], cwd=tmp_path, capture_output=True, text=True,
        check=False,
    )  # fmt: skip

    # A date would be another at each build.
    complaints = [line for line in done.stdout.splitlines() if "missing date" not in line]
    assert complaints + done.stderr.splitlines() == []


@pytest.mark.parametrize("name", PAGES)
def test_groff_has_no_warning(name: str) -> None:
    if shutil.which("groff") is None:
        pytest.skip("needs groff (Debian package groff)")

    done = subprocess.run(
        ["groff", "-man", "-Tutf8", "-ww"], input=PAGES[name], capture_output=True, text=True,
        check=True,
    )  # fmt: skip

    assert done.stderr == ""
