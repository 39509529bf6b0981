"""The notebook of the course runs from top to bottom, and shows what its chapters say."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.notebooks import Output, cells_of, run, stripped
from tests.support.programs import ROOT

NOTEBOOK = ROOT / "docs" / "course" / "course.ipynb"
DEBIANS = "/usr/bin/python3"


def pythons() -> list[str]:
    """Our own Python, and Debian's where that is another one of the same version."""
    if os.path.realpath(DEBIANS) == os.path.realpath(sys.executable):
        return [sys.executable]
    return [sys.executable, DEBIANS]


@pytest.fixture(scope="module", params=pythons())
def outputs(request: pytest.FixtureRequest, build: Path) -> dict[str, Output]:
    asked = "import sys; print(list(sys.version_info[:2]))"
    done = subprocess.run([request.param, "-c", asked], capture_output=True, text=True, check=False)
    if done.stdout.strip() != str(list(sys.version_info[:2])):
        pytest.skip(f"{request.param} is not of our version of Python")
    return run(NOTEBOOK, request.param)


@pytest.mark.live
@pytest.mark.slow
def test_the_markers_count_what_the_client_counts(outputs: dict[str, Output]) -> None:
    counts = {"requests": 100, "gets": 82, "sets": 18}

    assert outputs["before"].text == repr({**counts, "hits": 13, "misses": 69})
    assert outputs["count"].text == repr({**counts, "hits": 25, "misses": 57})
    assert cells_in(outputs["counted"], "hits") == ["25", "57"]
    assert sorted(cells_in(outputs["events"], "marker")) == ["kv_hit"] * 3 + ["kv_miss"] * 6
    assert cells_in(outputs["hits"], "hits") == ["50"]


@pytest.mark.live
@pytest.mark.slow
def test_the_code_is_as_the_chapters_say(outputs: dict[str, Output]) -> None:
    heads = {name: output.text[1:6] for name, output in outputs.items() if name.startswith("code-")}

    assert heads == {
        "code-off": "eb 05",
        "code-on": "eb 00",
        "code-jump": "eb 00",
        "code-repaired": "eb 00",
    }
    assert outputs["end"].text == outputs["code-off"].text
    assert re.findall(r"'(cc ..) .*?', (\d+)\)", outputs["stages"].text) == [
        ("cc 00", "25"),
        ("cc 05", "25"),
    ]


@pytest.mark.live
@pytest.mark.slow
def test_a_change_that_was_cut_off_is_taken_back(outputs: dict[str, Output]) -> None:
    killed = outputs["killed"].text

    assert "SIGKILL" in killed
    assert "'cc 00 " in killed
    assert "'requests': 100" in killed
    assert "left a change half done" in outputs["mend"].text
    assert "was taken back: 1 had to be repaired" in outputs["repair"].text


@pytest.mark.live
@pytest.mark.slow
def test_sites_plans_and_steps_are_tables(outputs: dict[str, Output]) -> None:
    assert cells_in(outputs["sites"], "off") == ["<code>eb 05</code>"] * 2
    assert "05 -&gt; 00" in outputs["plan"].html
    assert "membarrier SYNC_CORE" in outputs["membarrier"].html
    assert cells_in(outputs["steps"], "step")[:3] == ["1", "2", "3"]
    assert "none        refused: " in outputs["strategies"].printed
    assert outputs["mixtures"].printed.count("nobody wrote this") == 1
    assert "five bytes at once" in outputs["lab-c"].printed


def test_the_notebook_is_kept_without_outputs() -> None:
    text = NOTEBOOK.read_text()

    assert text == stripped(text), "python -m tests.support.notebooks docs/course/course.ipynb"


def test_cells_have_names_of_their_own() -> None:
    names = [cell["id"] for cell in json.loads(NOTEBOOK.read_text())["cells"]]

    assert len(names) == len(set(names))


def test_the_notebook_has_every_chapter_and_its_links_resolve() -> None:
    text = "\n".join(source for _, source in cells_of(NOTEBOOK, "markdown"))
    links = re.findall(r"\]\(([^)#]+)\)", text)

    assert [link for link in links if not (NOTEBOOK.parent / link).exists()] == []
    chapters = sorted(page.name for page in NOTEBOOK.parent.glob("[0-9]-*.md"))
    assert [link for link in links if link[0].isdigit()] == chapters


def test_a_cell_that_fails_is_named(tmp_path: Path) -> None:
    notebook = tmp_path / "n.ipynb"
    cells = [{"cell_type": "code", "id": name, "source": [name]} for name in ("1", "undefined")]
    notebook.write_text(json.dumps({"cells": cells}))

    with pytest.raises(AssertionError, match='File "undefined", line 1'):
        run(notebook, sys.executable)


def cells_in(output: Output, column: str) -> list[str]:
    """The cells of a column of a table, as HTML."""
    columns = re.findall(r"<th [^>]*>(.*?)</th>", output.html)
    rows = re.findall(r"<tr>(<td.*?)</tr>", output.html)
    place = columns.index(column)
    return [re.findall(r"<td [^>]*>(.*?)</td>", row)[place] for row in rows]
