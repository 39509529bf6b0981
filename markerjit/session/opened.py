"""Sites of USDT probes that have a stub: from what the arena's table of patches has of them.

A site's note says where it is and what its arguments are; the entry of its address has the bytes of
its head, the slot, and the way to the stub. So any controller finds what another one has opened.
Before a stub stands a mark of the build and place that it was made for: another object may have
been loaded at the same address since. The mark says for which arguments, too. A controller that
knows others (it has debugging information, or another table of names) finds the site, and can
count there and switch it off; but what the stub stores is no argument that it knows.

What this does not do: make stubs (stubs.py), or say whether a site is open, which its code says.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence, Set
from itertools import islice

from markerjit.arena.arena import Arena
from markerjit.arena.hashes import fnv1a, hashes_of, know_hashes
from markerjit.arena.patches import Pages, Patch, PatchKind
from markerjit.elf import Read
from markerjit.errors import MemoryFault, Reason
from markerjit.model import Body, Form, Hole, RemoteAddress, Signature, Site, UsdtSite, new
from markerjit.probes.before import BEFORE, BEFORE_STUB, MARK_SIZE, WAY_AT
from markerjit.tuples import NamedTuple
from markerjit.x86.forms import (
    HOLE_SIZES,
    NEAR_LENGTH,
    SHORT_LENGTH,
    form_with_stub,
    stub_of,
)

_HALF = MARK_SIZE // 2
_STUB, _FORMER = b"mjst", b"mj stub\0"
_EXIT = b"mj exit\0"
_NO_STUB = "gets its stub when it is first switched on"


class Opened(NamedTuple):
    """A site that has a stub, and what the stub was made from. That is None where the site's
    arguments are not those that we know: it has none then. `known` is what we know of the place."""

    site: Site
    recipe: UsdtSite | None
    known: UsdtSite


def mark_of(site: UsdtSite) -> bytes:
    """What stands before the stub of a site. That of a function's exit has the function's entry, by
    which the site is found again."""
    return _beginning_of(site) + _STUB + _place_of(site) + _arguments_of(site)


def marks_of(sites: Sequence[UsdtSite]) -> list[bytes]:
    """The same of many, whose hashes are computed at once."""
    places = hashes_of([_place_text(site) for site in sites])
    arguments = hashes_of([_arguments_text(site) for site in sites])
    return [
        _beginning_of(site) + _STUB + place.to_bytes(8, "little")[:4] + of.to_bytes(8, "little")
        for site, place, of in zip(sites, places, arguments, strict=True)
    ]


def before_stub(mark: bytes, of_path: bytes) -> bytes:
    """What stands before a stub: what belongs to its fast path, and the mark of its site."""
    return of_path.ljust(BEFORE, b"\0") + mark


def way_before(read: Read, stub: RemoteAddress) -> int:
    """What stands before a stub of the records that it knows. Raises MemoryFault."""
    return int.from_bytes(read(RemoteAddress(stub - BEFORE_STUB + WAY_AT), 8), "little")


def _beginning_of(site: UsdtSite) -> bytes:
    return bytes(_HALF) if site.leaves is None else _EXIT + site.leaves.to_bytes(8, "little")


def know_marks(sites: Iterable[UsdtSite]) -> None:
    """Compute the hashes in the marks of many sites at once."""
    know_hashes(text for site in sites for text in (_place_text(site), _arguments_text(site)))


def _place_text(site: UsdtSite) -> str:
    return f"{_build(site)}\0{site.place.offset}\0{site.signature.name}"


def _place_of(site: UsdtSite) -> bytes:
    return fnv1a(_place_text(site).encode()).to_bytes(8, "little")[:4]


def _arguments_text(site: UsdtSite) -> str:
    return f"{_build(site)}\0{site.place.offset}\0{site.signature.text}\0{site.recipe.text}"


def _arguments_of(site: UsdtSite) -> bytes:
    return fnv1a(_arguments_text(site).encode()).to_bytes(8, "little")


def _build(site: UsdtSite) -> str:
    return site.place.object.build_id or site.place.object.path


def entry_left_at(read: Read, table: Pages, entry: Patch) -> int | None:
    """Where the function is entered, in its object, of which a table has an exit; None of anything
    else."""
    address, after = int(entry.address), bytes(entry.after)[: entry.size]
    short = entry.kind == PatchKind.SHORT
    hole = _hole(table, address + SHORT_LENGTH + entry.reach) if short else None
    stub = int(entry.body) or _stub(address, after, hole)
    if stub is None:
        return None
    try:
        mark = read(RemoteAddress(stub - MARK_SIZE), 16)
    except MemoryFault:
        return None
    return int.from_bytes(mark[8:], "little") if mark.startswith(_EXIT) else None


def any_open(read: Read, arenas: Sequence[Arena], besides: Set[RemoteAddress]) -> bool:
    """Whether any code of these tables, but for the heads at the addresses `besides`, is not as it
    was before, a hole's too."""
    for arena in arenas:
        for entry in arena.patches.entries(besides):
            if entry.gone:
                continue
            try:
                code = read(RemoteAddress(entry.address), entry.size)
            except MemoryFault:  # its object is not mapped any more
                continue
            if code != entry.before[: entry.size]:
                return True
    return False


def opened_sites(
    read: Read,
    arenas: Sequence[Arena],
    islands: Sequence[tuple[int, int]],
    sites: Sequence[UsdtSite],
) -> tuple[Opened, ...]:
    """Those of these sites that have a stub, by the tables of these arenas, the process's own ones
    first. A stub that does not lie in an island of the process is none: its parent may have made
    it since the fork."""
    tables = [arena.patches.look() for arena in arenas]
    stubs = ((site, [_with_known_stub(site, table, islands) for table in tables]) for site in sites)
    with_stubs = [(site, of_site) for site, of_site in stubs if any(of_site)]
    know_marks(site for site, _ in with_stubs)  # a process has thousands of probes without
    opened = []
    for site, of_site in with_stubs:
        alike = (_as_marked(read, site, each) for each in of_site if each)
        opened += list(islice(filter(None, alike), 1))
    return tuple(opened)


def _as_marked(read: Read, site: UsdtSite, opened: Site) -> Opened | None:
    """The site with the arguments that its stub was made for; None where that is another's."""
    # The first half says nothing of what is no exit: stubs of older versions have none.
    size = _HALF if site.leaves is None else MARK_SIZE
    try:
        mark = read(RemoteAddress(opened.body.entry - size), size)
    except MemoryFault:
        return None
    if size == MARK_SIZE and mark[:_HALF] != _beginning_of(site):
        return None
    kind, arguments = mark[-_HALF:-8], mark[-8:]
    if kind not in (_FORMER, _STUB + _place_of(site)):
        return None
    if arguments == _arguments_of(site):
        return Opened(opened, site, site)
    plain = _unnamed(site)
    if arguments == _arguments_of(plain):
        return Opened(opened._replace(signature=plain.signature), plain, site)
    if kind == _FORMER:  # it does not tell the place from the arguments
        return None
    return Opened(opened._replace(signature=Signature(site.signature.name, "", ())), None, site)


def _unnamed(site: UsdtSite) -> UsdtSite:
    """The site as it is without debugging information."""
    if site.leaves is None:
        from markerjit.sites.functions import unnamed  # it imports numpy

        return unnamed(site)
    from markerjit.session.exits import unnamed_exit

    return unnamed_exit(site)


def _with_known_stub(
    site: UsdtSite, table: Pages, islands: Sequence[tuple[int, int]]
) -> Site | None:
    entry = table.at(site.address)
    if entry is None or entry.gone or not entry.slot or entry.kind == PatchKind.HOLE:
        return None
    before, after = bytes(entry.before)[: entry.size], bytes(entry.after)[: entry.size]
    hole = None
    if entry.kind == PatchKind.SHORT:
        hole = _hole(table, site.address + SHORT_LENGTH + entry.reach)
        if hole is None:
            return None
    stub = _stub(site.address, after, hole) or int(entry.body)
    is_there = any(start <= stub < end for start, end in islands)
    if not before or not is_there or not _begins_alike(before, site.form.head):
        return None
    if hole and len(before) != SHORT_LENGTH:
        return None
    covers = int(entry.covers) or len(before)
    try:
        return with_stub(site, before, RemoteAddress(entry.slot), RemoteAddress(stub), covers, hole)
    except OverflowError:  # no jump leads there
        return None


def _stub(site: int, after: bytes, hole: Hole | None) -> int | None:
    if hole is None:
        return stub_of(after, site)
    return stub_of(hole.after[-NEAR_LENGTH:], jump_of(hole))


def _hole(table: Pages, jump: int) -> Hole | None:
    """The hole whose long jump is at this address."""
    for size in HOLE_SIZES:
        at = RemoteAddress(jump + NEAR_LENGTH - size)
        entry = table.at(at)
        if entry and entry.kind == PatchKind.HOLE and entry.size == size and not entry.gone:
            return Hole(at, bytes(entry.before)[:size], bytes(entry.after)[:size], entry.covers)
    return None


def jump_of(hole: Hole) -> RemoteAddress:
    """The address of the long jump in a hole."""
    return RemoteAddress(hole.address + len(hole.after) - NEAR_LENGTH)


def with_stub(
    site: UsdtSite,
    head: bytes,
    slot: RemoteAddress,
    stub: RemoteAddress,
    covers: int,
    hole: Hole | None = None,
) -> Site:
    """A site whose head of these bytes leads to a stub, which has copies of instructions of so many
    bytes."""
    idle = RemoteAddress(0)
    end, semaphore = RemoteAddress(site.address + covers), site.recipe.semaphore
    body = new(Body, (slot, stub, end, idle, False, True, semaphore, hole, covers))
    reach = jump_of(hole) - site.address - SHORT_LENGTH if hole else 0
    form = form_with_stub(site.form.name, head, site.address, stub, reach)
    return new(Site, (site.signature, site.place, site.address, form, body))


def without_stub(
    site: UsdtSite, why: str, reason: Reason = Reason.NO_OPENING, *, lasts: bool = False
) -> Site:
    """A site that cannot be opened, or is not to be, for this reason, which `lasts` or not (`Form`
    of model.py)."""
    return _closed(site, site.form._replace(closed=why, reason=reason, lasts=lasts))


def with_stub_to_come(site: UsdtSite, how: str = "") -> Site:
    """A site that has no stub yet; and how it will be opened, as the end of that sentence."""
    return _closed(site, site.form._replace(closed=_NO_STUB + how, reason=Reason.NO_STUB))


def _closed(site: UsdtSite, form: Form) -> Site:
    body = Body(RemoteAddress(0), RemoteAddress(0), site.address)
    return Site(site.signature, site.place, site.address, form, body)


def _begins_alike(head: bytes, no_op: bytes) -> bool:
    size = min(len(head), len(no_op))
    return head[:size] == no_op[:size]
