"""Sites and markers: where they are, how they are switched, and what they have counted."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from markerjit.facts import Json

if TYPE_CHECKING:
    from markerjit.errors import UnexpectedBytes
    from markerjit.model import Field, Site
    from markerjit.patch.plan import LeftOut
    from markerjit.session.status import MarkerStatus


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


def left_out_facts(left_out: Sequence[LeftOut]) -> list[Json]:
    """Markers that matched and were left as they were, with the reason."""
    return [{"marker": marker.marker, "reason": marker.sentence} for marker in left_out]
