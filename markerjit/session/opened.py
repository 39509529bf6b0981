"""Sites of USDT probes that have a stub: from what the arena's table of patches has of them.

A site's note says where it is and what its arguments are; the entry of its address has the bytes of
its head, the slot, and the way to the stub. So any controller finds what another one has opened.

What this does not do: make stubs (stubs.py), or say whether a site is open, which its code says.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from markerjit.arena.arena import Arena
from markerjit.model import Body, RemoteAddress, Site, UsdtSite
from markerjit.x86.forms import form_with_stub, stub_of


def opened_sites(arena: Arena, sites: Sequence[UsdtSite]) -> tuple[Site, ...]:
    """Those of these sites that have a stub, in their order."""
    return tuple(_opened(arena, sites))


def _opened(arena: Arena, sites: Sequence[UsdtSite]) -> Iterator[Site]:
    pages = arena.patches.look()
    for site in sites:
        entry = pages.at(site.address)
        if entry is None or entry.gone or not entry.slot:
            continue
        before, after = bytes(entry.before)[: entry.size], bytes(entry.after)[: entry.size]
        stub = stub_of(after, site.address) or int(entry.body)
        if before and stub and _begins_alike(before, site.form.head):
            yield with_stub(site, before, RemoteAddress(entry.slot), RemoteAddress(stub))


def with_stub(site: UsdtSite, head: bytes, slot: RemoteAddress, stub: RemoteAddress) -> Site:
    """A site whose head of these bytes leads to a stub."""
    body = Body(
        slot, stub, RemoteAddress(site.address + len(head)),
        preserving=True, semaphore=site.recipe.semaphore,
    )  # fmt: skip
    form = form_with_stub(head, site.address, stub)
    return Site(site.signature, site.place, site.address, form, body)


def _begins_alike(head: bytes, no_op: bytes) -> bool:
    size = min(len(head), len(no_op))
    return head[:size] == no_op[:size]
