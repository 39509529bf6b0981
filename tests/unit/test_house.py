"""Draws the map of the house from the imports, and holds the house to it.

Offers a checker of plain sources (so that it can be tested on made-up ones) and runs it on
markerjit/. It sees imports at any depth, in functions and under TYPE_CHECKING too, and
`import_module` of a constant; it does not see names that are put together at run time.
"""

from __future__ import annotations

import ast
import io
import tokenize
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

# As the design draws it, and the rooms that came later.
FLOORS = (
    ("errors", "printable"),
    ("model", "arguments"),
    ("abi", "memory", "elf", "x86"),
    ("proc", "ring", "sites"),
    ("remote", "trace"),
    ("arena", "quiesce"),
    ("patch",),
    ("events",),
    ("probes",),
    ("session",),
    ("explain", "doctor"),
    ("facts",),
    ("apps",),
    ("cli",),
)
FLOOR = {room: number for number, rooms in enumerate(FLOORS) for room in rooms}

# The doors show rooms to the outside, so they may open any; nobody inside uses a door.
DOORS = ("markerjit", "markerjit.__main__", "markerjit.lowlevel")

# Outside the house: what they may use, besides their own modules.
OUTSIDE = {
    "apps": ("markerjit", "markerjit.lowlevel", "errors", "model"),
    "cli": (
        *("markerjit", "markerjit.lowlevel", "errors", "printable", "model"),
        *("explain", "doctor", "facts", "apps"),
    ),
}

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
HOME_OF_OPCODES = "markerjit.x86.templates"


# ---- the checker -------------------------------------------------------------------------------


def imports(
    module: str, source: str, *, is_package: bool = False, whole: bool = False
) -> Iterator[tuple[int, str]]:
    """(line, module imported) for every import of markerjit, relative ones made absolute.

    `whole`: also each imported name, which may be a module of that package.
    """
    for node in ast.walk(ast.parse(source)):
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                parts = module.split(".")
                keep = len(parts) - node.level + (1 if is_package else 0)
                base = ".".join([*parts[:keep], *filter(None, [node.module])])
            # `from markerjit import elf` comes in by the front door, whatever it then takes.
            names = [base, *(f"{base}.{alias.name}" for alias in node.names if whole)]
        elif isinstance(node, ast.Call) and _is_import_module(node.func) and node.args:
            name = node.args[0]
            if isinstance(name, ast.Constant) and isinstance(name.value, str):
                names = [name.value]
        for name in names:
            if name.split(".")[0] == "markerjit":
                yield getattr(node, "lineno", 0), name


def complaints(module: str, source: str, *, is_package: bool = False) -> list[str]:
    """What is wrong with the imports of one module, a sentence each."""
    if module in DOORS:
        return []
    here = _room(module)
    if here not in FLOOR:
        return [f"{module}: the room {here} is on no floor of the map"]
    found = []
    for line, name in imports(module, source, is_package=is_package):
        there = name if name in DOORS else _room(name)
        if there == here:
            continue
        if here in OUTSIDE:
            wrong = there not in OUTSIDE[here] and f"{here} comes in by the door"
        elif there in DOORS:
            wrong = "no room uses the door"
        elif there not in FLOOR:
            wrong = f"the room {there} is on no floor of the map"
        elif FLOOR[there] == FLOOR[here]:
            wrong = f"{here} and {there} are on one floor"
        else:
            wrong = FLOOR[there] > FLOOR[here] and f"{there} is above {here}"
        if wrong:
            found.append(f"{module}:{line} imports {name}, but {wrong}")
    return found


def circles(arrows: dict[str, set[str]]) -> list[set[str]]:
    """The sets of modules that import each other in a loop, from (module: modules imported)."""
    reached = {module: _reachable(module, arrows) for module in arrows}
    loops = [
        {other for other in reached[module] if module in reached.get(other, ())}
        for module in arrows
        if module in reached[module]
    ]
    return [loop for index, loop in enumerate(loops) if loop not in loops[:index]]


def _reachable(module: str, arrows: dict[str, set[str]]) -> set[str]:
    reached: set[str] = set()
    ahead = set(arrows[module])
    while ahead:
        reached |= ahead
        ahead = {name for there in ahead for name in arrows.get(there, ())} - reached
    return reached


def opcode_literals(source: str) -> list[str]:
    """Opcodes written as hexadecimal numbers, in bytes, or in the text for bytes.fromhex."""
    found = [
        f"line {token.start[0]} has {token.string}"
        for token in tokenize.generate_tokens(io.StringIO(source).readline)
        if token.type == tokenize.NUMBER
        and token.string.lower().startswith("0x")
        and ast.literal_eval(token.string) in OPCODES
    ]
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
            found.append(f"line {node.lineno} has {value!r}")
    return found


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


def _is_import_module(function: ast.expr) -> bool:
    name = function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")
    return name in {"import_module", "__import__"}


def _room(module: str) -> str:
    return module.split(".")[1]


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
    found = complaints(module, source)

    assert len(found) == 1
    assert why in found[0]


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
    found = list(imports("markerjit.elf", "from .notes import x", is_package=True))

    assert found == [(1, "markerjit.elf.notes")]


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


def _modules(repo: Path) -> Iterator[tuple[str, Path]]:
    for path in sorted((repo / "markerjit").rglob("*.py")):
        parts = path.relative_to(repo).with_suffix("").parts
        yield ".".join(parts[:-1] if parts[-1] == "__init__" else parts), path


def test_every_room_imports_only_from_floors_below(repo: Path) -> None:
    found = [
        complaint
        for module, path in _modules(repo)
        for complaint in complaints(module, path.read_text(), is_package=path.name == "__init__.py")
    ]

    assert not found, "\n".join(found)


def test_modules_of_a_room_form_no_circle(repo: Path) -> None:
    arrows = {
        module: {
            name
            for _, name in imports(
                module, path.read_text(), is_package=path.name == "__init__.py", whole=True
            )
        }
        for module, path in _modules(repo)
        if path.name != "__init__.py"  # a package hands on the names of its own modules
    }

    assert circles(arrows) == []


def test_kinds_of_cost_share_the_sampling_and_not_each_other(repo: Path) -> None:
    arrows = {
        (module.split(".")[3], name.split(".")[3])
        for module, path in _modules(repo)
        if module.startswith(f"{BENCH}.") and path.parent.name in ROOMS_OF_BENCH
        for _, name in imports(module, path.read_text(), is_package=path.name == "__init__.py")
        if name.startswith(f"{BENCH}.")
    }

    allowed = {(room, other) for room, below in ROOMS_OF_BENCH.items() for other in (room, *below)}
    assert arrows <= allowed, sorted(arrows - allowed)
    assert {room for room, _ in arrows} == set(ROOMS_OF_BENCH)


def test_a_bench_outside_the_package_comes_in_by_the_api(repo: Path) -> None:
    found = [
        f"{path.name}:{line} imports {name}"
        for path in sorted((repo / "bench" / "real").glob("*.py"))
        for line, name in imports(f"real.{path.stem}", path.read_text())
        if name.startswith(BENCH) and name != f"{BENCH}.api"
    ]

    assert not found, "\n".join(found)


def test_opcodes_are_written_in_one_file_only(repo: Path) -> None:
    found = [
        f"{module}: {literal}"
        for module, path in _modules(repo)
        if module != HOME_OF_OPCODES
        for literal in opcode_literals(path.read_text())
    ]

    assert not found, "\n".join(found)


def test_lengths_of_files_are_in_the_summary(
    repo: Path, record_property: Callable[[str, object], None]
) -> None:
    """A number to look at, and no limit: a reader judges where a long file has two subjects."""
    native = [*(repo / "native" / "src").rglob("*.[ch]"), *(repo / "native" / "lib").rglob("*.c")]
    files = [path for _, path in _modules(repo)] + native

    lengths = {str(path.relative_to(repo)): len(path.read_text().splitlines()) for path in files}

    record_property("summary", distribution(lengths))


def test_no_room_is_empty(repo: Path) -> None:
    filled: dict[str, bool] = {}
    for module, path in _modules(repo):
        if module not in DOORS:
            room = _room(module)
            filled[room] = filled.get(room, False) or has_content(path.read_text())

    assert [room for room, full in filled.items() if not full] == []


def test_no_public_name_is_that_of_a_module() -> None:
    """The import of the module would take its place: markerjit.merge was a function or a module,
    whichever was looked for first."""
    import markerjit

    assert not {path.stem for path in Path(markerjit.__file__).parent.iterdir()} & {
        *markerjit.__all__
    }
