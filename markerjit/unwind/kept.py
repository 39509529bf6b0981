"""Tables in the user's cache, by build id: those of large programs take a second to make."""

from __future__ import annotations

from contextlib import suppress

from markerjit.elf import Image
from markerjit.ours import cache_directory, read_own_file, write_own_file
from markerjit.unwind.table import BadTable, Table, table_of

_PLACE = "unwind"
_MOST = 1 << 28
"""Bytes of a file."""
_FEWEST = 1 << 12
"""The least number of rules of a table that is kept. Smaller tables are made as fast as they are
read."""


def kept_table(image: Image) -> Table:
    """The table of an object: an earlier one of this build, or a new one, which is kept. An object
    without a build id gets a new one. Raises as `table_of`."""
    build_id = image.build_id()
    table = _recall(build_id) if build_id else None
    if table is None:
        table = table_of(image)
        if build_id and len(table) >= _FEWEST:
            _remember(build_id, table)
    return table


def _recall(build_id: str) -> Table | None:
    with suppress(OSError, ValueError, BadTable), cache_directory(_PLACE) as directory:
        return Table(read_own_file(directory, build_id, _MOST))
    return None


def _remember(build_id: str, table: Table) -> None:
    with suppress(OSError, ValueError), cache_directory(_PLACE, make=True) as directory:
        write_own_file(directory, build_id, table.content)
