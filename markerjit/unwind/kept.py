"""Tables that were made before: those of large programs take a second to make.

They are in the user's cache, by build id. Small ones, and those of objects without a build id, are
kept while this process lives, by the bytes that they were made of.
"""

from __future__ import annotations

from contextlib import suppress
from hashlib import blake2b

from markerjit.elf import Image
from markerjit.elf.functions import Functions
from markerjit.ours import cache_directory, read_own_file, write_own_file
from markerjit.unwind.table import BadTable, Table, table_of

_PLACE = "unwind"
_MOST = 1 << 28
"""Bytes of a file."""
_FEWEST = 1 << 12
"""The least number of rules of a table in the cache. Smaller tables are made as fast as they are
read."""
_MOST_RECENT = 1 << 24
"""Bytes of the tables that only this process keeps."""

_recent: dict[bytes, Table] = {}


def kept_table(image: Image) -> Table:
    """The table of an object: an earlier one, or a new one, which is kept. Raises
    NoFunctions where it has no unwind rows, and BadTable as `table_of`."""
    build_id = image.build_id()
    table = _recall(build_id) if build_id else None
    if table is None:
        table = _of_same_bytes(image)
        if build_id and len(table) >= _FEWEST:
            _remember(build_id, table)
    return table


def _of_same_bytes(image: Image) -> Table:
    functions = Functions(image)
    digest = blake2b(f"{functions.base} {len(functions)} ".encode(), digest_size=32)
    for content in (functions.starts.tobytes(), functions.ends.tobytes(), functions.data):
        digest.update(content)
    table = _recent.get(digest.digest())
    if table is None:
        table = table_of(functions, image.name)
        _recent[digest.digest()] = table
        while sum(len(other.content) for other in [*_recent.values()]) > _MOST_RECENT:
            _recent.pop(next(iter(_recent)), None)
    return table


def _recall(build_id: str) -> Table | None:
    with suppress(OSError, ValueError, BadTable), cache_directory(_PLACE) as directory:
        return Table(read_own_file(directory, build_id, _MOST))
    return None


def _remember(build_id: str, table: Table) -> None:
    with suppress(OSError, ValueError), cache_directory(_PLACE, make=True) as directory:
        write_own_file(directory, build_id, table.content)
