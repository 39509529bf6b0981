"""Sites with stubs, as a table of patches has them, which the target can write."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from markerjit.abi import PatchEntry
from markerjit.arena.patches import PatchKind
from markerjit.model import (
    General,
    MappedObject,
    Place,
    Recipe,
    RemoteAddress,
    Signature,
    UsdtSite,
)
from markerjit.session import opened
from markerjit.session.opened import mark_of, opened_sites
from markerjit.x86.forms import function_form, relative

AT = RemoteAddress(0x401000)
ISLAND = (0x500000, 0x501000)
STUB = ISLAND[0] + 64
FAR = AT + (1 << 40)
HEAD = bytes.fromhex("55 48 89 e5 90")
RAX = General(("al", "ax", "eax", "rax"))
HOLE = AT + 32


def site_of() -> UsdtSite:
    form = function_form(HEAD)
    assert form
    place = Place(MappedObject("/made", 0, "1234", False), AT, "made+0x401000")
    return UsdtSite(Signature("func:made", "a %d", ()), place, AT, form, Recipe((RAX,)))


class Table:
    """A table of patches, and the arena that has it."""

    def __init__(self, entries: Mapping[int, PatchEntry]) -> None:
        self._entries = entries
        self.patches = self

    def look(self) -> Table:
        return self

    def at(self, address: int) -> PatchEntry | None:
        return self._entries.get(address)


def entry_of(before: bytes, after: bytes, **fields: int) -> PatchEntry:
    entry = PatchEntry(slot=0x600000, size=len(before), covers=len(before), **fields)
    for index, (old, new) in enumerate(zip(before, after, strict=True)):
        entry.before[index], entry.after[index] = old, new
    return entry


def jump(size: int = 5, target: int = STUB) -> bytes:
    return (b"\xe9" + relative(target, AT + 5))[:size]


def sites_found(*entries: tuple[int, PatchEntry]) -> int:
    site = site_of()
    mark = mark_of(site)

    def read(address: RemoteAddress, size: int) -> bytes:
        assert address + size == STUB
        return mark[-size:]

    return len(opened_sites(read, [Table(dict(entries))], [ISLAND, (FAR, FAR + 4096)], [site]))


def test_a_site_is_found_by_its_entry_and_the_mark_before_its_stub() -> None:
    assert sites_found((AT, entry_of(HEAD, jump()))) == 1
    assert sites_found() == 0


def test_marks_are_computed_only_of_sites_with_a_stub(monkeypatch: pytest.MonkeyPatch) -> None:
    known: list[RemoteAddress] = []
    monkeypatch.setattr(opened, "know_marks", lambda sites: known.extend(s.address for s in sites))
    site = site_of()
    without = site._replace(address=RemoteAddress(AT + 64))
    table = Table({AT: entry_of(HEAD, jump())})

    sites = opened_sites(lambda at, size: mark_of(site)[-size:], [table], [ISLAND], [without, site])

    assert [each.site.address for each in sites] == known == [AT]


@pytest.mark.parametrize("size", [1, 3, 4, 5])
def test_a_short_jump_has_two_bytes(size: int) -> None:
    hole = entry_of(bytes(6), b"\0\xe9" + relative(STUB, HOLE + 6), kind=PatchKind.HOLE)
    short = entry_of(HEAD[:size], jump(size), kind=PatchKind.SHORT, reach=HOLE + 1 - AT - 2)

    assert sites_found((AT, short), (HOLE, hole)) == 0


def test_a_stub_to_which_no_jump_leads_is_none() -> None:
    assert sites_found((AT, entry_of(HEAD, HEAD, body=FAR + 64))) == 0
