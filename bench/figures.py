"""Puts the figures of a run of the bench into the pages that quote them, as tables.

    python bench/figures.py            write them anew
    python bench/figures.py --check    only say which page differs; 1 if one does

In a page they stand between `<!-- figures: NAME -->` and `<!-- end of figures -->`: nobody writes
them by hand. The runs are docs/results/bench.json.gz and docs/results/real.json.gz.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Iterable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from real import markdown

from markerjit.apps.bench import results, shapes, table
from markerjit.apps.bench.shapes import CONTROLS, OURS, PEERS, Measured, Part
from markerjit.apps.bench.statistics import Estimate

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "docs" / "results"
PAGES = (ROOT / "README.md", *sorted(RESULTS.glob("*.md")))
_BLOCK = re.compile(r"(<!-- figures: ([a-z -]+) -->\n).*?(<!-- end of figures -->)", re.DOTALL)
_SIZES = (("instructions", "instructions"), ("bytes on the way", "hot_bytes"),
          ("bytes in all", "bytes"), ("bytes of data", "data_bytes"))  # fmt: skip

_CHOSEN = ("nop", "jump", "pointer", "USDT", "LTTng-UST", "XRay event", "call")


def main(arguments: Sequence[str]) -> int:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true")
    options = parser.parse_args(arguments)
    differ = [page for page in PAGES if renewed(page.read_text()) != page.read_text()]
    for page in differ:
        if options.check:
            print(f"{page.relative_to(ROOT)}: other figures than those of its file")
        else:
            page.write_text(renewed(page.read_text()))
    return 1 if differ and options.check else 0


def renewed(text: str) -> str:
    """A page with the figures of the files. Raises KeyError for a name that there is not."""
    return _BLOCK.sub(lambda found: f"{found[1]}\n{FIGURES[found[2]]()}\n\n{found[3]}", text)


@cache
def _run(name: str) -> dict[str, Any]:
    return results.read(RESULTS / name)


@cache
def _parts(kind: str, name: str = "bench.json.gz") -> list[Part]:
    return [one for one in shapes.report(_run(name)).parts if one.kind == kind]


# ---- tables --------------------------------------------------------------------------------------


def _machine() -> str:
    (control,) = (one for one in _run("bench.json.gz")["parts"] if one["kind"] == "control")
    told = [*table.about(_run("bench.json.gz")["machine"])]
    known = (table.known_cost(one) for one in control["known"])
    return "\n".join(f"- {line}" for line in [*told, *known])


def _hot(computed: bool) -> str:
    parts = [one for one in _parts("hot") if one.computed == computed]
    heads = [f"{one.args:.0f} argument{'' if one.args == 1 else 's'}" for one in parts]
    return _costs(parts, heads)


def _large() -> str:
    parts = _parts("large")
    return _costs(parts, [f"{one.sites:,.0f} sites" for one in parts])


def _headline() -> str:
    """The forms that people choose from, in the small loop and with the fewest and most sites."""
    (hot,) = (one for one in _parts("hot") if one.args == 2 and not one.computed)
    large = _parts("large")
    parts = [hot, large[0], large[-1]]
    heads = ["in a small loop", *(f"{one.sites:,.0f} hot sites" for one in parts[1:])]
    rows = [[name, *(_cost(one, one.form(name)) for one in parts)] for name in _CHOSEN]
    return _table(["dormant, ns", *heads], rows)


def _costs(parts: Sequence[Part], heads: Sequence[str]) -> str:
    """Forms by parts: ours, peers, controls."""
    names = dict.fromkeys(
        form.name
        for group in (OURS, PEERS, CONTROLS)
        for part in parts
        for form in part.forms
        if form.group == group and not form.is_baseline
    )
    own = [_own_time(part) for part in parts]
    rows = [[name, *(_cost(part, part.form(name)) for part in parts)] for name in names]
    return _table(["form", *heads], [["(no marker itself)", *own], *rows])


def _own_time(part: Part) -> str:
    return f"{part.forms[0].level.value:.2f}"


def _cost(part: Part, form: Measured | None) -> str:
    if form is None:
        return "–"
    return interval(form.cost) + ("" if part.differs(form) else " ≈")


def interval(cost: Estimate) -> str:
    """A difference, with its interval."""
    return f"{cost.value:+.2f} ({cost.low:+.2f} … {cost.high:+.2f})"


def _code() -> str:
    (part,) = (one for one in _parts("hot") if one.args == 2 and not one.computed)
    rows = [
        [form.name, *(_more(form, part.baseline(form), key) for _, key in _SIZES)]
        for form in part.forms
        if not form.is_baseline
    ]
    return _table(["form", *(head for head, _ in _SIZES)], rows)


def _more(form: Measured, base: Measured, key: str) -> str:
    own, others = getattr(form, key), getattr(base, key)
    return "–" if own is None or others is None else f"{own - others:+.0f}"


def _table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [heads, ["---", *["---:"] * (len(heads) - 1)], *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


FIGURES = {
    "machine": _machine,
    "hot needed": lambda: _hot(False),
    "hot computed": lambda: _hot(True),
    "large": _large,
    "code": _code,
    "headline dormant": _headline,
    "real": lambda: markdown.tables(_run("real.json.gz")),
}
"""By the name in a page."""

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
