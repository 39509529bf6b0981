"""Sites and markers: where they are, how they are switched, and what they have counted."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from markerjit.errors import Reason
from markerjit.facts import Json
from markerjit.printable import counted
from markerjit.sites.names import written_name

if TYPE_CHECKING:
    from markerjit.errors import UnexpectedBytes
    from markerjit.model import Field, Site
    from markerjit.patch.plan import LeftOut
    from markerjit.session.status import MarkerStatus


_NAMED = 4
"""Of the names with one reason; --json has all."""
_NOTES = "USDT probes whose notes are not understood; list --usdt has them"
_PLACES = re.compile(r" \((?:[^()]*\+)?0x[0-9a-f]+\)")
"""What a sentence says of addresses: ` (libc.so.6+0x9ac40)`, and ` (0x9ac44)`."""


def list_facts(
    target: str, pid: int | None, markers: Iterable[MarkerStatus], problems: Iterable[Exception]
) -> Json:
    """The markers of a process, or of the file `target`, and what is wrong with the notes that were
    left out."""
    return {
        **({"file": target} if pid is None else {"pid": pid}),
        "markers": [marker_facts(marker) for marker in markers],
        "problems": [str(problem) for problem in problems],
    }


def marker_facts(marker: MarkerStatus) -> Json:
    """A marker with its sites. A fact that is not known, or does not apply, is None."""
    altered = {problem.address: problem for problem in marker.altered}
    return {
        "name": marker.name,
        "format": marker.format,
        "fields": field_facts(marker.fields),
        "kind": str(marker.kind),
        "mode": str(marker.mode) if marker.mode else None,
        "on": marker.mode is not None,
        "partly": marker.partly,
        "probe": marker.probe or None,
        "since": marker.since or None,
        "by": marker.by or None,
        "hits": marker.hits,
        "lost": marker.lost,
        "total": marker.total,
        "held": marker.held,
        "where": marker.where,
        "select": marker.select,
        "sample": marker.sample,
        "at_most": marker.at_most,
        "held_back": marker.held_back,
        "budget": marker.budget,
        "until": marker.until or None,
        "aggregate": marker.aggregate,
        "unmatched": marker.unmatched,
        "sites": [site_facts(site, altered.get(site.address)) for site in marker.sites],
    }


def site_facts(site: Site, problem: UnexpectedBytes | None = None) -> Json:
    """A site. `problem` says what is wrong with its code."""
    altered = problem and {
        "found": problem.found.hex(),
        "expected": problem.expected.hex(),
        "problem": problem.fact,
    }
    return {
        "address": site.address,
        "object": site.object.path,
        "offset": site.offset,
        "source": site.source,
        "kind": str(site.kind),
        "deleted": site.object.deleted,
        "altered": altered,
    }


def field_facts(fields: Iterable[Field]) -> list[Json]:
    """The fields of a marker, in the order of its format."""
    return [{"name": field.name, "type": str(field.type)} for field in fields]


def left_out_lines(left_out: Iterable[LeftOut]) -> Iterator[str]:
    """What is said of markers that matched and were left as they were. A pattern may be of hundreds
    that need a breakpoint: these have one line. Of others that differ in nothing but the name and
    the place, and of USDT probes with notes that are not understood, the first ones are said, and
    how many more there are."""
    needing: list[LeftOut] = []
    reasons: Counter[str] = Counter()
    for marker in left_out:
        if marker.reason is Reason.NEEDS_BREAKPOINT:
            needing.append(marker)
            continue
        what = _NOTES
        if marker.reason is not Reason.BAD_NOTE:
            what = _PLACES.sub("", marker.sentence.replace(written_name(marker.marker), "…"))
        reasons[what] += 1
        if reasons[what] <= _NAMED:
            yield marker.sentence
    for what, number in reasons.items():
        if number > _NAMED:
            yield f"{number - _NAMED:,} more: {what}"
    if len(needing) == 1:
        yield needing[0].sentence
    elif needing:
        yield needing_words([marker.marker for marker in needing])


def needing_words(names: Sequence[str]) -> str:
    """What is said of names that need a breakpoint which nobody asked for."""
    first = ", ".join(map(written_name, names[:_NAMED]))
    which = "which would end the program where a thread comes by that blocks SIGTRAP"
    if len(names) == 1:
        return f"{first} can be opened only by a breakpoint, {which}; --breakpoints takes it"
    return (
        f"{counted(len(names), 'name')} that only a breakpoint opens, {which}; --breakpoints takes "
        f"them: {first}{', …' * (len(names) > _NAMED)}"
    )


def left_out_facts(left_out: Sequence[LeftOut]) -> list[Json]:
    """Markers that matched and were left as they were, with the kind of reason and a sentence."""
    return [
        {"marker": marker.marker, "kind": str(marker.reason), "reason": marker.sentence}
        for marker in left_out
    ]
