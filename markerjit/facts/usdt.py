"""USDT probes as documents: where they are, what they have, and whether others look at them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from markerjit.facts import Json
from markerjit.facts.markers import field_facts

if TYPE_CHECKING:
    from markerjit.session.usdt import UsdtProbe
    from markerjit.sites.usdt import UsdtState


def usdt_facts(
    target: str, pid: int | None, probes: Iterable[UsdtProbe], problems: Iterable[Exception]
) -> Json:
    """The USDT probes of a process, or of the file `target`, and what is wrong with the notes that
    were left out."""
    return {
        **({"file": target} if pid is None else {"pid": pid}),
        "probes": [_probe_facts(probe) for probe in probes],
        "problems": [str(problem) for problem in problems],
    }


def _probe_facts(probe: UsdtProbe) -> Json:
    return {
        "name": probe.name,
        "format": probe.format,
        "fields": field_facts(probe.fields),
        "sites": [_site_facts(state) for state in probe.states],
    }


def _site_facts(state: UsdtState) -> Json:
    """A site. A fact that is not known, or does not apply, is None."""
    site, problem = state.site, state.problem
    return {
        "address": site.address,
        "object": site.place.object.path,
        "offset": site.place.offset,
        "deleted": site.place.object.deleted,
        "code": site.form.head.hex(),
        "operands": site.recipe.text,
        "semaphore": site.recipe.semaphore or None,
        "raised": state.raised,
        "mode": str(state.mode) if state.mode else None,
        "altered": problem
        and {
            "found": problem.found.hex(),
            "expected": problem.expected.hex(),
            "problem": problem.fact,
        },
    }
