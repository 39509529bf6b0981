"""Every way to switch markers on, beside each other: each mode under each kind of quiescence.

The plans are those that `enable` would apply. A way that is not possible has the refusal.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import product

from markerjit.errors import Refused, UnexpectedBytes
from markerjit.explain.marker import states_of_file
from markerjit.model import Mode, Quiescence, Site
from markerjit.patch.plan import Plan, Refusal, plan_on
from markerjit.quiesce.strategies import STRATEGIES
from markerjit.session.session import COUNT, Session
from markerjit.tuples import NamedTuple

__all__ = ["Way", "plan_or_refusal", "ways_of_file", "ways_of_process"]

# Signals need a handler of ours, which only our own process has.
FROM_OUTSIDE = tuple(way for way in Quiescence if way is not Quiescence.SIGNALS)


class Way(NamedTuple):
    """One way: the mode of the sites, how threads are kept from harm, and the plan."""

    mode: Mode
    quiescence: Quiescence
    plan: Plan | Refusal

    @property
    def code_bytes(self) -> int:
        """How many bytes of code differ afterwards, over all sites. 0 for a refusal."""
        if isinstance(self.plan, Refusal):
            return 0
        written = [edit for edit in self.plan.edits if edit.code and edit.old != edit.new]
        return len({edit.address + at for edit in written for at in range(len(edit.new))})


def ways_of_process(session: Session, pattern: str) -> list[Way]:
    """Every way for the markers of a process. Raises UnknownMarker, and Refused for USDT probes
    that have no stub yet, or can have none: their ways are known when they have."""
    modes = _modes(session.sites(pattern))
    refused = None if modes else plan_or_refusal(session, pattern, None, None)
    if isinstance(refused, Refusal):
        raise Refused(refused.sentence, reason=refused.reason)
    return [
        Way(mode, quiescence, plan_or_refusal(session, pattern, str(mode), str(quiescence)))
        for mode, quiescence in product(modes, FROM_OUTSIDE)
    ]


def ways_of_file(path: str, pattern: str) -> list[Way]:
    """Every way for a process that was just started. Raises BadFile, NoMarkers,
    UnknownMarker."""
    states = states_of_file(path, pattern)
    return [
        Way(mode, way, plan_on(states, None, mode=mode, strategy=STRATEGIES[str(way)]))
        for mode, way in product(_modes(state.site for state in states), FROM_OUTSIDE)
    ]


def plan_or_refusal(
    session: Session,
    pattern: str,
    mode: str | None,
    quiescence: str | None,
    *,
    probe: str = COUNT,
) -> Plan | Refusal:
    """The plan that `enable` would apply, or the reason against it. Raises UnknownMarker."""
    try:
        return session.plan(pattern, mode=mode, probe=probe, quiesce=quiescence)
    except Refused as refused:
        return Refusal(refused.reason, refused.sentence, refused.try_again)
    except UnexpectedBytes as error:
        return Refusal(error.reason, str(error))


def _modes(sites: Iterable[Site]) -> list[Mode]:
    """The modes that some site has, in the order of `Mode`."""
    possible = {mode for site in sites for mode in site.form.ways}
    return [mode for mode in Mode if mode in possible]
