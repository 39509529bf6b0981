"""Which sites a plan may touch: the state of a site, and the reasons not to switch it.

A marker that cannot be switched, whatever is asked for, is left out of a plan and named:

    a direct site                always calls its probe
    a probe of the program's     it was set with marker_set_probe, and only the program can take it
                                 away (the Kernel Markers refused with EBUSY)
    code in a shared mapping     a write would change the file for everybody
    two formats for one slot     its records could not be decoded; such a marker is never on
    a closed site                nobody prepared it, and no way to open it is safe
    altered code                 it is not what the note says. Left out of `off` only: a user
                                 who switches all markers on wants to know before

A marker is switched on at all its sites or at none. It is switched off at every site where that is
possible.

A plan may also have to open and close entries of functions that are carried for their exits; the
value that says which is here, and what they are for in carried.py.

What this does not do: judge modes, strategies and probes. A site that does not fit them is refused,
since another request may be possible (plan.py).
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Sequence

from markerjit.errors import Reason, UnexpectedBytes
from markerjit.model import Change, Mode, RemoteAddress, Signature, Site
from markerjit.sites.lots import Lot, Lots
from markerjit.sites.names import written_name
from markerjit.tuples import NamedTuple


class SiteState(NamedTuple):
    """A site as it was found, or several that are alike and were found alike: how its code is
    switched, what its slot holds, and the bytes of its head (empty where the slot decides, or where
    the head was not read).

    problem    what is wrong with its code: then it is in no mode, and no plan may change it
    is_shared  its code is in a shared mapping: writing there would change the file
    adapter    what its slot has for probes that are C functions; 0 where it has no such word
    raised     the count in its semaphore; 0 without one
    hole       what its hole holds; b"" without one
    alike      all that were found so, of which `site` is the first; None where it is the only one
    token      of a function's entry: what its arguments are kept by, 0 while they are not
    stash      of such an entry: where they are kept
    unmatched  of an exit: returns that gave no event, since their entries were not seen
    takes      of an exit: what its probe takes of what the entry keeps (MJ_SLOT_TAKES)
    """

    site: Site
    code_mode: Mode | None
    probe: RemoteAddress
    data: RemoteAddress
    head: bytes = b""
    problem: UnexpectedBytes | None = None
    is_shared: bool = False
    adapter: RemoteAddress = RemoteAddress(0)
    raised: int = 0
    hole: bytes = b""
    alike: Lot | None = None
    token: int = 0
    stash: int = 0
    unmatched: int = 0
    takes: int = 0

    @property
    def lot(self) -> Lot:
        """The sites that were found in this state."""
        return self.alike or Lot.of(self.site)

    @property
    def needs(self) -> bool:
        """Whether the event of an exit that is on needs what the entry keeps."""
        return bool(self.probe) and self.takes != self.probe

    @property
    def mode(self) -> Mode | None:
        """How the site is on, None when it is off. An entry that is open for exits only is off."""
        form = self.site.form
        if self.token and self.probe == self.site.body.idle:
            return None
        if not form.head and form.is_decided_by_slot:
            return self.site.form.modes[0] if self.probe != self.site.body.idle else None
        return self.code_mode


class LeftOut(NamedTuple):
    """A marker that matches, and that a plan leaves as it is: why, and a sentence that names it.

    lasts  the same request leaves it out again as long as nothing else is mapped in the process,
           and none of its sites gets a stub by another request. Not so of what the program, or
           another tool, may take back at any moment: a probe of the program's, altered code, a
           signal that is blocked; nor of what depends on which other sites are on
    """

    marker: str
    reason: Reason
    sentence: str
    lasts: bool = False


class _Why(NamedTuple):
    """The fields of a LeftOut behind its marker."""

    reason: Reason
    sentence: str
    lasts: bool = False


def to_be_opened(
    states: Sequence[SiteState], ours: Container[int]
) -> tuple[list[SiteState], tuple[LeftOut, ...]]:
    """Sites of markers that can be switched on, and the other markers. `ours` has the addresses of
    our probes."""
    clashing = clashing_slots([state.site for state in states])
    reasons: dict[str, _Why] = {}
    for state in states:
        reason: _Why | None
        if clashing and state.site.slot in clashing:
            reason = _two_formats(state.site)
        else:
            reason = _reason_against(state, ours)
        if reason:
            reasons.setdefault(state.site.marker, reason)
    if not reasons:
        return list(states), ()
    return [state for state in states if state.site.marker not in reasons], _left_out(reasons)


def to_be_closed(
    states: Sequence[SiteState], ours: Container[int]
) -> tuple[list[SiteState], tuple[LeftOut, ...]]:
    """Sites that can be switched off, and the markers of the others. A closed site is off."""
    reasons: dict[str, _Why] = {}
    switchable = []
    for state in states:
        if state.site.form.closed:
            continue
        problem = state.problem
        reason = _Why(problem.reason, problem.fact) if problem else _reason_against(state, ours)
        if reason:
            reasons.setdefault(state.site.marker, reason)
        else:
            switchable.append(state)
    return switchable, _left_out(reasons)


def _left_out(reasons: dict[str, _Why]) -> tuple[LeftOut, ...]:
    return tuple(LeftOut(marker, *why) for marker, why in reasons.items())


def reason_against_closed(site: Site) -> _Why:
    """The reason why a site that has no way now may not be switched, and a sentence."""
    form, name = site.form, written_name(site.marker)
    return _Why(form.reason, f"{name} ({site.source}) {form.closed}", form.lasts)


def _reason_against(state: SiteState, ours: Container[int]) -> _Why | None:
    """The reason why no request may switch this site."""
    site, probe = state.site, state.probe
    if site.form.closed:
        return reason_against_closed(site)
    if not site.form.ways:
        always = (
            f"{site.marker} is compiled as {site.kind} ({site.source}): it always calls its probe "
            "and cannot be switched"
        )
        return _Why(Reason.ALWAYS_ON, always, lasts=True)
    if probe != site.body.idle and probe not in ours:
        taken = (
            f"{site.marker} has a probe of the program itself at {probe:#x}; "
            "only the program can take that away (marker_disable_probe)"
        )
        return _Why(Reason.PROGRAMS_PROBE, taken)
    if state.is_shared:
        shared = (
            f"{written_name(site.marker)} ({site.address:#x}) is in a shared mapping of "
            f"{site.object.path}: writing there would change the file"
        )
        return _Why(Reason.SHARED_CODE, shared, lasts=True)
    return None


def clashing_slots(sites: Iterable[Site]) -> set[RemoteAddress]:
    """Slots that sites with different formats or types share: they cannot be recorded."""
    described: dict[RemoteAddress, Signature] = {}
    clashing = set()
    for site in (lot.first for lot in sites.lots) if isinstance(sites, Lots) else sites:
        slot, signature = site.body.slot, site.signature
        first = described.setdefault(slot, signature)
        if first is signature or not slot:  # the sites of a marker share theirs
            continue
        if (first.format, first.args) != (signature.format, signature.args):
            clashing.add(slot)
    return clashing


def _two_formats(site: Site) -> _Why:
    two = (
        f"{site.marker} has sites with different formats or types in one object "
        f"({site.source}); give one of them another name"
    )
    return _Why(Reason.TWO_FORMATS, two, lasts=True)


# ---- entries that are open for exits (carried.py) ------------------------------------------------


class Carried(NamedTuple):
    """What a switch has to do for entries that exits need.

    opened  entries that are to be open, and `closed` those that nobody needs any more
    stays   the addresses of entries that are switched off, and have to stay open
    words   changes of words of slots
    token   the last token among those; 0 where there is none
    """

    opened: tuple[SiteState, ...] = ()
    closed: tuple[SiteState, ...] = ()
    stays: frozenset[RemoteAddress] = frozenset()
    words: tuple[Change, ...] = ()
    token: int = 0


NOTHING = Carried()

Carry = Callable[[Sequence[SiteState]], Carried]
"""What a switch of these sites has to do for entries."""


def nothing_carried(states: Sequence[SiteState]) -> Carried:
    """The value for sites none of which is an exit."""
    return NOTHING
