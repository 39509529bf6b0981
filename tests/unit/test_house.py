"""The house keeps to its map: what a room may import, and where opcodes stand.

The map and the checker are in tests/support/house.py, the picture of it in draw_house.py beside it.
"""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.draw_house import PICTURE, drawing, needed
from tests.support.house import (
    DOORS,
    FLOORS,
    circles,
    complaints,
    imports,
    modules,
    room_arrows,
    room_of,
)

# Inside the bench: what each of its rooms may use, besides itself. Its other modules may use all.
BENCH = "markerjit.apps.bench"
ROOMS_OF_BENCH = {
    "sampling": (),
    "report": ("sampling",),
    "dormant": ("sampling", "report"),
    "active": ("sampling", "report"),
    "toggle": ("sampling", "report"),
    "reading": ("sampling", "report"),
}

OPCODES = (0xE9, 0xEB, 0xCC, 0xA9)
BYTES = re.compile(r"\bfromhex\b|\b(?:[bB][rR]?|[rR][bB])[\"']")
"""What an opcode in bytes is written with."""
HEXADECIMAL = re.compile("0x([0-9a-f]+(?:_[0-9a-f]+)*)", re.IGNORECASE)
HOME_OF_OPCODES = "markerjit.x86.forms"


def opcode_literals(source: str) -> list[str]:
    """Opcodes written as hexadecimal numbers, in bytes, or in the text for bytes.fromhex."""
    lines = []
    if any(int(digits, 16) in OPCODES for digits in HEXADECIMAL.findall(source)):
        lines = [  # of few files: this takes seconds for all
            f"line {token.start[0]} has {token.string}"
            for token in tokenize.generate_tokens(io.StringIO(source).readline)
            if token.type == tokenize.NUMBER
            and token.string.lower().startswith("0x")
            and ast.literal_eval(token.string) in OPCODES
        ]
    if not BYTES.search(source):
        return lines
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Constant) and isinstance(node.value, bytes):
            value = node.value
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            text = node.args[0] if node.func.attr == "fromhex" and node.args else None
            if not isinstance(text, ast.Constant) or not isinstance(text.value, str):
                continue
            value = bytes.fromhex(text.value)
        else:
            continue
        if any(byte in OPCODES for byte in value):
            lines.append(f"line {node.lineno} has {value!r}")
    return lines


def has_content(source: str) -> bool:
    """Whether there is more than a docstring, `pass` and future imports."""
    return any(
        not isinstance(node, ast.Pass)
        and not (isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant))
        and not (isinstance(node, ast.ImportFrom) and node.module == "__future__")
        for node in ast.parse(source).body
    )


def distribution(lengths: dict[str, int]) -> str:
    """Median, 90th percentile and the five longest of files, whose lines were counted."""
    in_order = sorted(lengths, key=lambda name: lengths[name])
    median, late = (lengths[in_order[len(in_order) * part // 100]] for part in (50, 90))
    longest = ", ".join(f"{name} {lengths[name]}" for name in reversed(in_order[-5:]))
    return f"lines in a file: median {median}, 90th percentile {late}; longest: {longest}"


# ---- the checker on made-up sources ------------------------------------------------------------


@pytest.mark.parametrize(
    ("module", "source", "why"),
    [
        ("markerjit.elf.notes", "from markerjit.patch import Plan", "patch is above elf"),
        ("markerjit.elf.notes", "import markerjit.memory.maps", "elf and memory are on one floor"),
        ("markerjit.elf.notes", "import markerjit", "no room uses the door"),
        ("markerjit.elf.notes", "from markerjit import model", "no room uses the door"),
        ("markerjit.elf.notes", "from .. import model", "no room uses the door"),
        ("markerjit.elf.notes", "from ..memory import maps", "elf and memory are on one floor"),
        ("markerjit.elf.notes", "from markerjit.lowlevel import x", "no room uses the door"),
        ("markerjit.elf.notes", "def f():\n    import markerjit.cli", "cli is above elf"),
        ("markerjit.elf.notes", "import_module('markerjit.apps')", "apps is above elf"),
        ("markerjit.elf.notes", "import markerjit.attic", "the room attic is on no floor"),
        ("markerjit.attic", "", "the room attic is on no floor"),
        ("markerjit.model", "if TYPE_CHECKING:\n    from markerjit.elf import x", "elf is above"),
        ("markerjit.apps.alloc", "from markerjit.patch import Plan", "apps comes in by the door"),
        ("markerjit.apps.alloc", "from markerjit.cli import main", "apps comes in by the door"),
        ("markerjit.cli.main", "from markerjit.session import attach", "cli comes in by the door"),
    ],
)
def test_checker_refuses(module: str, source: str, why: str) -> None:
    sentences = complaints(module, source)

    assert len(sentences) == 1
    assert why in sentences[0]


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("markerjit", "from markerjit.session import attach"),
        ("markerjit.lowlevel", "from markerjit.patch import Plan"),
        ("markerjit.elf.notes", "from markerjit.model import Site"),
        ("markerjit.elf.notes", "from markerjit.elf.objects import x\nfrom .objects import y"),
        ("markerjit.elf.notes", "import os\nfrom os import path"),
        ("markerjit.session", "def f():\n    from markerjit.patch import Plan"),
        ("markerjit.apps.alloc", "import markerjit\nfrom markerjit import attach"),
        ("markerjit.cli.main", "from markerjit.cli.demo import run\nimport markerjit.lowlevel"),
        ("markerjit.cli.explain", "def f():\n    from markerjit.explain import site"),
    ],
)
def test_checker_accepts(module: str, source: str) -> None:
    assert complaints(module, source) == []


def test_relative_imports_of_a_package_start_at_the_package() -> None:
    names = list(imports("markerjit.elf", "from .notes import x", is_package=True))

    assert names == [(1, "markerjit.elf.notes")]


@pytest.mark.parametrize(
    ("arrows", "loops"),
    [
        ({"a": {"b"}, "b": {"c"}, "c": set()}, []),
        ({"a": {"b", "c"}, "b": {"d"}, "c": {"d"}, "d": set()}, []),
        ({"a": {"b"}, "b": {"c"}, "c": {"a"}, "d": {"a"}}, [{"a", "b", "c"}]),
        ({"a": {"a"}}, [{"a"}]),
        ({"a": {"elsewhere"}}, []),
    ],
)
def test_circles_are_found(arrows: dict[str, set[str]], loops: list[set[str]]) -> None:
    assert circles(arrows) == loops


def test_picture_leaves_out_what_other_lines_imply() -> None:
    arrows = {"a": {"b", "c", "d"}, "b": {"c"}, "c": set(), "d": {"c"}}

    assert needed(arrows) == {"a": {"b", "d"}, "b": {"c"}, "c": set(), "d": {"c"}}


@pytest.mark.parametrize(
    "source", ["x = 0xE9", "x = 0xcc", r"x = b'\x90\xeb'", "x = bytes.fromhex('66 90 a9')"]
)
def test_opcode_is_found(source: str) -> None:
    assert len(opcode_literals(source)) == 1


@pytest.mark.parametrize("source", ["x = 233", "x = 0xe900", r"x = b'\x90'", "# 0xe9\n'0xe9'"])
def test_what_is_no_opcode_is_left_alone(source: str) -> None:
    assert opcode_literals(source) == []


@pytest.mark.parametrize(
    ("source", "full"),
    [("", False), ("'Text.'\nfrom __future__ import annotations\npass", False), ("X = 1", True)],
)
def test_content_is_more_than_a_docstring(source: str, full: bool) -> None:
    assert has_content(source) is full


def test_distribution_names_the_five_longest() -> None:
    lengths = {f"{n}.py": n for n in range(10)}

    assert distribution(lengths) == (
        "lines in a file: median 5, 90th percentile 9; "
        "longest: 9.py 9, 8.py 8, 7.py 7, 6.py 6, 5.py 5"
    )


# ---- the house ---------------------------------------------------------------------------------


def test_every_room_imports_only_from_floors_below(repo: Path) -> None:
    wrong = [
        complaint
        for module, path in modules(repo)
        for complaint in complaints(module, path.read_text(), is_package=path.name == "__init__.py")
    ]

    assert not wrong, "\n".join(wrong)


def test_modules_of_a_room_form_no_circle(repo: Path) -> None:
    arrows = {
        module: {
            name
            for _, name in imports(
                module, path.read_text(), is_package=path.name == "__init__.py", whole=True
            )
        }
        for module, path in modules(repo)
        if path.name != "__init__.py"  # a package hands on the names of its own modules
    }

    assert circles(arrows) == []


def test_kinds_of_cost_share_the_sampling_and_not_each_other(repo: Path) -> None:
    arrows = {
        (module.split(".")[3], name.split(".")[3])
        for module, path in modules(repo)
        if module.startswith(f"{BENCH}.") and path.parent.name in ROOMS_OF_BENCH
        for _, name in imports(module, path.read_text(), is_package=path.name == "__init__.py")
        if name.startswith(f"{BENCH}.")
    }

    allowed = {(room, other) for room, below in ROOMS_OF_BENCH.items() for other in (room, *below)}
    assert arrows <= allowed, sorted(arrows - allowed)
    assert {room for room, _ in arrows} == set(ROOMS_OF_BENCH)


def test_a_bench_outside_the_package_comes_in_by_the_api(repo: Path) -> None:
    wrong = [
        f"{path.name}:{line} imports {name}"
        for path in sorted((repo / "bench" / "real").glob("*.py"))
        for line, name in imports(f"real.{path.stem}", path.read_text())
        if name.startswith(BENCH) and name != f"{BENCH}.api"
    ]

    assert not wrong, "\n".join(wrong)


def test_opcodes_are_written_in_one_file_only(repo: Path) -> None:
    wrong = [
        f"{module}: {literal}"
        for module, path in modules(repo)
        if module != HOME_OF_OPCODES
        for literal in opcode_literals(path.read_text())
    ]

    assert not wrong, "\n".join(wrong)


def test_picture_is_that_of_the_code(repo: Path) -> None:
    assert PICTURE.read_text() == drawing(FLOORS, room_arrows(repo)), (
        "the map has changed: python -m tests.support.draw_house draws it anew"
    )


def test_lengths_of_files_are_in_the_summary(
    repo: Path, record_property: Callable[[str, object], None]
) -> None:
    """A number to look at, and no limit: a reader judges where a long file has two subjects."""
    native = [*(repo / "native" / "src").rglob("*.[ch]"), *(repo / "native" / "lib").rglob("*.c")]
    files = [path for _, path in modules(repo)] + native

    lengths = {str(path.relative_to(repo)): len(path.read_text().splitlines()) for path in files}

    record_property("summary", distribution(lengths))


def test_no_room_is_empty(repo: Path) -> None:
    filled: dict[str, bool] = {}
    for module, path in modules(repo):
        if module not in DOORS:
            room = room_of(module)
            filled[room] = filled.get(room, False) or has_content(path.read_text())

    assert [room for room, full in filled.items() if not full] == []


def test_no_public_name_is_that_of_a_module() -> None:
    """The import of the module would take its place: markerjit.merge was a function or a module,
    whichever was looked for first."""
    import markerjit

    assert not {path.stem for path in Path(markerjit.__file__).parent.iterdir()} & {
        *markerjit.__all__
    }
