"""The frame of a table in a terminal or a pipe, without vertical lines where room is scarce."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.table import Table

WIDE = 100
"""The least columns of a terminal for a table with a full frame."""


def grid_for(width: int, *, title: str, caption: str | None = None) -> Table:
    """An empty table for an output of this many columns."""
    from rich import box
    from rich.table import Table

    is_wide = width >= WIDE
    return Table(
        title=title,
        caption=caption,
        title_justify="left",
        caption_justify="left",
        box=box.HEAVY_HEAD if is_wide else box.SIMPLE_HEAD,
        show_edge=is_wide,
        pad_edge=is_wide,
    )
