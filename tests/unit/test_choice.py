"""What `make test` leaves out: always a test beside one that shows the same."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from itertools import product
from pathlib import Path

import pytest

from tests.support.choice import LONG, PRODUCT, representatives


def marks(tree: ast.Module) -> Iterator[tuple[str, str, list[ast.expr]]]:
    """Each mark of the choice on a function: the function's name, the mark's, its arguments."""
    for function in ast.walk(tree):
        if isinstance(function, ast.FunctionDef):
            for node in function.decorator_list:
                call = node if isinstance(node, ast.Call) else None
                name = ast.unparse(call.func if call else node).removeprefix("pytest.mark.")
                if name in {LONG, PRODUCT}:
                    yield function.name, name, call.args if call else []


def complaints(source: str) -> list[str]:
    """What is wrong with the marks of a file."""
    if not re.search(r"mark\.(long|product)", source):
        return []
    tree = ast.parse(source)
    tests = {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}
    all_marks = list(marks(tree))
    long = {test for test, mark, _ in all_marks if mark == LONG}
    wrong = []
    for test, mark, arguments in all_marks:
        if mark == PRODUCT:
            continue
        named = [node.value for node in arguments if isinstance(node, ast.Constant)]
        if len(named) != 1:
            wrong.append(f"{test} does not name the one test that shows the same")
        elif named[0] not in tests or named[0] in long:
            wrong.append(f"{test} names {named[0]}, which make test does not run")
    for node in tree.body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "pytestmark":
            wrong += ["a whole file is long"] * ("mark.long" in ast.unparse(node.value))
    return wrong


def test_each_long_test_names_one_that_stays(repo: Path) -> None:
    files = sorted((repo / "tests").rglob("test_*.py"))

    wrong = {path.name: each for path in files if (each := complaints(path.read_text()))}

    assert wrong == {}


@pytest.mark.parametrize(
    "source",
    [
        "@pytest.mark.long\ndef test_a(): ...",
        "@pytest.mark.long('test_b')\ndef test_a(): ...",
        "@pytest.mark.long('test_a')\ndef test_a(): ...",
        "pytestmark = [pytest.mark.long('test_b')]\ndef test_b(): ...",
    ],
)
def test_a_test_that_would_be_the_only_one_is_seen(source: str) -> None:
    assert len(complaints(source)) == 1


def test_a_test_beside_a_short_one_may_be_long() -> None:
    source = "@pytest.mark.long('test_b')\ndef test_a(): ...\ndef test_b(): ..."

    assert complaints(source) == []


# ---- the rows of a product -----------------------------------------------------------------------


def test_each_value_of_each_parameter_is_in_a_row() -> None:
    rows = list(product("abc", "xy", range(4)))

    taken = [rows[index] for index in representatives(rows)]

    assert len(taken) == 4
    assert [set(column) for column in zip(*taken, strict=True)] == [
        set("abc"),
        set("xy"),
        {*range(4)},
    ]


def test_a_table_stays_whole() -> None:
    assert representatives([["a"], ["b"], ["c"]]) == {0, 1, 2}


def test_no_row_is_none_of_no_tests() -> None:
    assert representatives([]) == set()


FILE = """
import pytest

@pytest.mark.long("test_short")
def test_long(): ...

def test_short(): ...

@pytest.mark.product
@pytest.mark.parametrize("first", ["a", "b", "c"])
@pytest.mark.parametrize(("second", "third"), [(1, 2), (1, 3), (4, 2)])
def test_product(first, second, third): ...

@pytest.mark.parametrize("number", [1, pytest.param(2, marks=pytest.mark.long)])
@pytest.mark.parametrize("other", [1, 2])
def test_table(number, other): ...
"""


def test_the_choice_is_made_where_it_is_asked_for_and_said(repo: Path, tmp_path: Path) -> None:
    (tmp_path / "test_one.py").write_text(FILE)
    plugins = ["-p", "tests.conftest", "-p", "no:cacheprovider"]
    where = ["-c", repo / "setup.cfg", "--rootdir", tmp_path]

    def printed(*options: str) -> str:
        command = [sys.executable, "-m", "pytest", *plugins, *where, *options]
        done = subprocess.run(
            [*command, tmp_path / "test_one.py"],
            cwd=repo,
            capture_output=True,
            text=True,
            check=True,
        )
        return done.stdout

    choice, everything = printed("--choice"), printed()

    assert "6 of 15 tests chosen; make test-all runs all" in choice and "6 passed" in choice
    assert "15 passed" in everything and "chosen" not in everything
