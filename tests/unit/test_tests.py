"""No test imports from a test: what several of them need is in tests/support or a conftest.py.

Programs that a test has as a text count too. Texts that are put together at run time are not seen.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from textwrap import dedent

import pytest


def imported_tests(source: str) -> Iterator[str]:
    """The test modules that a source imports, or names out of."""
    if not re.search(r"import[\s\S]*test_|test_[\s\S]*import", source):
        return
    for node in ast.walk(ast.parse(source)):
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names = [f"{node.module or ''}.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Constant) and is_program(node.value):
            yield from imported_tests(dedent(node.value))
        yield from (name for name in names if ".test_" in f".{name}")


def is_program(value: object) -> bool:
    """Whether a constant is a text that Python can read, with an import, maybe of a test."""
    if not isinstance(value, str) or "import " not in value or "test_" not in value:
        return False
    try:
        ast.parse(dedent(value))
    except SyntaxError:
        return False
    return True


def test_no_test_imports_from_a_test(repo: Path) -> None:
    names = {
        f"{path.relative_to(repo)} imports {name}"
        for path in (repo / "tests").rglob("*.py")
        for name in imported_tests(path.read_text())
        if path != Path(__file__).resolve()  # its examples are such imports
    }

    assert names == set()


@pytest.mark.parametrize(
    "source",
    [
        "import tests.unit.test_plan",
        "from tests.unit import test_plan",
        "from tests.unit.test_plan import make_site",
        "from .test_plan import make_site",
        "def f():\n    from test_plan import make_site",
        'PROGRAM = """\n    from tests.unit.test_plan import make_site\n"""',
    ],
)
def test_an_import_from_a_test_is_seen(source: str) -> None:
    assert len([*imported_tests(source)]) == 1


@pytest.mark.parametrize(
    "source", ["from tests.support.made_sites import make_site", 'WORDS = "import from test_plan"']
)
def test_another_import_is_not_one_from_a_test(source: str) -> None:
    assert [*imported_tests(source)] == []
