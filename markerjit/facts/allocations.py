"""Allocations as a document, and in words: rows of the table, and what has to be said."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from markerjit.elf.demangle import demangled
from markerjit.facts import Json
from markerjit.facts.calls import aligned
from markerjit.facts.words import duration_words
from markerjit.frames import shown
from markerjit.printable import counted

if TYPE_CHECKING:
    from markerjit.allocations.summary import Allocations, AllocationSite, CallSite

HEADER = ("LIVE", "BLOCKS", "ALLOCS", "ASKED", "WASTED", "LIFE", "CROSS", "SITE")
LEAKS_HEADER = ("LIVE", "BLOCKS", "OLDEST", "SITE")
SORTS: dict[str, Callable[[AllocationSite], tuple[object, ...]]] = {
    "live": lambda each: (-each.live_given, -each.given, each.site.order),
    "blocks": lambda each: (-each.live, -each.allocations, each.site.order),
    "allocs": lambda each: (-each.allocations, each.site.order),
    "asked": lambda each: (-each.asked, each.site.order),
    "wasted": lambda each: (-each.wasted, each.site.order),
    "site": lambda each: (each.site.function, each.site.order),
}
_UNITS = ("B", "K", "M", "G", "T")
_KIBI = 1024
_EXACT = 10 * _KIBI


def allocations_facts(allocations: Allocations, *, leaks: bool = False) -> Json:
    """The whole document. If only `leaks` are asked for, it has only the sites with blocks that
    were not freed."""
    facts = allocations._asdict()
    facts["seconds"] = round(allocations.seconds, 6)
    facts["most_s"] = round(allocations.most_s, 6)
    facts["sites"] = [
        {**each._asdict(), "site": _site_facts(each.site), "wasted": each.wasted}
        for each in (allocations.leaks if leaks else allocations.sites)
    ]
    facts["functions"] = list(allocations.functions)
    facts["left_out"] = list(allocations.left_out)
    facts["allocations"] = allocations.allocations
    facts["live"] = allocations.live
    facts["live_given"] = allocations.live_given
    return facts


def _site_facts(site: CallSite) -> Json:
    facts = site._asdict()
    if site.stack is None:
        return facts
    from markerjit.facts.stacks import stack_facts

    return {**facts, "stack": stack_facts(site.stack)}


def bytes_words(count: int) -> str:
    """Bytes, in three or four digits and a unit: `4096 B`, `1.5 M`."""
    if abs(count) < _EXACT:
        return f"{count} B"
    value, unit = float(count), 0
    while abs(value) >= _KIBI and unit < len(_UNITS) - 1:
        value, unit = value / _KIBI, unit + 1
    return f"{value:.1f} {_UNITS[unit]}"


def site_words(each: AllocationSite) -> str:
    """`function+0x2f libkv.so`; the marker's name, or the address where nothing else is known."""
    site = each.site
    if not site.object:
        return site.function
    return f"{site.function}+{site.offset:#x} {os.path.basename(site.object)}"


def path_words(each: AllocationSite) -> str:
    """The functions of the site's stack in one line, the innermost first; the site where it has
    none."""
    if each.site.stack is None:
        return site_words(each)
    return shown([demangled(label) for label in reversed(each.site.stack.labels)])


def frame_lines(each: AllocationSite) -> list[str]:
    """A line for each frame of the site's stack, the innermost first; the site where it has
    none."""
    if each.site.stack is None:
        return [site_words(each)]
    from markerjit.facts.stacks import stack_lines

    return stack_lines(each.site.stack)


def site_rows(sites: Sequence[AllocationSite]) -> list[list[str]]:
    """A row for each site, with numbers to the right."""
    rows = [
        [
            bytes_words(each.live_given), f"{each.live:,}", f"{each.allocations:,}",
            bytes_words(each.asked), _share(each.wasted, each.given),
            duration_words(each.median_ns), _share(each.other_thread, each.frees), path_words(each),
        ]
        for each in sites
    ]  # fmt: skip
    return aligned(HEADER, rows)


def leak_rows(sites: Sequence[AllocationSite]) -> list[list[str]]:
    """A row for each site with blocks that were not freed."""
    rows = [
        [bytes_words(each.live_given), f"{each.live:,}", duration_words(each.oldest_ns),
         path_words(each)]
        for each in sites
    ]  # fmt: skip
    return aligned(LEAKS_HEADER, rows)


def _share(part: int, whole: int) -> str:
    return f"{part / whole:.0%}" if whole else "-"


# ---- sentences -----------------------------------------------------------------------------------


def summary_words(allocations: Allocations) -> str:
    """How much was seen, in how long."""
    sites = counted(len(allocations.sites), "stack" if allocations.depth else "site")
    return (
        f"{counted(allocations.allocations, 'allocation')} at {sites} in "
        f"{counted(allocations.threads, 'thread')} in "
        f"{allocations.seconds:.3f} s; {counted(allocations.live, 'block')} of "
        f"{bytes_words(allocations.live_given)} live, at most "
        f"{bytes_words(allocations.most_given)} after {allocations.most_s:.1f} s"
    )


def remarks(allocations: Allocations) -> Iterator[str]:
    """Caveats about the numbers, a sentence each."""
    failed = sum(each.failed for each in allocations.sites)
    lost_frees = sum(each.lost_frees for each in allocations.sites)
    if failed:
        yield f"{counted(failed, 'allocation')} failed"
    if allocations.unknown_frees:
        yield (
            f"{counted(allocations.unknown_frees, 'free')} of blocks that were not seen to be "
            "allocated: allocated before"
        )
    if allocations.unseen:
        yield (
            f"{counted(allocations.unseen, 'allocation')} without an address: the function left by "
            "a jump to another one, whose result is not seen. They are in none of these numbers"
        )
    if lost_frees:
        yield (
            f"{counted(lost_frees, 'block')} whose address was given out again without a free that "
            "was seen: not counted as live, and without a lifetime"
        )
    untracked = sum(each.untracked for each in allocations.sites)
    if untracked:
        yield (
            f"{counted(untracked, 'block')} found no room in the table of live blocks: they count "
            "neither as live nor as freed, and their frees as those of unknown blocks"
        )
    if allocations.no_site:
        yield (
            f"{counted(allocations.no_site, 'allocation')} at sites for which there was no room: "
            "they are in no row"
        )
    if allocations.lost_stacks:
        yield (
            f"{counted(allocations.lost_stacks, 'allocation')} had no stack, since there is no "
            "room for more: they count for their immediate callers"
        )
    if allocations.unmatched:
        yield (
            f"{counted(allocations.unmatched, 'return')} of calls that had begun before, or whose "
            "arguments were not kept: not counted"
        )
    if allocations.children:
        yield (
            f"{counted(allocations.children, 'process')} started by this one "
            "meanwhile: what they allocate is not here"
        )
    yield from allocations.left_out
    yield given_words(allocations)


def given_words(allocations: Allocations) -> str:
    """Where the given bytes are from."""
    if allocations.read:
        return "bytes given: as the header of each block says"
    if not allocations.allocator:
        return "bytes given: not known of this allocator, so what was asked for"
    return f"bytes given: by the rules of {allocations.allocator}"
