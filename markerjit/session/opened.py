"""Sites of USDT probes that have a stub: from what the arena's table of patches has of them.

A site's note says where it is and what its arguments are; the entry of its address has the bytes of
its head, the slot, and the way to the stub. So any controller finds what another one has opened.

What this does not do: make stubs (stubs.py), or say whether a site is open, which its code says.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice

from markerjit.abi import PatchEntry
from markerjit.arena.arena import Arena
from markerjit.model import Body, RemoteAddress, Site, UsdtSite
from markerjit.x86.forms import form_with_stub, stub_of


def opened_sites(
    arenas: Sequence[Arena], islands: Sequence[tuple[int, int]], sites: Sequence[UsdtSite]
) -> tuple[Site, ...]:
    """Those of these sites that have a stub, by the tables of these arenas, the process's own ones
    first. A stub that does not lie in an island of the process is none: its parent may have made
    it since the fork."""
    tables = [arena.patches.look() for arena in arenas]
    opened = []
    for site in sites:
        stubs = (_with_known_stub(site, table.at(site.address), islands) for table in tables)
        opened += list(islice(filter(None, stubs), 1))
    return tuple(opened)


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
    form = form_with_stub(head, site.address, stub)
    return Site(site.signature, site.place, site.address, form, body)


def without_stub(site: UsdtSite, why: str) -> Site:
    """A site that cannot be opened, or not yet, for this reason."""
    form = site.form._replace(closed=why)
    body = Body(RemoteAddress(0), RemoteAddress(0), site.address)
    return Site(site.signature, site.place, site.address, form, body)


def _begins_alike(head: bytes, no_op: bytes) -> bool:
    size = min(len(head), len(no_op))
    return head[:size] == no_op[:size]
