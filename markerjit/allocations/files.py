"""Files of allocations, by their suffix.

    .parquet, .pq                       a table with a row for each call site (pip install
                                        'markerjit[parquet]')
    .folded, .speedscope.json, .html, .svg
                                        a flame graph, as of calls (calls/files.py). The width is
                                        live bytes, or all bytes where nothing is live. Its boxes
                                        are the frames of stacks, or without stacks the call sites
                                        above their objects

A file is written at once, at the end.
"""

from __future__ import annotations

import os
from typing import Any

from markerjit.allocations.summary import Allocations, AllocationSite, CallSite
from markerjit.arguments import check_flag, check_is
from markerjit.calls.files import check_calls_file, check_new_file, unwritten, write_flames
from markerjit.calls.flames import Flame, Flames
from markerjit.elf.demangle import demangled
from markerjit.printable import counted

_TABLES = (".parquet", ".pq")


def check_allocations_file(path: str, *, force: bool = False) -> None:
    """Raise Refused where a file of allocations cannot be written by this name: for an unknown
    suffix, for a missing package, or, without `force`, for a file that exists."""
    check_flag("force", force)
    if _is_table(path):
        import markerjit.trace.arrow_table  # noqa: F401  # says which package is missing

        check_new_file(path, force=force)
    else:
        check_calls_file(path, force=force, slices=False)


def write_allocations(allocations: Allocations, path: str, *, force: bool = False) -> None:
    """Write allocations to a file, at once. Raises Refused as `check_allocations_file`, and where
    the file cannot be written, as on a full disk."""
    check_is("allocations", allocations, Allocations)
    check_allocations_file(path, force=force)
    path = os.fspath(path)
    if not _is_table(path):
        write_flames(flames_of(allocations), path, force=force)
        return
    import pyarrow.parquet as parquet

    try:
        parquet.write_table(table_of(allocations), path)
    except OSError as error:
        raise unwritten(path, error) from error


def _is_table(path: object) -> bool:
    return isinstance(path, str | os.PathLike) and os.fspath(path).endswith(_TABLES)


def table_of(allocations: Allocations) -> Any:
    """A pyarrow.Table with a row for each call site."""
    from markerjit.trace.arrow_table import pa

    rows = [
        {**_site_columns(each.site), **{name: value for name, value in each._asdict().items()
                                   if name != "site"}}
        for each in allocations.sites
    ]  # fmt: skip
    kinds = {"address": pa.uint64(), "function": pa.string(), "object": pa.string()}
    kinds["mean_ns"] = pa.float64()
    kinds["stack"] = pa.list_(pa.string())
    names = (*CallSite._fields, *AllocationSite._fields[1:])
    schema = pa.schema([(name, kinds.get(name, pa.int64())) for name in names])
    return pa.Table.from_pylist(rows, schema=schema)


def _site_columns(site: CallSite) -> dict[str, Any]:
    """The columns of a site. A stack is a list of its functions, the innermost first. If the walk
    ended early, the last entry is the reason."""
    return {**site._asdict(), "stack": [*reversed(site.stack.labels)] if site.stack else None}


def flames_of(allocations: Allocations) -> Flames:
    """The flames of stacks; without stacks, those of call sites above their objects."""
    of_live = allocations.live_given > 0
    title = allocations.command or f"process {allocations.pid}"
    what = "bytes that were not freed" if of_live else "bytes of all allocations"
    boxes = [_Box("", -1)]
    places: dict[tuple[int, str], int] = {}
    for each in allocations.sites:
        weight = each.live_given if of_live else each.given
        if weight <= 0:
            continue
        at = 0
        boxes[at].add(each, weight)
        for name in _chain(each.site):
            parent, at = at, places.setdefault((at, name), len(boxes))
            if at == len(boxes):
                boxes.append(_Box(name, parent))
            boxes[at].add(each, weight)
        boxes[at].own += weight
    return Flames(
        title, "bytes",
        f"{counted(allocations.allocations, 'allocation')} in {allocations.seconds:.3f} s. The "
        f"width of a box is the number of {what}.",
        tuple(box.flame() for box in boxes),
    )  # fmt: skip


class _Box:
    """A box of the graph, a function with its callers, and the sums of all allocations there."""

    def __init__(self, name: str, parent: int) -> None:
        self.name, self.parent = name, parent
        self.total = self.own = self.allocations = self.live = 0

    def add(self, each: AllocationSite, weight: int) -> None:
        """Add the numbers of a site that is this box or is called from it."""
        self.total += weight
        self.allocations += each.allocations
        self.live += each.live

    def flame(self) -> Flame:
        """The box as a value."""
        words = f"{counted(self.allocations, 'allocation')}, {counted(self.live, 'block')} live"
        return Flame(self.name, self.parent, self.total, self.own, words)


def _chain(site: CallSite) -> tuple[str, ...]:
    """The names of a site's boxes, the outermost first, the site itself last."""
    if site.stack:
        return tuple(demangled(label) for label in site.stack.labels)
    above = os.path.basename(site.object) or "(no object)"
    return above, f"{demangled(site.function)}+{site.offset:#x}"
