"""The map of the house: its floors, and what the imports of the code say of its rooms.

Offers a checker of plain sources, so that it can be tested on made-up ones. The checker sees
imports at any depth, in functions and under TYPE_CHECKING too, and `import_module` of a constant.
It does not see names that are put together at run time.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

# As the design draws it, and the rooms that came later.
FLOORS = (
    ("printable", "ours", "tuples", "uncollected", "runs"),
    ("errors",),
    ("frames",),
    ("model", "arguments"),
    ("abi", "memory", "elf", "x86", "questions"),
    ("proc", "ring", "sites", "spans"),
    ("remote", "targets", "trace", "unwind"),
    ("arena", "quiesce", "calls"),
    ("patch", "allocations"),
    ("events",),
    ("probes",),
    ("session",),
    ("fleet",),
    ("explain", "doctor", "lab"),
    ("facts",),
    ("apps", "watch", "export"),
    ("web",),
    ("cli",),
)
FLOOR = {room: number for number, rooms in enumerate(FLOORS) for room in rooms}

# The doors show rooms to the outside, so they may open any; nobody inside uses a door.
DOORS = ("markerjit", "markerjit.__main__", "markerjit.lowlevel")

# Outside the house: what they may use, besides their own modules.
OUTSIDE = {
    "apps": ("markerjit", "markerjit.lowlevel", "errors", "printable", "model", "ours", "tuples"),
    "watch": ("markerjit", "errors", "printable", "tuples", "model", "explain", "facts"),
    "export": ("markerjit", "errors", "tuples", "model", "trace"),
    "web": ("errors", "printable", "tuples", "lab", "facts", "watch"),
    "cli": (
        *("markerjit", "markerjit.lowlevel", "errors", "printable", "ours", "tuples", "model"),
        *("explain", "doctor", "lab", "facts", "apps", "watch", "web", "export", "uncollected"),
    ),
}


def imports(
    module: str, source: str, *, is_package: bool = False, whole: bool = False
) -> Iterator[tuple[int, str]]:
    """(line, module imported) for every import of markerjit, relative ones made absolute.

    `whole`: also each imported name, which may be a module of that package.
    """
    for node in _importing(source):
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
        elif isinstance(node, ast.Call):
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
    here = room_of(module)
    if here not in FLOOR:
        return [f"{module}: the room {here} is on no floor of the map"]
    sentences = []
    for line, name in imports(module, source, is_package=is_package):
        room = name if name in DOORS else room_of(name)
        if room == here:
            continue
        if here in OUTSIDE:
            wrong = room not in OUTSIDE[here] and f"{here} comes in by the door"
        elif room in DOORS:
            wrong = "no room uses the door"
        elif room not in FLOOR:
            wrong = f"the room {room} is on no floor of the map"
        elif FLOOR[room] == FLOOR[here]:
            wrong = f"{here} and {room} are on one floor"
        else:
            wrong = FLOOR[room] > FLOOR[here] and f"{room} is above {here}"
        if wrong:
            sentences.append(f"{module}:{line} imports {name}, but {wrong}")
    return sentences


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
        ahead = {name for room in ahead for name in arrows.get(room, ())} - reached
    return reached


def modules(repo: Path) -> Iterator[tuple[str, Path]]:
    """(name, file) of every module of the package."""
    for path in sorted((repo / "markerjit").rglob("*.py")):
        parts = path.relative_to(repo).with_suffix("").parts
        yield ".".join(parts[:-1] if parts[-1] == "__init__" else parts), path


def room_arrows(repo: Path) -> dict[str, set[str]]:
    """The rooms that each room uses. One that comes in by the door uses the door."""
    arrows: dict[str, set[str]] = {room: set() for floor in FLOORS for room in floor}
    for module, path in modules(repo):
        if module not in DOORS:
            is_package = path.name == "__init__.py"
            for _, name in imports(module, path.read_text(), is_package=is_package):
                used = DOORS[0] if name in DOORS else room_of(name)
                arrows[room_of(module)] |= {used} - {room_of(module)}
    return arrows


def room_of(module: str) -> str:
    """The room that a module stands in."""
    return module.split(".")[1]


@cache
def _importing(source: str) -> tuple[ast.AST, ...]:
    """The nodes of a source that may import. Several tests ask for those of every file."""
    return tuple(
        node
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Import | ast.ImportFrom)
        or (isinstance(node, ast.Call) and _is_import_module(node.func) and node.args)
    )


def _is_import_module(function: ast.expr) -> bool:
    name = function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")
    return name in {"import_module", "__import__"}
