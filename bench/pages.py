"""Puts the figures of a run of the bench into the pages that quote them, as tables.

    python bench/pages.py            write them anew
    python bench/pages.py --check    only say which page differs; 1 if one does

In a page they stand between `<!-- figures: NAME -->` and `<!-- end of figures -->`, and are not
written by hand. The runs are in bench/results: bench.json.gz, toggle.json.gz, recording.json.gz,
reading.json.gz, intel*.json.gz, real.json.gz and functions.json.gz.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from real import markdown

from markerjit.apps.bench import table
from markerjit.apps.bench.sampling import results, shapes
from markerjit.apps.bench.sampling.figures import counted, figure, signed, time_text
from markerjit.apps.bench.sampling.form import FUNCTION
from markerjit.apps.bench.sampling.shapes import CONTROLS, OURS, PEERS, Measured, Part, Report
from markerjit.apps.bench.sampling.statistics import Estimate, estimate
from markerjit.apps.bench.toggle.command import command_name
from markerjit.apps.bench.toggle.parts import KIND, MEASURES
from markerjit.apps.bench.toggle.rounds import CALL, COMMAND, HELD, SLOWEST, STOPPED
from markerjit.apps.bench.toggle.series import Series, all_series
from markerjit.apps.bench.toggle.ways import BUSY, DEFAULT, OFF, ON, form_name

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "bench" / "results"
PAGES = (ROOT / "README.md", *sorted((ROOT / "docs" / "results").glob("*.md")))
_BLOCK = re.compile(r"(<!-- figures: ([a-z -]+) -->\n).*?(<!-- end of figures -->)", re.DOTALL)
_SIZES = (("instructions", "instructions"), ("bytes on the way", "hot_bytes"),
          ("bytes in all", "bytes"), ("bytes of data", "data_bytes"))  # fmt: skip

_BENCH = "bench.json.gz"
_TOGGLE = "toggle.json.gz"
_READING = "reading.json.gz"
_RING = ", 1 ring"
_INTEL = "intel.json.gz"
_FUNCTIONS = "functions.json.gz"
_INTEL_FUNCTIONS = "intel-functions.json.gz"
_CLANG = "function by XRay, the compiler alone"
_ON = form_name(DEFAULT.name, ON)
_PROGRAM = "SQLite, speedtest1"


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
    """A page with the figures of the files. Raises KeyError for an unknown name."""
    return _BLOCK.sub(lambda match: f"{match[1]}\n{FIGURES[match[2]]()}\n\n{match[3]}", text)


@cache
def _run(name: str) -> dict[str, Any]:
    return results.read(RESULTS / name)


@cache
def _report(name: str) -> Report:
    return shapes.report(_run(name))


def _parts(kind: str, name: str = _BENCH) -> list[Part]:
    return [part for part in _report(name).parts if part.kind == kind]


# ---- tables --------------------------------------------------------------------------------------


def _machine(name: str = _BENCH) -> str:
    (control,) = (part for part in _run(name)["parts"] if part["kind"] == "control")
    lines = [*table.about(_run(name)["machine"])]
    known = (table.known_cost(addition) for addition in control["known"])
    return "\n".join(f"- {line}" for line in [*lines, *known])


def _hot(computed: bool, name: str = _BENCH) -> str:
    parts = [part for part in _parts("hot", name) if part.computed == computed]
    heads = [counted(part.args, "argument") for part in parts]
    return _costs(parts, heads)


def _large(name: str = _BENCH) -> str:
    parts = _parts("large", name)
    return _costs(parts, [f"{part.sites:,.0f} sites" for part in parts])


def _headline() -> str:
    """The costs of the default mode, one line each."""
    (hot,) = (part for part in _parts("hot") if part.args == 2 and not part.computed)
    large, alone = _parts("large")[-1], _parts("active")[0]
    (program,) = (
        part for part in _run("real.json.gz")["parts"]
        if part["title"] == _PROGRAM and "active" not in part["setting"]
    )  # fmt: skip
    rows = [
        ["off, in a small loop", _ns(hot, "jump"), "dormant"],
        [f"off, among {large.sites:,.0f} hot sites", _ns(large, "jump"), "dormant"],
        [f"off, in {_PROGRAM}: CPU time; instructions", _percent(program, "jump"), "real"],
        ["on, counted", _ns(alone, "jump, count"), "active"],
        ["on, recorded", _ns(alone, "jump, record"), "active"],
        ["on as a breakpoint, recorded", _ns(alone, "int3, record"), "active"],
        ["a uprobe of the kernel at a 5-byte no-op", _ns(alone, "uprobe, 5-byte no-op"), "active"],
        ["switching a site, in an open session", _switch(CALL, _ON, 1), "toggle"],
        ["of that, the program is stopped for", _switch(STOPPED, _ON, 1), "toggle"],
        ["the same for 100,000 sites", _switch(STOPPED, _ON, 100_000), "toggle"],
        ["`markerjit on`, the whole command", _switch(COMMAND, command_name(ON), 1), "toggle"],
    ]
    return _table(
        ["a marker, mode `jump`", "cost", ""],
        [[what, cost, f"[more](docs/results/{page}.md)"] for what, cost, page in rows],
    )


def _ns(part: Part, name: str) -> str:
    return f"{_cost(part, part.form(name))} ns"


def _percent(part: dict[str, Any], name: str) -> str:
    costs = markdown.both(part, name).split("; ")
    return "; ".join(cost.replace("≈", "% ≈") if "≈" in cost else f"{cost} %" for cost in costs)


def _switch(measure: str, name: str, sites: int) -> str:
    """With one thread, which runs."""
    (part,) = (
        part for part in _parts(KIND, _TOGGLE)
        if (part.measure, part.load, part.sites, part.threads) == (measure, BUSY, sites, 1)
    )  # fmt: skip
    return _time(part, part.form(name))


def _active(name: str = _BENCH) -> str:
    """With a column for the runs that shared their core, where there were some."""
    states = [state for part in _parts("active", name) for state in _states(part)]
    return _costs([part for _, part in states], [head for head, _ in states])


def _states(part: Part) -> Iterator[tuple[str, Part]]:
    """A part, and the same with the figures of runs that shared their core."""
    yield _threads(part), part
    shared = [form._replace(**form.shared._asdict()) for form in part.forms if form.shared]
    if len(shared) == len(part.forms):
        yield f"{_threads(part)}, core shared", part._replace(forms=tuple(shared))


def _reading() -> str:
    """Of one ring, by what the events have."""
    parts = [part for part in _parts("reading", _READING) if part.title.endswith(_RING)]
    events = [part.title.removeprefix("reading events of ") for part in parts]
    return _costs(parts, [each.removesuffix(_RING) for each in events])


def _machine_of(name: str) -> str:
    return "\n".join(f"- {line}" for line in table.about(_run(name)["machine"]))


def _functions(name: str = _FUNCTIONS) -> str:
    """What entries and exits cost beside the call alone, and as a multiple of the clock."""
    parts = _parts("active", name)
    heads = [
        head for part in parts for head in (f"{_threads(part)}: ns", "as a multiple of the clock")
    ]
    names = dict.fromkeys(
        form.name for group in (OURS, PEERS) for part in parts for form in part.forms
        if form.group == group and form.name.startswith(FUNCTION) and form.name != _CLANG
    )  # fmt: skip
    rows = [[name, *(cell for part in parts for cell in _of_function(part, name))]
            for name in names]  # fmt: skip
    return _table(["form", *heads], rows)


def _controls_of_functions(name: str = _FUNCTIONS) -> str:
    """The forms that are no call, and the calls that nothing listens to."""
    parts = [
        part._replace(forms=tuple(
            form for form in part.forms
            if form.name in (FUNCTION, _CLANG) or not form.name.startswith(FUNCTION)
        ))
        for part in _parts("active", name)
    ]  # fmt: skip
    return _costs(parts, [_threads(part) for part in parts])


def _of_function(part: Part, name: str) -> tuple[str, str]:
    """What a form takes more than the call that its compiler makes, and how often it could read the
    clock in that time, or twice where it has the entry and the exit."""
    form, call = part.form(name), part.form(_CLANG if "XRay" in name else FUNCTION)
    clock, base = part.form("two rdtsc" if "exit" in name else "rdtsc"), part.forms[0]
    if form is None or call is None or clock is None:
        return "–", "–"
    more = form.samples - call.samples
    times = estimate(more / (clock.samples - base.samples))
    value, low, high = map(figure, times)
    return interval(estimate(more)), f"{value} ({low} … {high})"


def _threads(part: Part) -> str:
    return counted(part.threads, "thread")


def _toggle() -> str:
    """Switching on; off is in the file."""
    shown = (series for series in all_series(_parts(KIND, _TOGGLE)) if series.measure != HELD)
    return "\n\n".join(map(_measure, shown))


def _toggle_of_sites() -> str:
    """The same on the Intel processor, by sites."""
    shown = (
        series for series in all_series(_parts(KIND, _INTEL))
        if series.axis == "sites" and series.measure not in (HELD, SLOWEST)
    )  # fmt: skip
    return "\n\n".join(map(_measure, shown))


def _measure(series: Series) -> str:
    """A measure against sites or threads: medians with their intervals."""
    what = series.axis.removesuffix("s")
    heads = [counted(at, what) for at, _ in series.points]
    rows = [
        [name, *(_time(part, part.form(name)) for _, part in series.points)]
        for name in series.names()
        if not name.endswith(f": {OFF}") and "again" not in name
    ]
    rows.insert(0, ["(values)", *(str(part.forms[0].samples.size) for _, part in series.points)])
    title = f"{MEASURES[series.measure]}: {series.title}"
    return f"### {title[0].upper()}{title[1:]}\n\n{_table(['', *heads], rows)}"


def _time(part: Part, form: Measured | None) -> str:
    if form is None:
        return "–"
    mark = ""
    if part.measure == SLOWEST and not form.is_baseline and not part.differs(form):
        mark = " ?" if form.verdict.startswith(shapes.NONE) else " ≈"
    value, low, high = map(time_text, form.level)
    return f"{value} ({low} … {high}){mark}"


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
    return _table(["form", *heads], [[f"({parts[0].forms[0].name} itself)", *own], *rows])


def _own_time(part: Part) -> str:
    return f"{part.forms[0].level.value:.2f}"


def _cost(part: Part, form: Measured | None) -> str:
    if form is None:
        return "–"
    return interval(form.cost) + ("" if part.differs(form) else " ≈")


def interval(cost: Estimate) -> str:
    """A difference, with its interval."""
    return f"{signed(cost.value)} ({signed(cost.low)} … {signed(cost.high)})"


def _code() -> str:
    (part,) = (part for part in _parts("hot") if part.args == 2 and not part.computed)
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
    "active": _active,
    "recording": lambda: _active("recording.json.gz"),
    "machine of recording": lambda: _machine_of("recording.json.gz"),
    "machine of intel": lambda: _machine(_INTEL),
    "hot needed on intel": lambda: _hot(False, _INTEL),
    "hot computed on intel": lambda: _hot(True, _INTEL),
    "large on intel": lambda: _large(_INTEL),
    "active on intel": lambda: _active(_INTEL),
    "recording on intel": lambda: _active("intel-recording.json.gz"),
    "machine of recording on intel": lambda: _machine_of("intel-recording.json.gz"),
    "toggle on intel": _toggle_of_sites,
    "reading": _reading,
    "machine of reading": lambda: _machine_of(_READING),
    "functions": _functions,
    "controls of functions": _controls_of_functions,
    "machine of functions": lambda: _machine_of(_FUNCTIONS),
    "functions on intel": lambda: _functions(_INTEL_FUNCTIONS),
    "controls of functions on intel": lambda: _controls_of_functions(_INTEL_FUNCTIONS),
    "machine of functions on intel": lambda: _machine_of(_INTEL_FUNCTIONS),
    "toggle": _toggle,
    "machine of toggle": lambda: _machine_of(_TOGGLE),
    "headline": _headline,
    "real": lambda: markdown.tables(_run("real.json.gz")),
}
"""By the name in a page."""

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
