"""Sites that are alike, as one value: a program may have a hundred thousand sites of a few markers.

A `Lot` has the sites of one marker in one object that differ only in where they are: once what they
share, and columns of addresses for the rest. `Lots` look like a sequence of sites. A `Site` is made
when it is asked for, so that what works on lots makes none for most of them.

What this does not do: find sites (discover.py), or say how they are (verify.py).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, groupby
from typing import overload

from markerjit.model import MappedObject, Place, RemoteAddress, Site, new
from markerjit.tuples import NamedTuple


class Lot(NamedTuple):
    """Sites that are alike, in the order of their addresses; a single one is a lot, too.

    first      the first of them, which has what they share
    addresses  of each, and so on
    entries    of their bodies, 0 where they have none
    ends       where the program goes on behind each
    lines      of the source file
    tails      what has to stand behind the head of each
    """

    first: Site
    addresses: Sequence[RemoteAddress]
    entries: Sequence[RemoteAddress]
    ends: Sequence[RemoteAddress]
    lines: Sequence[int]
    tails: Sequence[bytes]

    @classmethod
    def of(cls, site: Site) -> Lot:
        """The lot of a single site."""
        body = site.body
        tails = (site.form.tail,)
        return new(cls, (site, (site.address,), (body.entry,), (body.end,), (0,), tails))

    @property
    def size(self) -> int:
        """The number of its sites."""
        return len(self.addresses)

    @property
    def object(self) -> MappedObject:
        """The file that they are in."""
        return self.first.place.object

    def site(self, index: int) -> Site:
        """One of the sites."""
        first, address, entry = self.first, self.addresses[index], self.entries[index]
        if address == first.address:
            return first
        mapped = first.place.object
        file = first.place.source.rpartition(":")[0]
        place = new(Place, (mapped, address - mapped.bias, f"{file}:{self.lines[index]}"))
        form = first.form._replace(tail=self.tails[index])
        body = first.body._replace(entry=entry, end=self.ends[index])
        return new(Site, (first.signature, place, address, form, body))

    def sites(self) -> Iterator[Site]:
        """All of them."""
        return map(self.site, range(self.size))

    def part(self, indices: Sequence[int]) -> Lot:
        """The lot of some of them, one at least, in their order."""
        if len(indices) == self.size:
            return self
        if len(indices) == 1:
            return Lot.of(self.site(indices[0]))
        return Lot(
            self.site(indices[0]),
            [self.addresses[at] for at in indices],
            [self.entries[at] for at in indices],
            [self.ends[at] for at in indices],
            [self.lines[at] for at in indices],
            [self.tails[at] for at in indices],
        )


class Lots(Sequence[Site]):
    """The sites of some lots, by object and address. Lots of one object stand together, in the
    order of their first addresses."""

    def __init__(self, lots: Iterable[Lot]) -> None:
        self.lots = tuple(lots)
        self._sites: tuple[Site, ...] | None = None

    @classmethod
    def of(cls, sites: Iterable[Site]) -> Lots:
        """Themselves, or single sites in their order, each of which is a lot."""
        return sites if isinstance(sites, Lots) else cls(map(Lot.of, sites))

    @property
    def markers(self) -> set[str]:
        """The names of their markers."""
        return {lot.first.signature.name for lot in self.lots}

    def __len__(self) -> int:
        return sum(lot.size for lot in self.lots)

    def __iter__(self) -> Iterator[Site]:
        return iter(self._all())

    @overload
    def __getitem__(self, index: int) -> Site: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[Site, ...]: ...
    def __getitem__(self, index: int | slice) -> Site | tuple[Site, ...]:
        if index == 0 and self.lots:
            return self.lots[0].first
        return self._all()[index]

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        return isinstance(other, (tuple, Lots)) and self._all() == tuple(other)

    def __hash__(self) -> int:
        return hash(self._all())

    def __repr__(self) -> str:
        return repr(self._all())

    def _all(self) -> tuple[Site, ...]:
        if self._sites is None:
            self._sites = tuple(chain.from_iterable(map(_in_order, self._by_object())))
        return self._sites

    def _by_object(self) -> Iterator[list[Lot]]:
        for _, lots in groupby(self.lots, lambda lot: lot.object):
            yield list(lots)


def _in_order(lots: Sequence[Lot]) -> list[Site]:
    """The sites of an object."""
    sites = [site for lot in lots for site in lot.sites()]
    if any(lot.size > 1 for lot in lots):  # else they are in the order that they were given in
        sites.sort(key=lambda site: site.address)
    return sites
