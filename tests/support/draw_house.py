"""The map of the house as a picture: floors, rooms, and the rooms that each room uses.

`python -m tests.support.draw_house` writes docs/explanation/house.svg, and a test compares it with
the code. So that the picture of a hundred imports can be read, it leaves out two sorts of lines:
those that other lines imply (a room uses a second one, and that uses the third), and those to the
ground, on which every room stands.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tests.support.house import DOORS, FLOORS, room_arrows
from tests.support.programs import ROOT

PICTURE = ROOT / "docs" / "explanation" / "house.svg"

DOOR = DOORS[0]
GROUND = tuple(room for floor in FLOORS[:2] for room in floor)
OUTSIDE = ("apps", "watch", "cli")

_WIDTH, _STOREY, _HEIGHT, _GAP, _MARGIN = 760, 64, 32, 74, 16
_SLAB = 420
_STYLE = """\
text { font: 14px ui-monospace, monospace; text-anchor: middle; fill: #1b2733; }
rect { fill: #eef3f8; stroke: #5b7083; }
.outside rect { fill: #fdf3e1; stroke: #a3813f; }
.slab rect { fill: #dfe5ea; stroke: none; }
path { fill: none; stroke: #8da0b1; stroke-width: 1.2; }
@media (prefers-color-scheme: dark) {
  text { fill: #e5ebf1; } rect { fill: #24313d; stroke: #7d93a7; } path { stroke: #61758a; }
  .outside rect { fill: #3a3120; stroke: #b9975a; } .slab rect { fill: #323d47; }
}
"""


class Box(tuple[float, float, float]):
    """Left edge, top and width of a room."""

    @property
    def middle(self) -> float:
        return self[0] + self[2] / 2


def needed(arrows: Mapping[str, set[str]]) -> dict[str, set[str]]:
    """The arrows that no others imply: the transitive reduction of a map without circles."""
    reached: dict[str, set[str]] = {}

    def below(room: str) -> set[str]:
        if room not in reached:
            reached[room] = set(arrows[room]).union(*(below(used) for used in arrows[room]))
        return reached[room]

    return {
        room: {used for used in rooms if not any(used in below(other) for other in rooms - {used})}
        for room, rooms in arrows.items()
    }


def storeys(floors: Sequence[Sequence[str]]) -> list[tuple[str, ...]]:
    """The rows of the picture from the roof down: the door stands below what comes in by it, and
    the lowest two floors are one slab."""
    rows = [tuple(rooms) for rooms in reversed(floors[2:])]
    door = sum(bool(set(rooms) & {*OUTSIDE}) for rooms in rows)
    return [*rows[:door], (DOOR,), *rows[door:], GROUND]


def drawing(floors: Sequence[Sequence[str]], arrows: Mapping[str, set[str]]) -> str:
    """The map as SVG."""
    rows = storeys(floors)
    boxes = _boxes(rows[:-1])
    height = 2 * _MARGIN + (len(rows) - 1) * _STOREY + _HEIGHT
    inside = {
        room: {used for used in rooms if used not in GROUND}
        for room, rooms in {DOOR: set(), **arrows}.items()
        if room not in GROUND
    }
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}">',
        "<title>The rooms of markerjit by floor; a line leads down to a room that is used</title>",
        f"<style>\n{_STYLE}</style>",
    ]
    for room, rooms in sorted(needed(inside).items()):
        lines += [_line(boxes[room], boxes[used]) for used in sorted(rooms)]
    for room, box in boxes.items():
        kind = "slab" if room == DOOR else "outside" if room in OUTSIDE else "room"
        lines.append(_room(box, kind, f"import {room}" if room == DOOR else room))
    ground = Box(((_WIDTH - _SLAB) / 2, _MARGIN + (len(rows) - 1) * _STOREY, _SLAB))
    lines.append(_room(ground, "slab", "   ".join(GROUND)))
    return "\n".join((*lines, "</svg>", ""))


def _boxes(rows: Sequence[Sequence[str]]) -> dict[str, Box]:
    boxes = {}
    for number, rooms in enumerate(rows):
        widths = [_SLAB if room == DOOR else 24 + 9 * len(room) for room in rooms]
        left = (_WIDTH - sum(widths) - _GAP * (len(rooms) - 1)) / 2
        for room, width in zip(rooms, widths, strict=True):
            boxes[room] = Box((left, _MARGIN + number * _STOREY, width))
            left += width + _GAP
    return boxes


def _room(box: Box, kind: str, name: str) -> str:
    left, top, width = box
    return (
        f'<g class="{kind}"><rect x="{left:g}" y="{top:g}" width="{width:g}" height="{_HEIGHT}" '
        f'rx="5"/><text x="{box.middle:g}" y="{top + 21:g}">{name}</text></g>'
    )


def _line(upper: Box, lower: Box) -> str:
    x, y = upper.middle, upper[1] + _HEIGHT
    to_x, to_y = lower.middle, lower[1]
    bend = (to_y - y) / 2
    return f'<path d="M{x:g} {y:g}C{x:g} {y + bend:g} {to_x:g} {to_y - bend:g} {to_x:g} {to_y:g}"/>'


if __name__ == "__main__":
    PICTURE.write_text(drawing(FLOORS, room_arrows(ROOT)))
    print(PICTURE.relative_to(ROOT))
