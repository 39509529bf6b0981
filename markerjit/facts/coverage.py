"""The coverage of objects as a document."""

from __future__ import annotations

from typing import TYPE_CHECKING

from markerjit.facts import Json

if TYPE_CHECKING:
    from collections.abc import Iterable

    from markerjit.session.coverage import Coverage
    from markerjit.spans.coverage import Share


def coverage_facts(objects: Iterable[Coverage]) -> Json:
    """How much of each object can be opened."""
    return {"objects": [_facts(each) for each in objects]}


def _facts(coverage: Coverage) -> Json:
    return {
        "path": coverage.path,
        "build_id": coverage.build_id,
        "problem": coverage.problem or None,
        "shares": [_share_facts(share) for share in coverage.shares],
    }


def _share_facts(share: Share) -> Json:
    return {
        "what": share.what,
        "places": share.places,
        "by_jump": share.by_jump,
        "closed": share.closed,
        "ways": share.ways,
        "reasons": share.reasons,
        "unknown": share.unknown,
    }
