"""The parts of every page of results: its frame, the machine, forms not measured, the method."""

from __future__ import annotations

from collections.abc import Iterable

from markerjit.apps.bench.report.style import CSS
from markerjit.apps.bench.report.svg import clean
from markerjit.apps.bench.sampling.shapes import Report


def document(title: str, sections: Iterable[str]) -> str:
    """A whole page, which needs no other file."""
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{clean(title)}</title>\n<style>{CSS}</style>\n</head>\n<body>\n"
        + "\n".join(sections)
        + "\n</body>\n</html>\n"
    )


def machine(report: Report) -> str:
    """The machine and the compilers of the run."""
    rows = []
    for name, value in report.machine:
        text = "<br>".join(map(clean, value.splitlines()))
        kind = ' class="wide"' if "<br>" in text else ""
        rows.append(f"<div{kind}><dt>{clean(name)}</dt><dd>{text}</dd></div>")
    return "\n".join(["<section><h2>The machine</h2><dl>", *rows, "</dl></section>"])


def sentences(title: str, items: Iterable[str]) -> str:
    """A list of sentences, each of which may begin with its subject and a colon; "" without any."""
    rows = []
    for item in items:
        subject, colon, rest = item.partition(": ")
        text = f"<b>{clean(subject)}:</b> {clean(rest)}" if colon else clean(item)
        rows.append(f"<li>{text}</li>")
    return f"<section><h2>{title}</h2><ul>{''.join(rows)}</ul></section>" if rows else ""


def missing(report: Report) -> str:
    """The forms that were not measured, with the reasons."""
    return sentences("Not measured here", (f"{name}: {why}" for name, why in report.missing))


def method(paragraphs: Iterable[str]) -> str:
    """The method."""
    text = "\n".join(f"<p>{clean(paragraph)}</p>" for paragraph in paragraphs)
    return f'<section class="method"><h2>How it was measured</h2>\n{text}\n</section>'
