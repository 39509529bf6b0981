"""Jump tables, and the places of an object's code that they lead to.

Compilers for x86-64 make a `switch` of a table in read-only data, whose entries are 32-bit
distances from the table's start. Code loads that start by `lea reg, [rip + table]`, so each address
that is loaded so could be a table. Its entries are read while they lead to code.

This takes too many entries rather than too few: those behind a table's end belong to the next one,
and give targets that nothing uses. So of a table that a function loads, those count that lead into
it (its end included: clang has entries that are never taken), and those into code that is not known
to be a function of its own, such as its cold parts. glibc's printf has distances from a label of
its code; a table and a label that one function loads are tried together.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from markerjit.elf.addresses import are_among, distinct
from markerjit.elf.functions import Functions
from markerjit.elf.image import PF_W, PF_X, PT_LOAD, FileImage
from markerjit.tuples import NamedTuple
from markerjit.x86.windows import Addresses, words_at

MAX_ENTRIES = 1 << 14
_FEW = 16
"""Tables of which one is read to its end after the other; of more, all have their next entry read.
Few tables are long."""


class _Tables(NamedTuple):
    """The candidates for tables, an array for each property.

    table       the address of the first entry
    origin      what the entries are distances from
    start, end  the function that loads the table; 0 where it is not known
    confined    that function is known to be called, so its table leads into it or its parts
    """

    table: Addresses
    origin: Addresses
    start: Addresses
    end: Addresses
    confined: NDArray[np.bool_]

    def where(self, chosen: NDArray[np.generic]) -> _Tables:
        """Some of them, by a mask or by their places."""
        return _Tables._make(column[chosen] for column in self)


def table_targets(
    image: FileImage,
    functions: Functions,
    entries: Addresses,
    loads: tuple[Addresses, Addresses],
) -> Addresses:
    """The places that jump tables lead to, sorted.

    `entries` are the addresses where functions are known to be entered; `loads` are the addresses
    that code may load, and the ends of the instructions that load them.
    """
    is_entry = are_among(functions.starts, distinct(entries)) & ~functions.parts
    tables = _tables(functions, is_entry, *loads)
    low = min(span.start for span in image.loaded(PF_X))
    high = max(span.stop for span in image.loaded(PF_X))
    arrivals = [np.zeros(0, np.int64)]
    for segment in image.segments:
        if segment.type == PT_LOAD and not segment.flags & PF_W:
            content = image.read(segment.address, segment.file_size)
            data = np.frombuffer(content, np.uint8)
            live = tables
            for number in range(MAX_ENTRIES):
                at = live.table + 4 * number - segment.address
                live = live.where((at >= 0) & (at + 4 <= len(data)))
                at = live.table + 4 * number - segment.address
                if len(at) <= _FEW:
                    for place, start in enumerate(at.tolist()):
                        table = live.where(np.array([place]))
                        entries = _words(content, start, MAX_ENTRIES - number)
                        targets = _until(table.origin + entries, low, high)
                        arrivals.append(targets[_counts(functions, is_entry, table, targets)])
                    break
                targets = live.origin + words_at(data, at)
                inside = (targets >= low) & (targets < high)
                live, targets = live.where(inside), targets[inside]
                arrivals.append(targets[_counts(functions, is_entry, live, targets)])
    return distinct(np.concatenate(arrivals))


def _words(content: bytes, at: int, most: int) -> Addresses:
    """The signed 32-bit numbers from an offset on, so many at most."""
    count = min((len(content) - at) // 4, most)
    return np.frombuffer(content, "<i4", count, at).astype(np.int64)


def _until(targets: Addresses, low: int, high: int) -> Addresses:
    """Those before the first one that is not in low..high."""
    (outside,) = ((targets < low) | (targets >= high)).nonzero()
    return targets[: outside[0]] if len(outside) else targets


def _tables(
    functions: Functions, is_entry: NDArray[np.bool_], addresses: Addresses, places: Addresses
) -> _Tables:
    """The addresses that are loaded, each alone and with the labels that the same function
    loads."""
    index = np.searchsorted(functions.starts, places, "right") - 1
    known = (index >= 0) & (places <= functions.ends[index])
    start = np.where(known, functions.starts[index], 0)
    end = np.where(known, functions.ends[index], 0)
    confined = known & is_entry[index]
    plain = _Tables(addresses, addresses, start, end, confined)
    rows: list[tuple[int, int, int, int, bool]] = []
    is_label = known & (addresses > start) & (addresses < end)
    for label, function in np.unique(np.stack([addresses, start], 1)[is_label], axis=0).tolist():
        beside = np.unique(addresses[(start == function) & ~is_label])
        stop = int(functions.ends[np.searchsorted(functions.starts, function)])
        rows += [(table, label, function, stop, True) for table in beside.tolist()]
    columns = np.array(rows, np.int64).reshape(-1, 5).T
    labelled = (*columns[:4], columns[4].astype(bool))
    return _Tables._make(np.concatenate(pair) for pair in zip(plain, labelled, strict=True))


def _counts(
    functions: Functions, is_entry: NDArray[np.bool_], tables: _Tables, targets: Addresses
) -> NDArray[np.bool_]:
    """Whether each of these targets counts, one target for each table."""
    index = np.searchsorted(functions.starts, targets, "right") - 1
    elsewhere = (index < 0) | (targets >= functions.ends[index]) | ~is_entry[index]
    own = (targets >= tables.start) & (targets <= tables.end)
    return own | elsewhere | ~tables.confined
