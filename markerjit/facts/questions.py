"""Questions explained."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from markerjit.facts import Json

if TYPE_CHECKING:
    from markerjit.explain.question import AskedMarker


def question_facts(target: str, text: str, markers: Sequence[AskedMarker]) -> Json:
    """A question, and how it is asked of each marker."""
    return {
        "target": target,
        "question": text,
        "markers": [_marker_facts(marker) for marker in markers],
    }


def _marker_facts(marker: AskedMarker) -> Json:
    return {
        "name": marker.marker,
        "types": marker.types,
        "expression": list(marker.expression),
        "code": [{"line": line.text, "part": line.part} for line in marker.code],
        "code_bytes": marker.size,
        "remark": marker.remark,
    }
