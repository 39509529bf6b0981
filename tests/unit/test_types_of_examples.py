"""The examples in Python of the pages pass the type checker, as a user's own program would.

Each becomes a function of a module, in which `pid` and `session` are known. What this does not do:
run them.
"""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

pytest.importorskip("mypy")

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
BEGIN = """
import markerjit
pid: int
session: markerjit.Session
"""


def examples(page: Path) -> list[str]:
    """The blocks in Python that are about markerjit."""
    blocks = re.findall(r"^```python\n(.*?)^```$", page.read_text(), re.MULTILINE | re.DOTALL)
    return [block for block in blocks if re.search(r"\b(markerjit|session)\b", block)]


def as_function(example: str, name: str) -> str:
    """An example as a function, of the checked kind."""
    ast.parse(example)
    return f"def {name}() -> None:\n{textwrap.indent(example, '    ')}\n"


def checked(source: str, folder: Path) -> str:
    """What mypy says of this module alone. `make check` has left a cache of all others."""
    cache = ROOT / ".mypy_cache"
    if not os.access(cache, os.W_OK):
        cache = folder / "cache"
    module = folder / "examples.py"
    module.write_text(source)
    done = subprocess.run(
        [
            sys.executable, "-m", "mypy", "--no-error-summary", "--cache-dir", cache,
            "--config-file", ROOT / "setup.cfg", module,
        ],
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    return done.stdout + done.stderr


@pytest.mark.slow
def test_examples_of_all_pages_pass_the_type_checker(tmp_path: Path) -> None:
    functions = [
        as_function(example, f"{re.sub(r'[^a-z]', '_', page.stem.lower())}_{number}")
        for page in PAGES
        for number, example in enumerate(examples(page))
    ]
    wrong = as_function("session.trace('kv_*', duraton=2)", "wrong")

    complaints = checked(BEGIN + "\n".join([*functions, wrong]), tmp_path)

    assert len(functions) > 3
    last = len((BEGIN + "\n".join([*functions, ""])).splitlines()) + 1
    lines = [line for line in complaints.splitlines() if " error: " in line]
    assert [line for line in lines if f"examples.py:{last + 1}:" not in line] == []
    assert len(lines) == 1, "the checker checks nothing"
