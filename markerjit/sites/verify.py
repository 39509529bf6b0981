"""Is the code at a site what its note says? Asked before anything is offered for patching.

Two opinions have to agree: the templates, which say byte for byte how a dormant site looks, and
capstone, which says what a processor would do with the bytes. The second is expensive to import and
cannot change for a given build, so its yes is remembered by build id, together with a digest of the
sites that it was given for. The bytes themselves are compared every time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import groupby

from markerjit.elf import Read
from markerjit.errors import MarkerError, UnexpectedBytes
from markerjit.model import Kind, Mode, RemoteAddress, Site
from markerjit.sites.remembered import recall, remember
from markerjit.x86.templates import TEMPLATES, is_breakpoint, mode_of, site_bytes

_SLOT_KINDS = (Kind.POINTER, Kind.SENTINEL, Kind.DIRECT)
_LONGEST_POINTER_TEST = 14  # cmpq $0, disp32(%rip); jne rel32


def code_mode(read: Read, site: Site, *, planted: bool = False) -> Mode | None:
    """How the site's code is switched on now; None while dormant, and for kinds without code.

    `planted`: a breakpoint there is ours. Raises UnexpectedBytes for code that is neither, and for
    a breakpoint that is not ours.
    """
    return code_state(read, site, lambda: planted)[0]


def code_state(read: Read, site: Site, is_ours: Callable[[], bool]) -> tuple[Mode | None, bytes]:
    """The same, and the bytes of the head, which say so. `is_ours` is asked where there is a
    breakpoint: the bytes do not say whose it is."""
    if site.kind in _SLOT_KINDS:
        return None, b""
    expected = site_bytes(site.kind, site.address, site.body)
    found = read(site.address, len(expected))
    head = len(TEMPLATES[site.kind].dormant)
    try:
        if found[head:] != expected[head:]:
            raise ValueError
        mode = mode_of(site.kind, found[:head])
        if mode is Mode.INT3 and not is_ours():
            raise ValueError
    except ValueError:
        where = f"{site.marker} in {site.object.path}"
        takes_one = Mode.INT3 in TEMPLATES[site.kind].active  # elsewhere the byte is an operand
        raise UnexpectedBytes(
            site.address, found, expected, where, is_breakpoint=takes_one and is_breakpoint(found)
        ) from None
    return mode, found[:head]


def verify(read: Read, sites: Sequence[Site]) -> None:
    """Compare all sites with their notes, where nobody has switched them. Raises UnexpectedBytes or
    MarkerError for the first one that does not agree."""
    for site in sites:
        code_mode(read, site)
    confirm(read, sites)


def confirm(read: Read, sites: Sequence[Site]) -> None:
    """Ask for the second opinion on sites whose bytes are as they should be. Raises MarkerError for
    the first one that does not agree."""
    for mapped, group in groupby(sites, key=lambda site: site.object):
        of_object = list(group)
        digest = _digest(of_object)
        # One for each build and selection of its sites.
        name = f"{mapped.build_id}-{digest[:16]}" if mapped.build_id else None
        if name and recall(name) == digest:
            continue
        _ask_capstone(read, of_object)
        if name:
            remember(name, digest)


def _ask_capstone(read: Read, sites: Iterable[Site]) -> None:
    from markerjit.x86.decode import disagreement  # 40 ms

    for site in sites:
        start, code = dormant_code(read, site)
        wrong = disagreement(site.kind, code, start, site.body, site.end)
        if wrong:
            raise MarkerError(
                f"{site.address:#x} ({site.marker} in {site.object.path}) is not what its note "
                f"says: {wrong}"
            )


def dormant_code(read: Read, site: Site) -> tuple[RemoteAddress, bytes]:
    """The site's own code as it is while dormant, and where it starts.

    An immediate's site is its last byte; the instruction starts one or two bytes before, and the
    second but last is its opcode.
    """
    if site.kind is Kind.IMMEDIATE:
        start = RemoteAddress(site.address - 1)
        return start, read(start, 1) + TEMPLATES[site.kind].dormant
    if site.kind is Kind.POINTER:
        return site.address, read(site.address, _LONGEST_POINTER_TEST)
    if site.kind in TEMPLATES:
        dormant = TEMPLATES[site.kind].dormant
        tail = RemoteAddress(site.address + len(dormant))
        return site.address, dormant + read(tail, site.end - tail)
    return site.address, read(site.address, site.end - site.address)


def _digest(sites: Sequence[Site]) -> str:
    import hashlib  # 4 ms, and `status` does not need it

    told = hashlib.blake2b(digest_size=16)
    for site in sites:
        note = site.note
        told.update(f"{note.kind:d} {note.site} {note.body} {note.end}\n".encode())
    return told.hexdigest()
