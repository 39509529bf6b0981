"""A name says what it is bound to: it is no pronoun and no bare participle.

Parameters, variables, functions and classes of markerjit, its benchmarks and its tests are looked
at. The facts of an object may have such names: an error has `found` beside `expected`.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

VAGUE = frozenset(
    (
        "found",
        "it",
        "one",
        "ones",
        "said",
        "there",
        "these",
        "this",
        "those",
        "told",
        "wanted",
    )
)


def bound_names(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Each name that a module binds, with its line; without the facts of objects."""
    facts: set[ast.AST] = set()
    for node in ast.walk(tree):  # a class before what is in it
        if node in facts:
            continue
        if isinstance(node, ast.ClassDef):
            facts.update(facts_of_objects(node))
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.lineno, node.id
        elif isinstance(node, ast.arg):
            yield node.lineno, node.arg
        elif isinstance(node, ast.FunctionDef | ast.ClassDef):
            yield node.lineno, node.name


def facts_of_objects(kind: ast.ClassDef) -> Iterator[ast.AST]:
    """The fields that a class declares, and the parameters that become attributes."""
    for node in kind.body:
        if isinstance(node, ast.AnnAssign):
            yield node.target
        elif isinstance(node, ast.FunctionDef) and node.name == "__init__":
            yield from (*node.args.args, *node.args.kwonlyargs)


def vague_names(source: str) -> list[str]:
    """The names that say nothing, each with its line."""
    return [
        f"{line}: {name}"
        for line, name in bound_names(ast.parse(source))
        if name.strip("_").lower() in VAGUE
    ]


@pytest.mark.parametrize(
    "source",
    [
        "one = 1",
        "def f(wanted): ...",
        "sum(there for there in ())",
        "def told(): ...",
        "found = look()",
        "class Told: ...",
    ],
)
def test_a_vague_name_is_seen(source: str) -> None:
    assert vague_names(source)


@pytest.mark.parametrize(
    "source",
    ["site = 1", "class E:\n def __init__(self, found): pass", "class V:\n found: int"],
)
def test_a_name_of_the_field_may_be_bound(source: str) -> None:
    assert not vague_names(source)


@pytest.mark.parametrize("tree", ["markerjit", "bench", "tests"])
def test_names_in_the_code_say_what_they_are(repo: Path, tree: str) -> None:
    vague = [
        f"{path.relative_to(repo)}:{name}"
        for path in sorted((repo / tree).rglob("*.py"))
        for name in vague_names(path.read_text())
    ]

    assert vague == []
