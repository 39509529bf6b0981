"""The subset of SVG that the plots need: scales, ticks, marks, and escaped text."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from html import escape

from markerjit.tuples import NamedTuple

Point = tuple[float, float]


class Scale(NamedTuple):
    """Places of values on an axis, by their logarithms where `log` is set."""

    low: float
    high: float
    start: float
    end: float
    log: bool = False

    def __call__(self, value: float) -> float:
        """The place of a value."""
        low, high = self._of(self.low), self._of(self.high)
        if high <= low:
            return (self.start + self.end) / 2
        return self.start + (self._of(value) - low) / (high - low) * (self.end - self.start)

    def _of(self, value: float) -> float:
        return math.log(value) if self.log else value


def ticks(low: float, high: float, about: int = 7) -> list[float]:
    """Round values within a range, about as many as asked for."""
    if high <= low:
        return [low]
    rough = (high - low) / about
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(digit * power for digit in (1, 2, 5, 10) if digit * power >= rough)
    first, last = math.ceil(low / step), math.floor(high / step)
    return [number * step for number in range(first, last + 1)]


def spread(ideal: Sequence[float], gap: float, low: float, high: float) -> list[float]:
    """Places for labels, as near as possible to the ideal ones, and no two nearer than the gap.
    Without enough room, the last ones leave the range."""
    order = sorted(range(len(ideal)), key=lambda index: ideal[index])
    blocks: list[tuple[float, list[int]]] = []  # the middle of each, and who is in it
    for index in order:
        block = (min(max(ideal[index], low), high), [index])
        while blocks and _top(block, gap) < _bottom(blocks[-1], gap) + gap:
            before = blocks.pop()
            members = before[1] + block[1]
            mean = sum(ideal[each] for each in members) / len(members)
            half = (len(members) - 1) * gap / 2
            block = (max(low + half, min(mean, high - half)), members)
        blocks.append(block)
    places = [0.0] * len(ideal)
    for block in blocks:
        for number, index in enumerate(block[1]):
            places[index] = _top(block, gap) + number * gap
    return places


def _top(block: tuple[float, list[int]], gap: float) -> float:
    return block[0] - (len(block[1]) - 1) * gap / 2


def _bottom(block: tuple[float, list[int]], gap: float) -> float:
    return block[0] + (len(block[1]) - 1) * gap / 2


def clean(text: str) -> str:
    """Text for HTML, escaped. Characters that UTF-8 cannot encode become question marks."""
    return escape(text.encode("utf-8", "replace").decode("utf-8"))


def text(x: float, y: float, content: str, kind: str = "", anchor: str = "start") -> str:
    """A piece of text. `kind` is a class of the page's style."""
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" class="{kind}" text-anchor="{anchor}">'
        f"{clean(content)}</text>"
    )


def line(x1: float, y1: float, x2: float, y2: float, kind: str, style: str = "") -> str:
    """A straight line."""
    more = f' style="{style}"' if style else ""
    return f'<path d="M{x1:.1f} {y1:.1f}L{x2:.1f} {y2:.1f}" class="{kind}"{more}/>'


def path(points: Iterable[Point], kind: str, style: str, *, closed: bool = False) -> str:
    """A line through points, or an area."""
    drawn = "L".join(f"{x:.1f} {y:.1f}" for x, y in points)
    return f'<path d="M{drawn}{"Z" if closed else ""}" class="{kind}" style="{style}"/>'


def dots(points: Iterable[Point], colour: str) -> str:
    """Many small dots in one element."""
    drawn = "".join(f"M{x:.1f} {y:.1f}h0" for x, y in points)
    return f'<path d="{drawn}" class="dots" stroke="{colour}"/>' if drawn else ""


def box(x: float, y: float, width: float, height: float, kind: str) -> str:
    """A rectangle."""
    return (
        f'<rect x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}" class="{kind}"/>'
    )


def mark(x: float, y: float, shape: str, colour: str, *, hollow: bool = False) -> str:
    """A point: a circle, square, or triangle, filled or not."""
    shapes = {
        "circle": "M-5 0a5 5 0 1 0 10 0a5 5 0 1 0 -10 0Z",
        "square": "M-4.5 -4.5H4.5V4.5H-4.5Z",
        "triangle": "M0 -5.5L5.3 4.2H-5.3Z",
    }
    paint = f"fill:#fff;stroke:{colour}" if hollow else f"fill:{colour};stroke:#fff"
    return (
        f'<path d="{shapes[shape]}" transform="translate({x:.1f} {y:.1f})" class="mark" '
        f'style="{paint}"/>'
    )


def drawing(width: float, height: float, title: str, content: Iterable[str]) -> str:
    """The whole picture. The title describes it to readers who cannot see it."""
    return (
        f'<svg viewBox="0 0 {width:.0f} {height:.0f}" role="img" aria-label="{clean(title)}">'
        f"{''.join(content)}</svg>"
    )
