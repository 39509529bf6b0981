"""Notebooks: how they are kept, and a run of their cells without Jupyter.

    python -m tests.support.notebooks FILE    takes away what a run has left in it

A notebook is JSON with cells in Python. They are run in order by a Python of one's choice, in a
process of its own and in the folder of the notebook. Of each cell the last expression is shown as a
notebook would show it. Jupyter itself is 40 packages and 130 MB, which a test of plain cells does
not need.

What this does not do: magics, widgets, and displays other than text and `_repr_html_`.
"""

from __future__ import annotations

import ast
import io
import json
import linecache
import os
import signal
import sys
import sysconfig
from collections.abc import Iterator
from contextlib import redirect_stdout, suppress
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any, NamedTuple

from tests.support.programs import ROOT
from tests.support.timing import Limited

PATIENCE_S = 300


class Output(NamedTuple):
    """What a cell has printed, and how its last expression is shown; "" without one."""

    printed: str
    text: str
    html: str


def cells_of(notebook: Path, kind: str) -> list[tuple[str, str]]:
    """The cells of a kind, "code" or "markdown": their ids and their sources."""
    cells = json.loads(notebook.read_text())["cells"]
    return [(cell["id"], "".join(cell["source"])) for cell in cells if cell["cell_type"] == kind]


def stripped(text: str) -> str:
    """A notebook without what a run has left in it, and in one form."""
    notebook = json.loads(text)
    for cell in notebook["cells"]:
        cell["metadata"] = {}
        if cell["cell_type"] == "code":
            cell["execution_count"], cell["outputs"] = None, []
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    notebook["metadata"] = {"kernelspec": kernel, "language_info": {"name": "python"}}
    return json.dumps(notebook, indent=1, ensure_ascii=False) + "\n"


def run(notebook: Path, python: str) -> dict[str, Output]:
    """Run all cells and return the outputs by the cells' ids. A warning is an error, and so is
    every exception. What the cells started is ended."""
    path = f"{ROOT}:{sysconfig.get_path('purelib')}"
    # Files and no pipes: what a cell has started and left has them open, too.
    with TemporaryFile("w+") as printed, TemporaryFile("w+") as complaints:
        process = Limited(
            [python, "-W", "error", "-m", "tests.support.notebooks", "--run", str(notebook)],
            cwd=notebook.parent,
            env={**os.environ, "PYTHONPATH": path},
            stdout=printed,
            stderr=complaints,
            start_new_session=True,  # so that all it started can be ended with it
        )
        try:
            code = process.wait(PATIENCE_S)
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        printed.seek(0)
        complaints.seek(0)
        assert code == 0, complaints.read()
        return {name: Output(*output) for name, output in json.load(printed).items()}


def _outputs(notebook: Path) -> Iterator[tuple[str, Output]]:
    names: dict[str, Any] = {"__name__": "__main__"}
    for name, source in cells_of(notebook, "code"):
        linecache.cache[name] = (len(source), None, source.splitlines(keepends=True), name)
        with redirect_stdout(io.StringIO()) as printed:
            value = _value_of(source, name, names)
        html = value._repr_html_() if hasattr(value, "_repr_html_") else ""
        yield name, Output(printed.getvalue(), "" if value is None else repr(value), html)


def _value_of(source: str, name: str, names: dict[str, Any]) -> object:
    """Run a cell; the value of its last expression, or None."""
    tree = ast.parse(source, name)
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    exec(compile(tree, name, "exec"), names)
    return eval(compile(ast.Expression(last.value), name, "eval"), names) if last else None


if __name__ == "__main__":
    if sys.argv[1] == "--run":
        print(json.dumps(dict(_outputs(Path(sys.argv[2])))))
    else:
        file = Path(sys.argv[1])
        file.write_text(stripped(file.read_text()))
