"""From the states of sites to the plan of a switch, or the reason against it.

The rules are in patch/plan.py. This adds what the process itself says: what the runtime was told of
the markers, whether the code is what the notes say, and how each piece of memory is mapped.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from markerjit.errors import Reason, Refused
from markerjit.model import RemoteAddress, Site
from markerjit.patch.plan import (
    Binding,
    Plan,
    Refusal,
    SiteState,
    by_slot,
    complete,
    plan_off,
    plan_on,
)
from markerjit.patch.request import Request
from markerjit.patch.switchable import clashing_slots
from markerjit.probes.recorders import Recorders
from markerjit.quiesce.strategies import STRATEGIES, Strategy, default_strategy
from markerjit.session.target import Target
from markerjit.sites.verify import confirm

Bindings = dict[RemoteAddress, Binding]


class Planner:
    """Plans switches of one target. Changes nothing."""

    def __init__(self, target: Target) -> None:
        self._target = target
        self._confirmed: set[RemoteAddress] = set()

    def strategy(self, name: str | None) -> Strategy:
        """The strategy of this name; without one the default. Raises ValueError."""
        if name is None:
            return default_strategy(own=self._target.own)
        strategy = STRATEGIES.get(name) if isinstance(name, str) else None
        if strategy is None:
            names = ", ".join(STRATEGIES)
            raise ValueError(f"{name!r} is not a strategy of quiescence; there are {names}")
        return strategy

    def off(self) -> Request:
        """The request that switches off, by the default strategy."""
        return Request(False, default_strategy(own=self._target.own))

    def plan(
        self, states: Sequence[SiteState], request: Request, recorders: Recorders | None
    ) -> Plan:
        """The plan; to look at only, where `recorders` were not told of these markers.

        Raises Refused, UnexpectedBytes, MarkerError for code that is not what its note says.
        """
        problems = [state.problem for state in states if state.problem and not _is_closed(state)]
        if problems and (request.on or len(problems) == len(states)):
            raise problems[0]
        self._confirm([state.site for state in states if not state.problem])
        ours, own = self._target.seen.probes, self._target.own
        if request.on:
            bindings = _bindings([state.site for state in states], request, recorders)
            plan = plan_on(
                states, bindings,
                mode=request.mode, ours=ours, strategy=request.strategy, own=own,
            )  # fmt: skip
        else:
            plan = plan_off(states, ours=ours, strategy=request.strategy, own=own)
        if isinstance(plan, Refusal):
            raise Refused(plan.sentence, reason=plan.reason, try_again=plan.try_again)
        self.refuse_shared(plan)
        return plan

    @staticmethod
    def complete(
        plan: Plan, states: Sequence[SiteState], request: Request, recorders: Recorders
    ) -> Plan:
        """A plan that was made without the runtime, with the addresses that it has now."""
        bindings = _bindings([state.site for state in states], request, recorders)
        if bindings is None:
            raise ValueError("the runtime was not told of the markers")
        return complete(plan, bindings)

    def forget(self) -> None:
        """Objects came or went: what was confirmed of an address says nothing any more."""
        self._confirmed.clear()

    def _confirm(self, sites: Sequence[Site]) -> None:
        new = [site for site in sites if site.address not in self._confirmed]
        if new:
            confirm(self._target.memory.read, new)
            self._confirmed.update(site.address for site in new)

    def refuse_shared(self, plan: Plan) -> None:
        """Raise Refused for a write into a shared mapping, which would change the file for
        everybody."""
        shared = [mapping for mapping in self._target.seen.maps if mapping.shared]
        for edit in plan.edits if shared else ():
            for mapping in shared:
                if mapping.start <= edit.address < mapping.end:
                    raise Refused(
                        f"{edit.address:#x} is in a shared mapping of {mapping.path}: "
                        "writing there would change the file",
                        reason=Reason.SHARED_CODE,
                    )


def _is_closed(state: SiteState) -> bool:
    """Whether it is left out, whatever its code is."""
    return bool(state.site.form.closed)


def _bindings(
    sites: Sequence[Site], request: Request, recorders: Recorders | None
) -> Bindings | None:
    """The new content of each slot. None where the runtime does not know a marker, or where its
    version is not ours: then we register no markers with it."""
    if recorders is None or not recorders.arena.is_current:
        return None
    bindings: Bindings = {}
    for site in one_format(sites):
        marker = recorders.find(site.signature, request.probe)
        if marker is None:
            return None
        preserving = site.body.preserving
        bindings[site.slot] = Binding(
            recorders.probe(marker, request.probe, preserving=preserving),
            recorders.arena.markers.address(marker),
            recorders.adapter(request.probe, preserving=preserving),
        )
    return bindings


def one_format(sites: Sequence[Site]) -> Iterator[Site]:
    """One site for each slot that one format describes: a plan leaves out the others."""
    clashing = clashing_slots(sites)
    return (site for site in by_slot(sites) if site.slot not in clashing)
