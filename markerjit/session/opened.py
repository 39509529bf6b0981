"""Sites of USDT probes that have a stub: from what the arena's table of patches has of them.

A site's note says where it is and what its arguments are; the entry of its address has the bytes of
its head, the slot, and the way to the stub. So any controller finds what another one has opened.
Before a stub stands a mark of the build and the note that it was made for: another object may have
been loaded at the same address since, and tables of names and types may have been edited.

What this does not do: make stubs (stubs.py), or say whether a site is open, which its code says.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice

from markerjit.abi import PatchEntry
from markerjit.arena.arena import Arena
from markerjit.arena.markers import fnv1a
from markerjit.elf import Read
from markerjit.errors import MemoryFault
from markerjit.model import Body, RemoteAddress, Site, UsdtSite
from markerjit.x86.forms import form_with_stub, stub_of

MARK_SIZE = 16
NO_STUB = "gets its stub when it is first switched on"


def mark_of(site: UsdtSite) -> bytes:
    """What stands before the stub of a site."""
    known = site.place.object.build_id or site.place.object.path
    text = f"{known}\0{site.place.offset}\0{site.signature.text}\0{site.recipe.text}"
    return b"mj stub\0" + fnv1a(text.encode()).to_bytes(8, "little")


def opened_sites(
    read: Read,
    arenas: Sequence[Arena],
    islands: Sequence[tuple[int, int]],
    sites: Sequence[UsdtSite],
) -> tuple[Site, ...]:
    """Those of these sites that have a stub, by the tables of these arenas, the process's own ones
    first. A stub that does not lie in an island of the process is none: its parent may have made
    it since the fork."""
    tables = [arena.patches.look() for arena in arenas]
    opened = []
    for site in sites:
        stubs = (_with_known_stub(site, table.at(site.address), islands) for table in tables)
        alike = (each for each in stubs if each and _is_marked(read, site, each.body.entry))
        opened += list(islice(alike, 1))
    return tuple(opened)


def _is_marked(read: Read, site: UsdtSite, stub: RemoteAddress) -> bool:
    try:
        return read(RemoteAddress(stub - MARK_SIZE), MARK_SIZE) == mark_of(site)
    except MemoryFault:
        return False


def _with_known_stub(
    site: UsdtSite, entry: PatchEntry | None, islands: Sequence[tuple[int, int]]
) -> Site | None:
    if entry is None or entry.gone or not entry.slot:
        return None
    before, after = bytes(entry.before)[: entry.size], bytes(entry.after)[: entry.size]
    stub = stub_of(after, site.address) or int(entry.body)
    is_there = any(start <= stub < end for start, end in islands)
    if not before or not is_there or not _begins_alike(before, site.form.head):
        return None
    return with_stub(site, before, RemoteAddress(entry.slot), RemoteAddress(stub))


def with_stub(site: UsdtSite, head: bytes, slot: RemoteAddress, stub: RemoteAddress) -> Site:
    """A site whose head of these bytes leads to a stub."""
    body = Body(
        slot, stub, RemoteAddress(site.address + len(head)),
        preserving=True, semaphore=site.recipe.semaphore,
    )  # fmt: skip
    form = form_with_stub(site.form.name, head, site.address, stub)
    return Site(site.signature, site.place, site.address, form, body)


def without_stub(site: UsdtSite, why: str) -> Site:
    """A site that cannot be opened, or not yet, for this reason."""
    form = site.form._replace(closed=why)
    body = Body(RemoteAddress(0), RemoteAddress(0), site.address)
    return Site(site.signature, site.place, site.address, form, body)


def _begins_alike(head: bytes, no_op: bytes) -> bool:
    size = min(len(head), len(no_op))
    return head[:size] == no_op[:size]
