"""From the states of sites to the plan of a switch, or the reason against it.

The rules are in patch/plan.py. This adds what the process itself says: what the runtime was told of
the markers, whether the code is what the notes say, and how each piece of memory is mapped.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from operator import is_
from typing import TYPE_CHECKING

from markerjit.abi import TAKES_TIME
from markerjit.errors import BadArgument, Reason, Refused
from markerjit.model import Mode, RemoteAddress, Site
from markerjit.patch.plan import (
    Binding,
    Plan,
    Refusal,
    addresses_of,
    by_slot,
    complete,
    plan_off,
    plan_on,
)
from markerjit.patch.request import Count, Probe, Request, as_mode
from markerjit.patch.switchable import (
    Carried,
    Carry,
    SiteState,
    clashing_slots,
    nothing_carried,
)
from markerjit.probes.recorders import Recorders, takes_time
from markerjit.proc.permission import threads_blocking_sigtrap
from markerjit.quiesce.strategies import STRATEGIES, Strategy, default_strategy
from markerjit.session.target import Target, key_of
from markerjit.sites import Lot
from markerjit.sites.names import written_name
from markerjit.sites.verify import confirm
from markerjit.x86.forms import RETURN

if TYPE_CHECKING:
    from markerjit.model import Form

Bindings = dict[RemoteAddress, Binding]
_COUNT = Count()


class Planner:
    """Plans switches of one target. Changes nothing. `breakpoints`: code that nobody prepared may
    get some (consent.py)."""

    def __init__(self, target: Target, *, breakpoints: bool = False) -> None:
        self._target = target
        self._breakpoints = breakpoints
        self._confirmed: set[RemoteAddress] = set()

    def strategy(self, name: str | None) -> Strategy:
        """The strategy of this name; without one the default. Raises BadArgument."""
        if name is None:
            return default_strategy(own=self._target.own)
        strategy = STRATEGIES.get(name) if isinstance(name, str) else None
        if strategy is None:
            raise BadArgument("quiesce", name, f"one of {', '.join(STRATEGIES)}")
        return strategy

    def on(
        self,
        quiesce: str | None = None,
        mode: Mode | str | None = None,
        probe: Probe = _COUNT,
    ) -> Request:
        """The request that switches on: by the strategy of this name, in this mode. Raises
        BadArgument."""
        return Request(True, self.strategy(quiesce), as_mode(mode), probe, self._breakpoints)

    def off(self) -> Request:
        """The request that switches off, by the default strategy."""
        return Request(False, default_strategy(own=self._target.own))

    def plan(
        self, states: Sequence[SiteState], request: Request, recorders: Recorders | None
    ) -> Plan:
        """The plan; to look at only, where `recorders` were not told of these markers.

        Raises Refused, UnexpectedBytes, MarkerError for code that is not what its note says.
        """
        carry = self._carry(request)
        if request.on:
            states = self._without_blocked(states, request, carry)
        problems = [state.problem for state in states if state.problem and not _is_closed(state)]
        if problems and (request.on or len(problems) == len(states)):
            raise problems[0]
        # Foreign instructions were decoded when their copies were made.
        compiled = [state for state in states if not state.site.body.covers]
        self._confirm([state.lot for state in compiled if not state.problem])
        ours, own = self._target.seen.probes, self._target.own
        if request.on:
            bindings = _bindings(self._target, [state.site for state in states], request, recorders)
            plan = plan_on(
                states, bindings,
                mode=request.mode, ours=ours, strategy=request.strategy, own=own, carry=carry,
            )  # fmt: skip
            if isinstance(plan, Plan) and self._target.sharing():
                from markerjit.session.emptied import with_stubs_empty

                every = [*states, *carry(states).opened]
                plan = with_stubs_empty(self._target, plan, every)
        else:
            plan = plan_off(states, ours=ours, strategy=request.strategy, own=own, carry=carry)
        if isinstance(plan, Refusal):
            raise Refused(plan.sentence, reason=plan.reason, try_again=plan.try_again)
        self.refuse_shared(plan)
        return plan

    def _carry(self, request: Request) -> Carry:
        if not any(site.form.name == RETURN for site in self._target.seen.opened):
            return nothing_carried
        from markerjit.session.carrying import carry_for

        return _looked_at_once(carry_for(self._target, request))

    def _without_blocked(
        self, states: Sequence[SiteState], request: Request, carry: Carry
    ) -> Sequence[SiteState]:
        """The states as `_without_shared`, with exits closed whose entries cannot be opened now,
        and are needed."""
        entries = carry(states).opened
        checked = self._without_shared(self._without_traps([*entries, *states], request))
        blocked = {
            key_of(state.site): state.site.form for state in checked if state.site.form.closed
        }
        states = checked[len(entries) :]
        if not blocked:
            return states
        from markerjit.session.carrying import needs_entry

        allowed: list[SiteState] = []
        for state in states:
            entry = self._target.entry_of(state.site)
            form = blocked.get(key_of(entry)) if entry else None
            is_free = not state.site.form.closed
            if form and is_free and needs_entry(self._target, state.site, request):
                why = f"needs its entry, which {form.closed}"
                why += "; or record what needs none, as with 'ret'"
                state = _closed(state, form._replace(closed=why))
            allowed.append(state)
        return allowed

    def _without_traps(self, states: Sequence[SiteState], request: Request) -> Sequence[SiteState]:
        """The states, with those of foreign sites closed that need a breakpoint: one that nobody
        asked for (consent.py), or that would end the process because a thread blocks its signal
        now. One that stands already was asked for. All sites of such a name are closed: a function
        whose exits are seen in part shows too few. A mode that is named is judged elsewhere."""
        foreign = [
            state for state in states if state.site.body.covers and not state.site.form.closed
        ]
        needing = [state for state in foreign if not _has_jump(state)]
        if request.mode is not None or not needing:
            return states
        from markerjit.session.consent import closed_for_want  # few switches need a breakpoint

        forms: dict[str, Form] = {}
        if not request.breakpoints:
            forms |= {
                state.site.marker: closed_for_want(state.site.form)
                for state in needing if not state.code_mode
            }  # fmt: skip
        others = [state for state in needing if state.site.marker not in forms]
        if others and (blocking := threads_blocking_sigtrap(self._target.pid)):
            now = (
                f"cannot be opened now: it needs a breakpoint, and thread {blocking[0]} blocks "
                f"SIGTRAP ({len(blocking)} do), so that a breakpoint would kill the process"
            )
            forms |= {state.site.marker: state.site.form._replace(closed=now) for state in others}
        return [
            _closed(state, forms[state.site.marker])
            if state.site.marker in forms and state.site.body.covers and not state.site.form.closed
            else state
            for state in states
        ]

    def _without_shared(self, states: Sequence[SiteState]) -> Sequence[SiteState]:
        """The states, with those closed whose stubs have copies of instructions at which another
        site is open, or is to be: that one would not be reached any more."""
        shared = self._target.sharing()
        others = {other for state in states for other in shared.get(state.site.address, ())}
        if not others:
            return states
        states_now = self._target.states([*others])
        open_now = {state.site.address for state in states_now if state.code_mode}
        allowed: list[SiteState] = []
        for state in states:
            site = state.site
            against = [each for each in shared.get(site.address, ()) if each.address in open_now]
            if against and not site.form.closed and not state.code_mode:
                why = (
                    f"cannot be opened while {written_name(against[0].marker)} "
                    f"({against[0].source}) is on, "
                    "which has copies of the same instructions; switch that off first"
                )
                state = _closed(state, site.form._replace(closed=why))
            elif not site.form.closed:
                open_now.add(site.address)
            allowed.append(state)
        return allowed

    def complete(
        self, plan: Plan, states: Sequence[SiteState], request: Request, recorders: Recorders
    ) -> Plan:
        """A plan that was made without the runtime, with the addresses that it has now."""
        bindings = _bindings(self._target, [state.site for state in states], request, recorders)
        if bindings is None:
            raise ValueError("the runtime was not told of the markers")
        return complete(plan, bindings)

    def forget(self) -> None:
        """Objects came or went: what was confirmed of an address says nothing any more."""
        self._confirmed.clear()

    def _confirm(self, lots: Sequence[Lot]) -> None:
        new = [lot for lot in lots if not self._confirmed.issuperset(lot.addresses)]
        if new:
            confirm(self._target.memory.read, new)
            self._confirmed.update(*(lot.addresses for lot in new))

    def refuse_shared(self, plan: Plan) -> None:
        """Raise Refused for a write into a shared mapping, which would change the file for
        everybody."""
        if not plan.edits:
            return
        addresses = addresses_of(plan.edits)
        for mapping in self._target.seen.maps:
            if not mapping.shared or not _any_between(addresses, mapping.start, mapping.end):
                continue
            for edit in plan.edits:
                if mapping.start <= edit.address < mapping.end and edit.old != edit.new:
                    raise Refused(
                        f"{edit.address:#x} is in a shared mapping of {mapping.path}: "
                        "writing there would change the file",
                        reason=Reason.SHARED_CODE,
                    )


def _any_between(places: Sequence[int], low: int, high: int) -> bool:
    """Whether one of these places, which are in order, is there."""
    return bisect_left(places, low) < bisect_left(places, high)


def _looked_at_once(carry: Carry) -> Carry:
    """What has to be done for entries, which is looked at once for the same states: before the
    plan, in it and behind it."""
    known: list[tuple[Sequence[SiteState], Carried]] = []

    def carried(states: Sequence[SiteState]) -> Carried:
        for before, looked in known:
            if len(before) == len(states) and all(map(is_, before, states)):
                return looked
        known.append((tuple(states), carry(states)))
        return known[-1][1]

    return carried


def _closed(state: SiteState, by: Form) -> SiteState:
    """The state of a foreign site, which is alone in its lot, with the reason against opening it
    that another form has."""
    form = state.site.form._replace(closed=by.closed, reason=by.reason)
    site = state.site._replace(form=form)
    return state._replace(site=site, alike=None)


def _has_jump(state: SiteState) -> bool:
    """Whether a site is opened by something else than a breakpoint, if nobody asks for one."""
    chosen = state.code_mode or next(iter(state.site.form.ways), None)
    return chosen is not Mode.INT3


def _is_closed(state: SiteState) -> bool:
    """Whether it is left out, whatever its code is."""
    return bool(state.site.form.closed)


def _bindings(
    target: Target, sites: Sequence[Site], request: Request, recorders: Recorders | None
) -> Bindings | None:
    """The new content of each slot. None where the runtime does not know a marker, or where its
    version is not ours: then we register no markers with it."""
    if recorders is None or not recorders.arena.is_current:
        return None
    described = list(one_format(sites))
    bindings: Bindings = {}
    for preserving in (True, False):
        alike = [site for site in described if site.body.preserving is preserving]
        if not alike:
            continue
        known = recorders.find_many([site.signature for site in alike], request.probe)
        markers = [marker for marker in known if marker is not None]
        if len(markers) < len(known):
            return None
        probes = recorders.probes(markers, request.probe, preserving=preserving)
        adapter = recorders.adapter(request.probe, preserving=preserving)
        bindings |= {
            site.slot: Binding(
                probe,
                recorders.arena.markers.address(marker),
                adapter,
                _takes(target, site, request, probe),
            )
            for site, marker, probe in zip(alike, markers, probes, strict=True)
        }
    return bindings


def _takes(target: Target, site: Site, request: Request, probe: RemoteAddress) -> int:
    """What the probe of an exit takes of what the entry keeps (MJ_SLOT_TAKES)."""
    if site.form.name != RETURN:
        return 0
    from markerjit.session.carrying import needs_entry

    if not needs_entry(target, site, request):
        return probe
    return probe + TAKES_TIME if takes_time(request.probe) else 0


def one_format(sites: Sequence[Site]) -> Iterator[Site]:
    """One site for each slot that one format describes: a plan leaves out the others."""
    clashing = clashing_slots(sites)
    return (site for site in by_slot(sites) if site.slot not in clashing)
