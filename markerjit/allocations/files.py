"""Files of allocations, by their suffix.

    .parquet, .pq                       a table with a row for each call site (pip install
                                        'markerjit[parquet]')
    .folded, .speedscope.json, .html    a flame graph, as of calls (calls/files.py): the width is
                                        live bytes, or all bytes where nothing is live

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
    """Raise Refused where a file of allocations cannot be written by this name: an unknown suffix,
    a package that is missing, or a file that is there, unless `force`."""
    check_flag("force", force)
    if _is_table(path):
        import markerjit.trace.arrow_table  # noqa: F401  # says which package is missing

        check_new_file(path, force=force)
    else:
        check_calls_file(path, force=force, slices=False)


def write_allocations(allocations: Allocations, path: str, *, force: bool = False) -> None:
    """Write allocations to a file. Raises Refused as `check_allocations_file`, and for a full
    disk."""
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
        {**each.site._asdict(), **{name: value for name, value in each._asdict().items()
                                   if name != "site"}}
        for each in allocations.sites
    ]  # fmt: skip
    kinds = {"address": pa.uint64(), "function": pa.string(), "object": pa.string()}
    kinds["mean_ns"] = pa.float64()
    names = (*CallSite._fields, *AllocationSite._fields[1:])
    schema = pa.schema([(name, kinds.get(name, pa.int64())) for name in names])
    return pa.Table.from_pylist(rows, schema=schema)


def flames_of(allocations: Allocations) -> Flames:
    """The flames of call sites below their objects."""
    of_live = allocations.live_given > 0
    title = allocations.command or f"process {allocations.pid}"
    what = "bytes that were not freed" if of_live else "bytes of all allocations"
    chains = [((_object(each), _label(each)), each, _weight(each, of_live=of_live))
              for each in allocations.sites]  # fmt: skip
    nodes = [Flame("", -1, sum(weight for _, _, weight in chains), 0, "")]
    places: dict[tuple[str, ...], int] = {(): 0}
    totals: dict[int, int] = {0: nodes[0].total}
    for (above, label), each, weight in chains:
        if weight <= 0:
            continue
        if (above,) not in places:
            places[above,] = len(nodes)
            nodes.append(Flame(above, 0, 0, 0, ""))
        parent = places[above,]
        totals[parent] = totals.get(parent, 0) + weight
        words = f"{counted(each.allocations, 'allocation')}, {counted(each.live, 'block')} live"
        nodes.append(Flame(label, parent, weight, weight, words))
    return Flames(
        title, "bytes",
        f"{counted(allocations.allocations, 'allocation')} in {allocations.seconds:.3f} s. The "
        f"width of a box is the number of {what}.",
        tuple(node._replace(total=totals.get(at, node.total)) for at, node in enumerate(nodes)),
    )  # fmt: skip


def _weight(each: AllocationSite, *, of_live: bool) -> int:
    return each.live_given if of_live else each.given


def _object(each: AllocationSite) -> str:
    return os.path.basename(each.site.object) or "(no object)"


def _label(each: AllocationSite) -> str:
    return f"{demangled(each.site.function)}+{each.site.offset:#x}"
