"""Is the code at a site what its note says? Asked before anything is offered for patching.

Two opinions have to agree: the forms, which say byte for byte how a dormant site looks, and
capstone, which says what a processor would do with the bytes. The second is expensive to import and
cannot change for a given build, so its yes is remembered by build id, together with a digest of the
sites that it was given for. The bytes themselves are compared every time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import groupby
from operator import attrgetter

from markerjit.elf import Read
from markerjit.errors import MarkerError, UnexpectedBytes
from markerjit.model import Mode, RemoteAddress, Site
from markerjit.sites.remembered import recall, remember
from markerjit.x86.forms import STUBBED, is_breakpoint, mode_of

_OBJECT = attrgetter("place.object")
_MOST = 4096
"""Bytes of code that a compiler wrote for one site, where a note claims more."""


def code_mode(read: Read, site: Site, *, planted: bool = False) -> Mode | None:
    """How the site's code is switched on now; None while dormant, and where code does not decide.

    `planted`: a breakpoint there is ours. Raises UnexpectedBytes for code that is neither, and for
    a breakpoint that is not ours.
    """
    return code_state(read, site, site.body.idle, lambda site, probe: planted)[0]


def code_state(
    read: Read, site: Site, probe: RemoteAddress, is_ours: Callable[[Site, RemoteAddress], bool]
) -> tuple[Mode | None, bytes]:
    """The same, and the bytes of the head, which say so. `is_ours` is asked where there is a
    breakpoint, with the site and the probe in its slot: the bytes do not say whose it is."""
    form = site.form
    dormant = form.head + form.tail
    if not form.head:
        return None, b""
    code = read(site.address, len(dormant))
    if code == dormant:
        return None, form.head
    head = len(form.head)
    try:
        if code[head:] != form.tail:
            raise ValueError
        mode = mode_of(form, code[:head])
        if mode is Mode.INT3 and not is_ours(site, probe):
            raise ValueError
    except ValueError:
        where = f"{site.marker} in {site.object.path}"
        takes_one = Mode.INT3 in form.ways  # elsewhere the byte is an operand
        raise UnexpectedBytes(
            site.address, code, dormant, where,
            is_breakpoint=takes_one and is_breakpoint(code) and not is_ours(site, probe),
        ) from None  # fmt: skip
    return mode, code[:head]


def verify(read: Read, sites: Sequence[Site]) -> None:
    """Compare all sites that are not switched with their notes. Raises UnexpectedBytes or
    MarkerError for the first one that does not agree."""
    for site in sites:
        code_mode(read, site)
    confirm(read, sites)


def confirm(read: Read, sites: Sequence[Site]) -> None:
    """Ask for the second opinion on sites whose bytes are as they should be. Raises MarkerError for
    the first one that does not agree. Instructions of foreign code were decoded when their copies
    were made, and are not asked about."""
    ours = [site for site in sites if site.form.name not in STUBBED]
    for mapped, group in groupby(ours, key=_OBJECT):
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
        wrong = disagreement(site.form, code, start, site.body.entry, site.body.end)
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
    form = site.form
    start = RemoteAddress(site.address - form.lead)
    if not form.head:
        return start, read(start, min(max(site.body.end - start, 0), _MOST))
    lead = read(start, form.lead) if form.lead else b""
    tail = RemoteAddress(site.address + len(form.head))
    return start, lead + form.head + (read(tail, len(form.tail)) if form.tail else b"")


def _digest(sites: Sequence[Site]) -> str:
    """Of all that the second opinion depends on, besides the build."""
    try:
        from _blake2 import blake2b  # hashlib's own, which would load OpenSSL besides
    except ImportError:  # a Python that was built without
        from hashlib import blake2b

    lines = []
    for site in sites:
        form, place, body = site.form, site.place, site.body
        bias, entry = place.object.bias, body.entry
        lines.append(
            f"{form.name} {place.offset} {entry and entry - bias} {body.end - bias} "
            f"{(form.head + form.tail).hex()}\n"
        )
    return blake2b("".join(lines).encode(), digest_size=16).hexdigest()
