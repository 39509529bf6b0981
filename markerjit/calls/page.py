"""A flame graph as a page, or as a picture (SVG): without scripts, and it fetches nothing.

A box is a function below its callers, as wide as its weight. The pointer on a box shows the whole
name and the numbers. A box that is too narrow to be seen is left out, and leaves its place empty.
"""

from __future__ import annotations

from collections.abc import Iterator
from html import escape

from markerjit.calls.flames import Flames
from markerjit.printable import printable
from markerjit.tuples import NamedTuple

_WIDTH, _HEIGHT = 1200, 18
_LETTER = 7
"""The width of a letter in pixels, roughly."""
_NARROWEST = 0.5
_COLOURS = ("#f4a582", "#fddbc7", "#f7c59f", "#efb0a1", "#e9c46a", "#f2b880")
_STYLE = """svg { font: 12px monospace }
rect { stroke: #fff } g:hover rect { fill: #92c5de } text { pointer-events: none }"""


class _Box(NamedTuple):
    """A box, in pixels from the left and in rows from the top."""

    node: int
    left: float
    width: float
    row: int


def page(flames: Flames) -> str:
    """The page, as HTML."""
    title = escape(printable(flames.title))
    return f"""<!DOCTYPE html>
<html lang="en"><meta charset="utf-8"><title>{title}</title>
<style>body {{ font: 14px sans-serif; margin: 1em }} svg {{ width: 100% }}
{_STYLE}</style>
<h1>{title}</h1>
<p>{escape(flames.sentence)}</p>
<svg {_drawn(flames)}</svg></html>
"""


def picture(flames: Flames) -> str:
    """The picture alone, as SVG. Its title is the caption."""
    title = escape(f"{printable(flames.title)}: {flames.sentence}")
    head = f'<svg xmlns="http://www.w3.org/2000/svg" width="{_WIDTH}"'
    return f"{head} {_drawn(flames, title)}</svg>\n"


def _drawn(flames: Flames, title: str = "") -> str:
    """The attributes and the content of an element `svg`."""
    boxes = list(_boxes(flames))
    rows = max((box.row for box in boxes), default=0) + 1
    head = f"<title>{title}</title>\n<style>{_STYLE}</style>\n" if title else ""
    drawn = "\n".join(_drawn_box(flames, box) for box in boxes)
    return f'viewBox="0 0 {_WIDTH} {rows * _HEIGHT}">\n{head}{drawn}\n'


def _boxes(flames: Flames) -> Iterator[_Box]:
    """The boxes of all nodes but the first, callers before their callees."""
    below: dict[int, list[int]] = {}
    for place, node in enumerate(flames.nodes[1:], 1):
        below.setdefault(node.parent, []).append(place)
    weights = [max(node.total, 0) for node in flames.nodes]
    for place in range(len(weights) - 1, -1, -1):  # what is above has no weight of its own
        weights[place] = max(weights[place], sum(weights[child] for child in below.get(place, ())))
    scale = _WIDTH / max(weights[0], 1)
    waiting = [_Box(0, 0.0, float(_WIDTH), -1)]
    while waiting:
        box = waiting.pop()
        if box.node:
            yield box
        left = box.left
        for child in sorted(below.get(box.node, ()), key=lambda place: flames.nodes[place].name):
            width = weights[child] * scale
            if width >= _NARROWEST:
                waiting.append(_Box(child, left, width, box.row + 1))
            left += width


def _drawn_box(flames: Flames, box: _Box) -> str:
    node = flames.nodes[box.node]
    name = printable(node.name)
    top = box.row * _HEIGHT
    letters = int((box.width - 4) / _LETTER)
    label = name if len(name) <= letters else name[: letters - 1] + "…" if letters > 3 else ""
    colour = _COLOURS[sum(name.encode()) % len(_COLOURS)]
    text = f'<text x="{box.left + 3:.1f}" y="{top + 13}">{escape(label)}</text>' if label else ""
    return (
        f"<g><title>{escape(name)}: {escape(node.words)}</title>"
        f'<rect x="{box.left:.1f}" y="{top}" width="{box.width:.1f}" height="{_HEIGHT - 1}" '
        f'fill="{colour}"/>{text}</g>'
    )
