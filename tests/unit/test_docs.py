"""README and docs/ say what is true: their examples run, their commands, links and bytes exist.

The C and Python examples of the README are cut out of the file, compiled, run and traced. What this
does not check: the console output shown in the pages (tests/live/test_pages.py).
"""

from __future__ import annotations

import ast
import contextlib
import enum
import inspect
import io
import os
import pkgutil
import re
import shlex
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest

import markerjit
from markerjit.cli.main import run
from markerjit.cli.parser import COMMANDS, JOBS
from markerjit.model import Kind
from markerjit.x86.forms import marker_form
from tests.support.house import FLOORS
from tests.support.timing import Limited

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
COMMANDS_PAGE = ROOT / "docs" / "reference" / "commands.md"
DECISIONS = sorted((ROOT / "docs" / "decisions").glob("0*.md"))
PYTHON_PAGE = ROOT / "docs" / "reference" / "python.md"

LINE_LENGTH = 120
EVENTS_ENOUGH = 3


class Enough(Exception):
    """Ends the Python example, which would go on for as long as its process runs."""


# ---- reading pages -----------------------------------------------------------------------------


def blocks(text: str, language: str) -> list[str]:
    """The fenced blocks of a language, in order."""
    return re.findall(rf"^```{language}\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)


def code_in(text: str) -> list[str]:
    """All that is set as code: fenced blocks, indented lines, spans."""
    fenced = re.findall(r"^```[^\n]*\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    rest = re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL)
    spans = [" ".join(span.split()) for span in re.findall(r"`([^`]+)`", rest)]
    return fenced + re.findall(r"^    .*$", rest, re.MULTILINE) + spans


def section(text: str, title: str) -> str:
    """From a heading to the next one of its level."""
    level, body = re.split(rf"^(#+) {re.escape(title)}$", text, flags=re.MULTILINE)[1:3]
    return re.split(rf"^{level} ", body, flags=re.MULTILINE)[0]


def invocations(text: str) -> Iterator[tuple[str, list[str]]]:
    """(command, options) for each `markerjit COMMAND …`: at a prompt, or where code begins."""
    for code in code_in(text):
        for line in code.splitlines():
            match = re.match(r"(?:\s*|\$ )markerjit\s+([a-z]\w*)(.*)", line)
            if match:
                yield match[1], re.findall(r"(?<!\S)--[a-z][a-z-]*", match[2])


def table(text: str, header: str) -> list[list[str]]:
    """The rows of the table that begins with this header cell."""
    lines = text.splitlines()
    start = next(n for n, line in enumerate(lines) if line.startswith(f"| {header} |"))
    rows = []
    for line in lines[start + 2 :]:
        if not line.startswith("|"):
            break
        rows.append([cell.strip() for cell in line.strip("|").split("|")])
    return rows


def anchor_of(title: str) -> str:
    """The anchor of a heading, made as GitHub makes it."""
    return re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-")


def anchors(page: Path) -> set[str]:
    """The anchors of a page's headings."""
    return {anchor_of(title) for title in re.findall(r"^#+ (.+)$", page.read_text(), re.MULTILINE)}


def name_of(page: Path) -> str:
    return str(page.relative_to(ROOT))


@cache
def help_of(*arguments: str) -> str:
    output = io.StringIO()
    with contextlib.redirect_stdout(output), contextlib.suppress(SystemExit):
        run([*arguments, "--help"])
    return output.getvalue()


def options_of(command: str) -> set[str]:
    return set(re.findall(r"(?<![\w-])--[a-z][a-z-]*", help_of(command)))


def output_of(*arguments: str) -> str:
    command = [sys.executable, "-m", "markerjit.cli.main", *arguments]
    return subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout


# ---- the examples ------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def ticker(build: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The README's C program, compiled by the README's own command."""
    part = section((ROOT / "README.md").read_text(), "A marker in your own program")
    (source,) = blocks(part, "c")
    (command,) = re.findall(r"^\$ (cc .*)$", part, re.MULTILINE)
    home = tmp_path_factory.mktemp("ticker")
    (home / "ticker.c").write_text(source)
    flags = output_of("--cflags").strip()
    words = shlex.split(command.replace("$(markerjit --cflags)", flags))
    subprocess.run([*words, "-Wall", "-Wextra", "-Werror"], cwd=home, check=True)
    return home / "ticker"


@pytest.fixture
def running(ticker: Path) -> Iterator[int]:
    with Limited([ticker]) as process:
        yield process.pid
        assert process.poll() is None, "the example died"
        process.kill()


def test_c_example_is_listed_with_its_fields(ticker: Path) -> None:
    (marker,), problems = markerjit.list_file(str(ticker))

    assert marker.name == "tick"
    assert [(field.name, str(field.type)) for field in marker.fields] == [
        ("turn", "int"),
        ("half", "float"),
        ("word", "string"),
    ]
    assert not problems


def test_c_example_can_be_traced_from_the_command_line(running: int) -> None:
    lines = output_of("trace", str(running), "tick", "--events", str(EVENTS_ENOUGH)).splitlines()

    assert len(lines) >= EVENTS_ENOUGH
    assert re.search(r' tick turn=\d+ half=[\d.]+ word="(odd|even)"$', lines[0])


def test_python_example_prints_events_and_leaves_the_marker_off(running: int) -> None:
    (source,) = blocks(section((ROOT / "README.md").read_text(), "From Python"), "python")
    printed: list[tuple[Any, ...]] = []

    def collect(*values: Any) -> None:
        printed.append(values)
        if len(printed) == EVENTS_ENOUGH:
            raise Enough

    with pytest.raises(Enough):
        exec(compile(source, "README.md", "exec"), {"pid": running, "print": collect})

    turns = [turn for _, _, turn in printed]
    assert turns == list(range(turns[0], turns[0] + EVENTS_ENOUGH))
    with markerjit.View(running) as view:
        assert [marker.mode for marker in view.statistics()] == [None]


def test_tutorial_program_compiles(build: Path, tmp_path: Path) -> None:
    (source,) = blocks((ROOT / "docs" / "tutorial.md").read_text(), "c")
    (tmp_path / "visits.c").write_text(source)

    flags = output_of("--cflags").split()

    subprocess.run(["cc", "-O2", "-Werror", "-c", "visits.c", *flags], cwd=tmp_path, check=True)


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_probe_in_c_compiles(page: Path, build: Path, tmp_path: Path) -> None:
    sources = [block for block in blocks(page.read_text(), "c") if "<markerjit/probe.h>" in block]

    for number, source in enumerate(sources):
        file = tmp_path / f"probe{number}.c"
        file.write_text(source)
        for name in re.findall(r"^void (\w+)\(struct mj_slot \*", source, re.MULTILINE):
            assert markerjit.compile_probe(file, name).warnings == ""


# ---- commands ----------------------------------------------------------------------------------


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_command_and_option_that_is_mentioned_exists(page: Path) -> None:
    wrong = []
    for command, options in invocations(page.read_text()):
        if command not in COMMANDS:
            wrong.append(command)
        else:
            wrong += [
                f"{command} {option}" for option in options if option not in options_of(command)
            ]

    assert wrong == []


@pytest.mark.parametrize("command", COMMANDS)
def test_reference_has_every_option_of_a_command(command: str) -> None:
    text = COMMANDS_PAGE.read_text()
    titles = re.findall(r"^## (markerjit \w+.*)$", text, re.MULTILINE)
    (title,) = [title for title in titles if title.split()[1] == command]
    described = set(re.findall(r"--[a-z][a-z-]*", section(text, title)))

    missing = options_of(command) - described - {"--help", "--color"}  # of every command

    assert missing == set()
    assert described - options_of(command) == set()


def test_reference_titles_are_the_usage_lines() -> None:
    for title in re.findall(r"^## markerjit (.+)$", COMMANDS_PAGE.read_text(), re.MULTILINE):
        command, *arguments = title.split()

        assert f"{' '.join(arguments)}\n" in help_of(command).split("\n\n")[0] + "\n", title


def _keys(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        for key, inner in value.items():
            yield key
            # The keys of `active` are modes.
            yield from () if key == "active" else _keys(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _keys(inner)


@pytest.mark.parametrize("command", ["list", "explain"])
def test_reference_has_every_json_key(command: str, ticker: Path) -> None:
    import json

    arguments = [command, str(ticker), *(["tick"] if command == "explain" else []), "--json"]
    keys = set(_keys(json.loads(output_of(*arguments))))

    described = set(re.findall(r"\w+", "\n".join(code_in(COMMANDS_PAGE.read_text()))))

    assert keys - described == set()


# ---- the Python reference ------------------------------------------------------------------------


def _set_by_methods(kind: type) -> set[str]:
    """The attributes that the methods of a class set."""
    tree = ast.parse(textwrap.dedent(inspect.getsource(kind)))
    return {
        node.attr
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute)
        and isinstance(node.ctx, ast.Store)
        and isinstance(node.value, ast.Name)
        and node.value.id == "self"
    }


def members_of(kind: type) -> set[str]:
    """The public members of a class and of its bases in markerjit."""
    names = set[str]()
    for base in kind.__mro__:
        if base.__module__.startswith("markerjit"):
            names |= {*vars(base), *inspect.get_annotations(base)}
            if not issubclass(base, tuple | enum.Enum):
                names |= _set_by_methods(base)
    return {name for name in names if not name.startswith("_")}


def spans_in(cells: Iterable[str]) -> list[str]:
    """What is set as code in cells of tables."""
    return [span for cell in cells for span in re.findall(r"`([^`]+)`", cell)]


def rows_in(title: str, header: str) -> list[list[str]]:
    """The rows of all tables of a section that begin with this header cell."""
    text = section(PYTHON_PAGE.read_text(), title)
    tables = re.split(rf"(?=^\| {header} \|)", text, flags=re.MULTILINE)[1:]
    return [row for part in tables for row in table(part, header)]


def described_in(title: str, header: str) -> dict[str, str]:
    """The names in the first column of a section's tables, each with its signature, or ''."""
    spans = spans_in(row[0] for row in rows_in(title, header))
    return {name: signature for name, _, signature in (span.partition("(") for span in spans)}


def members_described_in(title: str, header: str) -> dict[str, set[str]]:
    """The first column of a section's tables, with the names in the second one."""
    rows = rows_in(title, header)
    names = [row[0].strip("`") for row in rows]
    assert len(set(names)) == len(names)  # each stands in one table
    return {name: set(spans_in(row[1:2])) for name, row in zip(names, rows, strict=True)}


def signature_of(function: Callable[..., Any]) -> str:
    """The parameters of a function as the page writes them: without types, defaults that are
    functions as `…`."""
    parameters = [
        parameter.replace(
            annotation=inspect.Parameter.empty,
            default=_Shown("…") if inspect.isfunction(parameter.default) else parameter.default,
        )
        for parameter in inspect.signature(function).parameters.values()
        if parameter.name != "self"
    ]
    return str(inspect.Signature(parameters))[1:].replace("'", '"')


class _Shown(str):
    """A text that is shown without quotes."""

    def __repr__(self) -> str:
        return str(self)


PUBLIC = {name: getattr(markerjit, name) for name in markerjit.__all__}
CLASSES = {name: value for name, value in PUBLIC.items() if inspect.isclass(value)}
ERRORS = {name: kind for name, kind in CLASSES.items() if issubclass(kind, Exception)}
VALUES = {name: kind for name, kind in CLASSES.items() if issubclass(kind, tuple | enum.Enum)}
OBJECTS = {name: kind for name, kind in CLASSES.items() if name not in {*ERRORS, *VALUES}}


def test_python_reference_has_the_public_functions_with_their_parameters() -> None:
    functions = {name: value for name, value in PUBLIC.items() if inspect.isfunction(value)}

    described = described_in("Functions", "function")

    assert described == {name: signature_of(value) for name, value in functions.items()}
    assert set(PUBLIC) - set(functions) - set(CLASSES) == {"__version__"}


@pytest.mark.parametrize("name", OBJECTS)
def test_python_reference_has_the_members_of_a_class(name: str) -> None:
    kind = OBJECTS[name]
    inherited = members_of(markerjit.View) if name == "Session" else set[str]()

    described = described_in(name, "member")

    assert set(described) == members_of(kind) - inherited
    functions = {member: inspect.getattr_static(kind, member, None) for member in described}
    assert described == {
        member: signature_of(value) if inspect.isfunction(value) else ""
        for member, value in functions.items()
    }


def test_python_reference_has_the_members_of_values() -> None:
    described = members_described_in("Values", "value")

    assert described == {name: members_of(kind) for name, kind in VALUES.items()}


def test_python_reference_has_the_attributes_of_errors() -> None:
    described = members_described_in("Errors", "error")

    assert described == {name: members_of(kind) for name, kind in ERRORS.items()}


def raised(described: object) -> str:
    """The sentences of a docstring that say what is raised."""
    text = " ".join((inspect.getdoc(described) or "").split())
    sentences = re.split(r"(?<=[.)]) (?=[A-Z`])", text)
    return " ".join(each for each in sentences if each.startswith("Raises "))


def test_python_reference_has_what_docstrings_say_of_errors() -> None:
    calls = {name: PUBLIC[name] for name in described_in("Functions", "function")}
    for title, kind in OBJECTS.items():
        for member in described_in(title, "member"):
            calls[f"{title}.{member}"] = inspect.getattr_static(kind, member, None)

    expected = [f"| `{name}` | {raised(call)} |" for name, call in calls.items() if raised(call)]
    rows = [f"| {name} | {sentences} |" for name, sentences in rows_in("Errors", "call")]
    assert rows == expected, "the rows should be:\n" + "\n".join(expected)


@pytest.mark.parametrize("name", OBJECTS)
def test_docstrings_name_the_attributes(name: str) -> None:
    kind = OBJECTS[name]
    set_in_methods = {
        member
        for member in described_in(name, "member")
        if inspect.getattr_static(kind, member, None) is None
    }

    text = " ".join(base.__doc__ or "" for base in kind.__mro__)
    assert set_in_methods <= set(re.findall(r"\w+", text))


def test_python_reference_names_only_what_exists() -> None:
    mentioned = set(re.findall(r"markerjit\.([A-Za-z_]\w*)", PYTHON_PAGE.read_text()))

    assert mentioned - {*markerjit.__all__, "lowlevel"} == set()


def test_command_reference_lists_the_commands_by_job() -> None:
    text = COMMANDS_PAGE.read_text()
    titles = re.findall(r"^## (markerjit (\w+).*)$", text, re.MULTILINE)

    rows = table(section(text, "Commands by job"), "job")

    expected = [
        [job if n == 0 else "", name, line]
        for job, commands in JOBS.items()
        for n, (name, line) in enumerate(commands.items())
    ]
    links = {f"[{name}](#{anchor_of(title)})": name for title, name in titles}
    assert [[job, links.get(link, link), line] for job, link, line in rows] == expected
    assert [name for _, name in titles] == list(COMMANDS)  # the sections are in this order


def test_command_reference_has_the_options_without_a_command() -> None:
    usage = COMMANDS_PAGE.read_text().split("\n## ")[0]

    options = set(re.findall(r"(?<![\w-])--[a-z][a-z-]*", help_of()))

    described = set(re.findall(r"markerjit (--[a-z][a-z-]*)", usage))
    assert described == options


# ---- links and bytes ---------------------------------------------------------------------------


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_relative_link_resolves(page: Path) -> None:
    broken = []
    for link in re.findall(r"\]\(([^)\s]+)\)", page.read_text()):
        path, _, anchor = link.partition("#")
        if ":" in path:
            continue
        target = page.parent / path if path else page
        if not target.exists() or (anchor and anchor not in anchors(target)):
            broken.append(link)

    assert broken == []


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_path_that_is_mentioned_exists(page: Path) -> None:
    spans = re.findall(r"`((?:markerjit|native|tests|bench|docs)/[\w./]+)`", page.read_text())

    roots = (ROOT, ROOT / "native" / "include")
    assert [span for span in spans if not any((root / span).exists() for root in roots)] == []


def test_every_decoder_on_the_page_on_fuzzing_exists() -> None:
    rows = table((ROOT / "docs" / "reference" / "fuzzing.md").read_text(), "harness")

    for name in spans_in(row[1] for row in rows):
        if "." in name:
            pkgutil.resolve_name(f"markerjit.{name}")


def _shown(cell: str) -> bytes | None:
    match = re.search(r"`((?:[0-9a-f]{2} ?)+)`", cell)
    return bytes.fromhex(match[1]) if match else None


@pytest.mark.parametrize(
    ("page", "header"),
    [("docs/reference/modes.md", "mode"), ("docs/explanation/protocol.md", "kind")],
)
def test_bytes_in_the_table_of_modes_are_those_that_are_patched(page: str, header: str) -> None:
    rows = table((ROOT / page).read_text(), header)

    shown = {row[0].strip("`"): (_shown(row[1]), _shown(row[2])) for row in rows}

    patched = {
        str(kind): (form.head, form.ways[form.modes[0]])
        for kind in Kind
        if (form := marker_form(kind, 0, 0)).head
    }
    assert {name: pair for name, pair in shown.items() if any(pair)} == patched


def test_reference_has_every_kind_of_site(repo: Path) -> None:
    rows = table((repo / "docs" / "reference" / "modes.md").read_text(), "mode")

    assert {row[0].strip("`") for row in rows} == {"none", *map(str, Kind)}


@pytest.mark.parametrize("page", DECISIONS, ids=name_of)
def test_decisions_have_one_format_and_are_listed(page: Path) -> None:
    text = page.read_text()

    title = f"# {page.name[:4]}: "
    assert text.startswith(title)
    assert re.findall(r"^#+ .*$", text, re.MULTILINE)[1:] == ["## Chosen", "## Why", "## Given up"]
    listed = dict(
        re.findall(r"^\| \[\d{4}\]\((.*?)\) \| (.*) \|$", _decisions_list(), re.MULTILINE)
    )
    assert listed[page.name] == text.splitlines()[0].removeprefix(title)


def test_each_decision_has_a_number_of_its_own() -> None:
    numbers = [page.name[:4] for page in DECISIONS]

    assert sorted(set(numbers)) == numbers


def _decisions_list() -> str:
    return (ROOT / "docs" / "decisions" / "README.md").read_text()


def test_prose_is_wrapped() -> None:
    """Tables, code, pictures and links that are longer are as they are."""
    long = [
        f"{name_of(page)}: {line}"
        for page in PAGES
        if page.parent.name != "results" and page.name not in ("changes.md", "house.md")
        for line in re.sub(r"^```.*?^```$", "", page.read_text(), flags=re.M | re.S).splitlines()
        if len(line) > LINE_LENGTH and not line.startswith(("|", "!", "<!--", "    ", "["))
    ]

    assert long == []


def test_ring_page_has_the_layout_of_a_record(repo: Path) -> None:
    page = (repo / "docs" / "explanation" / "ring.md").read_text()
    header = (repo / "native" / "include" / "markerjit" / "abi.h").read_text()

    shown = [(row[0].strip("`"), int(row[1]), row[2]) for row in table(page, "field")]
    states = re.search(r"The states are (.*?)\.", page, re.DOTALL)

    (body,) = re.findall(r"^struct mj_record \{\n(.*?)^\};", header, re.MULTILINE | re.DOTALL)
    fields, end = list[tuple[str, int, str]](), 0
    for bits, name in re.findall(r"^ +uint(\d+)_t (\w+);", body, re.MULTILINE):
        fields.append((name, end, str(int(bits) // 8)))
        end += int(bits) // 8
    assert shown == [*fields, ("time", end, "8"), ("fields", end + 8, "")]
    named = re.findall(r"^#define MJ_TEXT_(\w+) (\d)", header, re.MULTILINE)
    assert states
    assert [
        (name.upper(), number) for number, name in re.findall(r"(\d) (\w+)", states[1])
    ] == named


def test_house_page_draws_the_map_that_the_test_draws(repo: Path) -> None:
    page = (repo / "docs" / "explanation" / "house.md").read_text()
    drawn = re.search(rf"^    {FLOORS[0][0]}\b.*\n(?:    .*\n)+", page, re.MULTILINE)

    assert drawn
    assert [tuple(line.split()) for line in drawn[0].splitlines()] == list(FLOORS)


def test_figures_are_those_of_their_files(repo: Path) -> None:
    done = subprocess.run(
        [sys.executable, repo / "bench" / "pages.py", "--check"],
        env={**os.environ, "PYTHONPATH": str(repo)}, capture_output=True, text=True, check=False,
    )  # fmt: skip

    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_newest_change_is_of_this_version(repo: Path) -> None:
    newest = re.search(r"^## (\S+)", (repo / "docs" / "changes.md").read_text(), re.MULTILINE)

    assert newest and newest[1] == markerjit.__version__


def test_invocations_are_found_in_all_kinds_of_code() -> None:
    text = (
        "`markerjit on 1 --mode jump`\n```\n$ markerjit off 1 --json\n```\n\n    markerjit list 1\n"
    )

    assert list(invocations(text)) == [("off", ["--json"]), ("list", []), ("on", ["--mode"])]


def test_a_section_ends_at_the_next_heading_of_its_level() -> None:
    assert section("## a\nx\n### b\ny\n## c\nz\n", "a") == "\nx\n### b\ny\n"
