"""Stubs in which no thread may be when a site is opened.

A site can be closed while a thread is in its stub, and the thread can be kept from running for any
time. It comes back behind the instructions that the stub has copies of. Another site may have been
opened meanwhile whose jump has this place between its bytes. So such a jump is only written when no
thread is in the stub, and no signal handler returns to one. Both are asked as they are for the
bytes of a jump itself (native/src/stop/spans.c): the plan has edits of the stub that change
nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from markerjit.errors import Reason
from markerjit.model import Edit, Mode, RemoteAddress, Site
from markerjit.patch.inside import with_nobody_inside
from markerjit.patch.plan import Plan, Refusal
from markerjit.patch.switchable import SiteState
from markerjit.probes.before import BEFORE_STUB
from markerjit.probes.stub import LARGEST
from markerjit.session.target import Target


def with_stubs_empty(target: Target, plan: Plan, states: Sequence[SiteState]) -> Plan | Refusal:
    """A plan that opens sites with these states, among them entries that it carries: applied only
    when no thread is in a stub from which it would come back between the bytes of a jump that the
    plan writes."""
    shared = target.sharing()
    jumps = {head.address for head in plan.heads if head.mode is Mode.JUMP}
    stubs = {
        other.body.entry: other
        for state in states
        if state.code_mode is None and state.site.address in jumps
        for other in shared.get(state.site.address, ())
        if comes_back_inside(other, state.site)
    }
    if not stubs:
        return plan
    if not plan.strategy.stops:
        other = next(iter(stubs.values()))
        return Refusal(
            Reason.QUIESCENCE,
            f"a thread may still be in the stub of {other.marker}, which is off, and would come "
            f"back between the bytes of a jump; {plan.strategy.name} cannot see that, so use "
            "--quiesce stop",
        )
    edits = [edit for other in stubs.values() for edit in _unchanged(target, other)]
    return plan._replace(edits=(*edits, *plan.edits))


def comes_back_inside(other: Site, site: Site) -> bool:
    """Whether a thread in the stub of another site goes on behind the first of the bytes that
    opening this one changes, and before their end."""
    return site.address < other.body.end < site.address + len(site.form.head)


def _unchanged(target: Target, site: Site) -> Iterator[Edit]:
    """All of a site's stub, from the last byte of its mark on. The end is not written down: there
    are no more bytes than a stub can take, and none of the next mark."""
    seen, entry = target.seen, site.body.entry
    ends = [entry + LARGEST]
    ends += [end for start, end in seen.probes.islands if start <= entry < end]
    ends += [other.body.entry - BEFORE_STUB for other in seen.opened if other.body.entry > entry]
    first = RemoteAddress(entry - 1)
    code = target.memory.read(first, min(ends) - first)
    return with_nobody_inside(first, code, f"{site.marker}: the stub, in which no thread is")
