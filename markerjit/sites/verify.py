"""Is the code at a site what its note says? Asked before anything is offered for patching.

Two opinions have to agree: the forms, which say byte for byte how a dormant site looks, and
capstone, which says what a processor would do with the bytes. The second takes some milliseconds to
load and cannot change for a given build, so its yes is remembered by build id, together with a
digest of the sites that it was given for. The bytes themselves are compared every time.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from itertools import groupby, pairwise
from operator import attrgetter

from markerjit.elf import Read
from markerjit.elf.image import PAGE
from markerjit.errors import MarkerError, UnexpectedBytes
from markerjit.model import Mode, RemoteAddress, Site
from markerjit.sites.lots import Lot, Lots
from markerjit.sites.remembered import blake2b, recall, remember
from markerjit.tuples import NamedTuple
from markerjit.x86.forms import STUBBED, is_breakpoint, mode_of

_OBJECT = attrgetter("object")
_WORD = 1 << 64
_TOGETHER = 256
"""Addresses at most that are read by one read."""
_MOST = 4096
"""Bytes of code that a compiler wrote for one site, where a note claims more."""


class LotCode(NamedTuple):
    """The code of sites of a lot that are alike in this, too: how it is switched on, and the bytes
    of the head, which say so. `problem` is that of code that is neither on nor off."""

    lot: Lot
    mode: Mode | None
    head: bytes
    problem: UnexpectedBytes | None = None


IsOurs = Callable[[RemoteAddress, RemoteAddress, RemoteAddress], bool]
"""Asked where there is a breakpoint, with the addresses of the site, of its body and of its slot:
the bytes do not say whose it is."""


def code_mode(read: Read, site: Site, *, planted: bool = False) -> Mode | None:
    """How the site's code is switched on now; None while dormant, and where code does not decide.

    `planted`: a breakpoint there is ours. Raises UnexpectedBytes for code that is neither, and for
    a breakpoint that is not ours.
    """
    (code,) = code_of(read, Lot.of(site), lambda *addresses: planted)
    if code.problem:
        raise code.problem
    return code.mode


def code_of(read: Read, lot: Lot, is_ours: IsOurs) -> list[LotCode]:
    """How the code of a lot is now: sites that are found alike stay together."""
    form = lot.first.form
    size = len(form.head)
    if not size:
        return [LotCode(lot, None, b"")]
    code = read_each(read, lot.addresses, size + len(form.tail))
    heads, altered = _sorted_out(lot, size, code)
    codes: list[LotCode] = []
    for head, indices in heads.items():
        mode, ours = None, indices
        try:
            mode = mode_of(form, head)
        except ValueError:
            ours = []
        if mode is Mode.INT3:
            ours = [index for index in indices if _is_ours(lot, index, is_ours)]
        if ours:
            codes.append(LotCode(lot.part(ours), mode, head))
        if len(ours) < len(indices):
            altered += {*indices}.difference(ours)
    return [*codes, *(_altered(lot, index, code[index], is_ours) for index in sorted(altered))]


def _sorted_out(
    lot: Lot, size: int, code: Sequence[bytes]
) -> tuple[dict[bytes, Sequence[int]], list[int]]:
    """The sites of a lot by the bytes of their heads, and those that have another tail."""
    tails = [each[size:] for each in code]
    heads = {each[:size] for each in code}
    if len(heads) == 1 and tails == [*lot.tails]:
        return {heads.pop(): range(lot.size)}, []
    by_head: dict[bytes, list[int]] = {}
    altered: list[int] = []
    for index, (each, tail) in enumerate(zip(code, lot.tails, strict=True)):
        if each[size:] == tail:
            by_head.setdefault(each[:size], []).append(index)
        else:
            altered.append(index)
    return {**by_head}, altered


def read_each(read: Read, addresses: Sequence[RemoteAddress], size: int) -> list[bytes]:
    """The bytes at each of these addresses, which are in order. Those that are near to each other
    are read together: no page is touched that none of them is in."""
    if not addresses:
        return []
    cuts = [
        index
        for index, (before, after) in enumerate(pairwise(addresses), 1)
        if after - before > PAGE - size or not index % _TOGETHER
    ]
    code: list[bytes] = []
    for start, end in pairwise((0, *cuts, len(addresses))):
        base = addresses[start]
        block = read(base, addresses[end - 1] + size - base)
        code += [block[at - base : at - base + size] for at in addresses[start:end]]
    return code


def _is_ours(lot: Lot, index: int, is_ours: IsOurs) -> bool:
    return is_ours(lot.addresses[index], lot.entries[index], lot.first.body.slot)


def _altered(lot: Lot, index: int, code: bytes, is_ours: IsOurs) -> LotCode:
    site = lot.site(index)
    form = site.form
    takes_one = Mode.INT3 in form.ways  # elsewhere the byte is an operand
    foreign = takes_one and is_breakpoint(code) and not _is_ours(lot, index, is_ours)
    problem = UnexpectedBytes(
        site.address, code, form.head + form.tail, f"{site.marker} in {site.object.path}",
        is_breakpoint=foreign,
    )  # fmt: skip
    return LotCode(Lot.of(site), None, b"", problem)


def verify(read: Read, sites: Sequence[Site]) -> None:
    """Compare all sites that are not switched with their notes. Raises UnexpectedBytes or
    MarkerError for the first one that does not agree."""
    lots = Lots.of(sites).lots
    for lot in lots:
        for code in code_of(read, lot, lambda *addresses: False):
            if code.problem:
                raise code.problem
    confirm(read, lots)


def confirm(read: Read, lots: Sequence[Lot]) -> None:
    """Ask for the second opinion on sites whose bytes are as they should be. Raises MarkerError for
    the first one that does not agree. Instructions of foreign code were decoded when their copies
    were made, and are not asked about."""
    ours = [lot for lot in lots if lot.first.form.name not in STUBBED]
    for mapped, group in groupby(ours, key=_OBJECT):
        of_object = list(group)
        digest = _digest(of_object)
        if mapped.build_id is None:
            _ask_capstone(read, Lots(of_object))
            continue
        # One for each build and selection of its sites.
        name = f"{mapped.build_id}-{digest[:16]}"
        if (name, digest) in _agreed:
            continue
        if recall(name) != digest:
            _ask_capstone(read, Lots(of_object))
            remember(name, digest)
        if len(_agreed) < _MOST_AGREED:
            _agreed.add((name, digest))


_agreed: set[tuple[str, str]] = set()
"""What was confirmed before in this process: those of a fleet mostly have the same objects."""
_MOST_AGREED = 4096


def _ask_capstone(read: Read, sites: Sequence[Site]) -> None:
    from markerjit.x86.opinion import disagreement  # loads a library

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


def _digest(lots: Sequence[Lot]) -> str:
    """Of all that the second opinion depends on, besides the build."""
    digest = blake2b(size=16)
    for lot in lots:
        form, bias = lot.first.form, lot.object.bias
        digest.update(f"{form.name} {form.head.hex()} {len(form.tail)} {lot.size}\n".encode())
        digest.update(b"".join(lot.tails))
        for column in (lot.addresses, lot.entries, lot.ends):
            offsets = [address and (address - bias) % _WORD for address in column]
            digest.update(struct.pack(f"<{lot.size}Q", *offsets))
    return str(digest.hexdigest())
