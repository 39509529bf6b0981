"""Bytes of a process that sites have, so that no two of them change or copy the same ones.

    heads    the instructions that a site loses while it is open
    holes    those of all sites that ever had one, open or not: nobody else gets them
    markers  the code that a compiler wrote for each

Two sites whose instructions overlap can both have stubs, and be open one after the other. What this
does not do: read a process, or decide what a site gets instead (stubs.py, planning.py).
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import chain
from operator import attrgetter, itemgetter

from markerjit.model import RemoteAddress, Site

_START = attrgetter("start")
_LONGEST = 64
"""Bytes of a span."""


class Taken:
    """Spans of addresses, which may overlap, and single addresses at which sites are asked for.

    `on` are those of sites that are on now, and are not asked for: each may be off at any time.
    `closed` are spans of sites that have a stub and are closed. Another site may be open there, but
    no hole is: it would be there for good, and a thread that is still in such a stub goes back to
    the end of the span. A jump is only written around that end when no thread is in the stub
    (emptied.py).
    """

    def __init__(
        self,
        spans: Iterable[range],
        asked: Iterable[int] = (),
        closed: Iterable[range] = (),
        on: Iterable[range] = (),
    ) -> None:
        self._spans = sorted(spans, key=_START)
        self._asked = sorted(asked)
        self._closed = sorted(closed, key=_START)
        self._on = sorted(on, key=_START)

    def is_free(self, span: range) -> bool:
        """Whether no other site has one of these bytes, or is asked for behind the first of
        them."""
        first = bisect_right(self._asked, span.start)
        asked = self._asked[first : first + 1]
        return not (asked and asked[0] < span.stop) and not any(self.overlapping(span))

    def is_free_of_all(self, span: range) -> bool:
        """The same, and no site is asked for at the first of them either, and no closed one has a
        stub there."""
        first = bisect_left(self._asked, span.start)
        asked = self._asked[first : first + 1]
        return (
            not (asked and asked[0] < span.stop)
            and not any(self.overlapping(span))
            and not any(_overlapping(self._closed, span))
        )

    def overlapping(self, span: range) -> Iterator[range]:
        """The spans that have one of these bytes."""
        return chain(_overlapping(self._spans, span), _overlapping(self._on, span))

    @cached_property
    def once_off(self) -> Taken:
        """The same once what is on now is off. Both get what is added."""
        if not self._on:
            return self
        off = Taken((), self._asked, [*self._closed, *self._on])
        off._spans = self._spans
        return off

    def add(self, span: range) -> None:
        """These belong to a site from now on."""
        insort(self._spans, span, key=_START)


def _overlapping(spans: Sequence[range], span: range) -> Iterator[range]:
    first = bisect_left(spans, span.start - _LONGEST, key=_START)
    for other in spans[first:]:
        if other.start >= span.stop:
            return
        if other.stop > span.start:
            yield other


def spans_of(site: Site) -> Iterator[range]:
    """The bytes of the program that a site changes or has copies of while it is open by a jump."""
    body = site.body
    form = site.form
    start = site.address - form.lead
    # A jump into padding has bytes behind the instructions that are lost.
    size = max(body.covers, form.lead + len(form.head) + len(form.tail))
    if size:
        yield range(start, start + size)
    if body.hole:
        yield range(body.hole.address, body.hole.address + body.hole.covers)


def sharing(sites: Sequence[Site]) -> Mapping[RemoteAddress, Sequence[Site]]:
    """By its address, each site with a stub that has instructions of others, and those."""
    spans = sorted(
        ((span.start, span.stop, site) for site in sites for span in spans_of(site)),
        key=itemgetter(0),
    )
    shared: dict[RemoteAddress, list[Site]] = {}
    for index, (_, stop, site) in enumerate(spans):
        behind = index + 1  # an iterator that skips those before would go through all of them
        while behind < len(spans) and spans[behind][0] < stop:
            other = spans[behind][2]
            behind += 1
            shared.setdefault(site.address, []).append(other)
            shared.setdefault(other.address, []).append(site)
    return shared
