"""A run of the bench as one page, for a browser and for paper. It needs no other file, no script.

The drawings are in plots.py, the sentences in words.py, and the looks in style.py.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

from markerjit.apps.bench.active import html as active_html
from markerjit.apps.bench.dormant import words
from markerjit.apps.bench.reading import html as reading_html
from markerjit.apps.bench.report import plots, sheet
from markerjit.apps.bench.report.plots import Style, interval, signed
from markerjit.apps.bench.report.svg import clean
from markerjit.apps.bench.sampling.figures import noise
from markerjit.apps.bench.sampling.shapes import (
    CONTROLS,
    Instruction,
    Measured,
    Part,
    Report,
    report,
)
from markerjit.apps.bench.toggle import html as toggle_html

_KEYS = (("instr.", "instructions"), ("hot B", "hot_bytes"), ("all B", "bytes"),
         ("data B", "data_bytes"))  # fmt: skip


_OTHERS = (active_html, toggle_html, reading_html)
"""The modules of kinds of cost that have one of their own, with their KIND, words and sections."""
_STRIPS = (
    "A mark is the cost of a form, hollow where it cannot be told from zero; the bar is its 95 % "
    "interval. Behind it each dot is the difference in one round: a group of dots for each "
    "layout, one below the other, and within a group time runs down. Where there is a grey band "
    "around zero, it is the noise floor. A number at an edge counts rounds that are outside."
)


def write(run: Mapping[str, Any], path: Path) -> None:
    """Write the page into a file. Raises Refused for a document that is not a run, and OSError."""
    path.write_text(page(run), encoding="utf-8")


def page(run: Mapping[str, Any]) -> str:
    """The page. Raises Refused for a document that is not a run."""
    whole = report(run)
    dormant, others = _by_kind(whole)
    styled = plots.styles(dormant)
    sections = [
        *_head(dormant, others), *_settings(dormant, styled), *_large(dormant, styled),
        *_by_args(dormant, styled), *_others(others), *_code(dormant), *_verdicts(whole),
        sheet.missing(whole), sheet.method(_method(dormant, others)),
    ]  # fmt: skip
    return sheet.document("What a marker costs", sections)


Others = list[tuple[ModuleType, list[Part]]]
"""Modules of other kinds, each with the parts that it has here."""


def _by_kind(whole: Report) -> tuple[Report, Others]:
    """The report of the dormant costs, and the parts of the other kinds."""
    others = [
        (kind, parts)
        for kind in _OTHERS
        if (parts := [part for part in whole.parts if part.kind == kind.KIND])
    ]
    kinds = {kind.KIND for kind in _OTHERS}
    dormant = tuple(part for part in whole.parts if part.kind not in kinds)
    return whole._replace(parts=dormant), others


def _head(dormant: Report, others: Others) -> Iterator[str]:
    yield "<header><h1>What a marker costs</h1>"
    if dormant.parts or not others:
        yield f'<p class="lede">{clean(words.measured(dormant))}</p>'
    for kind, parts in others:
        yield f'<p class="lede">{clean(kind.measured(parts))}</p>'
    yield "</header>"
    yield sheet.sentences("The answer", words.answer(dormant))
    for kind, parts in others:
        yield sheet.sentences(kind.TITLE, kind.answer(parts))
    peers = [sentence for kind, parts in others for sentence in kind.better(parts)]
    yield sheet.sentences("Where a peer does better", [*words.better(dormant), *peers])
    yield sheet.machine(dormant)


# ---- the plots -----------------------------------------------------------------------------------


def _settings(dormant: Report, styled: Mapping[str, Style]) -> Iterator[str]:
    for number, part in enumerate(_small(dormant)):
        caption = _STRIPS if number == 0 else "Drawn as above."
        caption += f" {noise(part.floor, part.again, part.unit)} {_levels(part)}. {part.of_core}"
        yield _figure(part.title, plots.strips(part, styled), caption, _noise([part]))


def _large(dormant: Report, styled: Mapping[str, Style]) -> Iterator[str]:
    parts = [part for part in dormant.parts if part.kind == "large"]
    if not parts:
        return
    caption = (
        "As many functions with a site each, all visited once, in an order without a pattern. A "
        "line is the cost of a form for each execution of one site, with its 95 % interval; a "
        "mark is hollow where it cannot be told from zero. The grey band is the noise floor. "
        "Baselines of other compilers are in the table of verdicts."
    )
    drawing = plots.lines([(part.sites, part) for part in parts], "sites (logarithmic)", styled)
    yield _figure("Cost against the number of sites", drawing, caption, _noise(parts))
    yield _grid(parts)


def _by_args(dormant: Report, styled: Mapping[str, Style]) -> Iterator[str]:
    parts = [part for part in dormant.parts if part.kind == "hot" and part.args]
    if len({part.args for part in parts}) < 2:
        return
    both = plots.value_range(parts)
    for computed in (False, True):
        chosen = [part for part in parts if part.computed == computed]
        if not chosen:
            continue
        kind = "computed for the site alone" if computed else "which the loop needs anyway"
        caption = (
            "Line, band, and hollow marks as above."
            + " Both plots have the same scale." * (len({part.computed for part in parts}) == 2)
        )  # fmt: skip
        drawing = plots.lines([(part.args, part) for part in chosen], "arguments", styled, both)
        yield _figure(f"Cost against arguments, {kind}", drawing, caption, _noise(chosen))


def _others(others: Others) -> Iterator[str]:
    def figure(title: str, drawing: str, caption: str, parts: Iterable[Part]) -> str:
        return _figure(title, drawing, caption, _noise(parts))

    for kind, parts in others:
        yield from kind.sections(parts, figure)


def _figure(title: str, drawing: str, caption: str, noise: str) -> str:
    return (
        f"<section><h2>{clean(title[:1].upper() + title[1:])}</h2>{noise}<figure>{drawing}"
        f"<figcaption>{clean(caption)}</figcaption></figure></section>"
    )


def _noise(parts: Iterable[Part]) -> str:
    """The warnings above a plot whose figures are too noisy for a verdict."""
    return "".join(
        f'<p class="noise">{clean(f"{part.title}: {part.noisy}")}</p>'
        for part in parts
        if part.noisy
    )


def _grid(parts: list[Part]) -> str:
    """A table of forms by numbers of sites, because lines that lie on each other cannot be read."""
    parts = sorted(parts, key=lambda part: part.sites)
    names = dict.fromkeys(form.name for part in parts for form in part.forms)
    head = "".join(f"<th>{part.sites:.0f} sites</th>" for part in parts)
    rows = []
    for name in names:
        forms = [(part, part.form(name)) for part in parts]
        if any(form and not form.is_baseline for _, form in forms):
            cells = "".join(_cost_cell(part, form) for part, form in forms)
            rows.append(f"<tr><th>{clean(name)}</th>{cells}</tr>")
    return (
        '<section><table class="figures"><caption>The same as figures: ns more than the baseline, '
        "and 95 % interval; in grey what cannot be told from zero.</caption>"
        f"<thead><tr><th>form</th>{head}</tr></thead>"
        f"<tbody>{''.join(rows)}</tbody></table></section>"
    )


def _cost_cell(part: Part, form: Measured | None) -> str:
    if form is None:
        return "<td>–</td>"
    kind = "" if part.differs(form) else ' class="dim"'
    low, high = signed(form.cost.low), signed(form.cost.high)
    return f"<td{kind}>{signed(form.cost.value)}<small>{low} … {high}</small></td>"


def _small(dormant: Report) -> list[Part]:
    return [part for part in dormant.parts if part.kind != "large"]


def _levels(part: Part) -> str:
    """The times of the baselines themselves."""
    names = dict.fromkeys(form.baseline for form in part.forms)
    levels = {form.name: form.level.value for form in part.forms}
    text = ", ".join(f"{name} takes {levels[name]:.2f} ns" for name in names)
    return text[:1].upper() + text[1:]


# ---- the code ------------------------------------------------------------------------------------


def _code(dormant: Report) -> Iterator[str]:
    parts = [part for part in _small(dormant) if any(form.assembly for form in part.forms)]
    if not parts:
        return
    yield "<section><h2>The code behind the figures</h2>"
    yield (
        "<p>What each form is in machine code, as differences to its baseline, whose own figures "
        "are in brackets: instructions in a round, bytes of the code that runs in a round (hot), "
        "bytes of all that is loaded, and bytes of data that a round reads from fixed addresses. A "
        "line opens to the disassembly of the function in one layout, where what runs in each "
        "round is marked. On paper, only what was open is printed.</p>"
    )
    for part in parts:
        yield f"<h3>{clean(part.title[:1].upper() + part.title[1:])}</h3>"
        heads = "".join(
            f"<span>{heading}</span>" for heading in ("ns more", *(key for key, _ in _KEYS))
        )
        heads = f"<span>form</span><span></span>{heads}"
        yield f'<div class="code"><div class="row columns">{heads}</div>'
        yield from (_form(part, form) for form in part.forms if form.assembly)
        yield "</div>"
    yield "</section>"


def _form(part: Part, form: Measured) -> str:
    against = part.baseline(form)
    cost = f"({form.level.value:.2f})" if form.is_baseline else signed(form.cost.value)
    sizes = "".join(f"<span>{_more(form, against, key)}</span>" for _, key in _KEYS)
    kind = "row dim" if form.group == CONTROLS else "row"
    verdict = "" if form.is_baseline else f"<p>{clean(form.verdict)}</p>"
    return (
        f'<details><summary class="{kind}"><span>{clean(form.name)}</span>'
        f"<span>{clean(form.what)}</span><span>{cost}</span>{sizes}</summary>{verdict}"
        f"<ol>{''.join(map(_instruction, form.assembly))}</ol></details>"
    )


def _instruction(instruction: Instruction) -> str:
    code = " ".join(instruction.code[at : at + 2] for at in range(0, len(instruction.code), 2))
    kind = ' class="hot"' if instruction.hot else ""
    return (
        f"<li{kind}><i>{instruction.address:x}</i><code>{clean(instruction.text)}</code>"
        f"<small>{clean(code)}</small></li>"
    )


def _more(form: Measured, against: Measured, key: str) -> str:
    """A size as a difference to the baseline. The size of the baseline itself is in brackets."""
    own, base = getattr(form, key), getattr(against, key)
    if own is None or base is None:
        return "–"
    return f"({own:.0f})" if form is against else f"{own - base:+.0f}".replace("-", "−")


# ---- tables and words ----------------------------------------------------------------------------


def _verdicts(whole: Report) -> Iterator[str]:
    """The verdicts of all comparisons, except those of switching, which have tables of their
    own."""
    parts = [part for part in whole.parts if part.kind != toggle_html.KIND]
    if not parts:
        return
    yield '<section><h2>All verdicts</h2><table class="verdicts">'
    yield "<thead><tr><th>form</th><th>ns more</th><th>verdict</th></tr></thead>"
    for part in parts:
        title = clean(part.title[:1].upper() + part.title[1:])
        yield f'<tbody><tr class="title"><th colspan="3">{title}</th></tr>'
        for form in part.forms:
            if form.is_baseline:
                continue
            kind = "" if part.differs(form) else ' class="dim"'
            yield (
                f"<tr{kind}><th>{clean(form.name)}</th><td>{interval(form.cost)}</td>"
                f"<td>{clean(form.verdict)}</td></tr>"
            )
        yield "</tbody>"
    yield "</table></section>"


def _method(dormant: Report, others: Others) -> Iterator[str]:
    """The paragraphs about the method."""
    if dormant.parts or not others:
        yield from words.METHOD
    for kind, _ in others:
        yield from kind.METHOD
