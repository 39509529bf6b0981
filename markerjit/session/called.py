"""Functions whose calls can be followed: open at the entry and at every exit, or not at all.

    1  the entries of a name, and the exits of each function: from the files, before the process's
       turn, since a program of thousands takes a while the first time
    2  in the turn: what stands in the process's code, and whether the arena has room for all
    3  stubs, for functions of which no site is refused

A function that is opened in part would spoil the stacks of its callers. So it is left out with a
kind of reason, which can be counted.

What this does not do: record (calls.py), or decide how a site is opened (spans/).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain

import numpy as np

from markerjit.abi import ISLANDS_SIZE
from markerjit.calls.graph import NEEDS_BREAKPOINT, NotOpened
from markerjit.elf.demangle import demangled
from markerjit.errors import Refused, Unsupported
from markerjit.model import Mode, Site, UsdtSite, new
from markerjit.probes.fast import OF_CALLS
from markerjit.session.exits import Looked, looked_for, opening_at
from markerjit.session.openings import Progress
from markerjit.session.stubs import USUAL_STUB, Ready, looked_at, put_stubs, refuse_own
from markerjit.session.target import Key, Target, key_of
from markerjit.session.turn import Turn
from markerjit.sites import ProbeName
from markerjit.sites.names import PREFIX, NameKind
from markerjit.spans.columns import CLOSED, NUMBERS
from markerjit.spans.exits import Exits, Unbounded
from markerjit.spans.openings import Closed, Opening, Way
from markerjit.tuples import NamedTuple
from markerjit.uncollected import uncollected

_NO_EXIT = "it never returns"
_ONLY_EXIT = "it is nothing but its exit"
_AGAIN = "it jumps back to its own entry"
_REFUSED = "its bytes are needed or changed by others"


class Followed(NamedTuple):
    """A function that may be followed: its entry, and its exits with how each is opened."""

    entry: UsdtSite
    exits: tuple[UsdtSite, ...]
    known: Exits

    @property
    def sites(self) -> tuple[UsdtSite, ...]:
        """All of it."""
        return self.entry, *self.exits


class Planned(NamedTuple):
    """Functions that may be followed, and the others that a name is of.

    looked  the entries of the functions, by their objects, with where these are left
    """

    looked: tuple[Looked, ...]
    not_opened: tuple[NotOpened, ...]

    @property
    def entries(self) -> Iterator[UsdtSite]:
        """Where the functions are entered."""
        return chain.from_iterable(looked.entries for looked in self.looked)

    def functions(self) -> tuple[Followed, ...]:
        """A value for each of them."""
        leavings = chain.from_iterable(looked.leavings() for looked in self.looked)
        return tuple(
            new(Followed, (leaving.entry, leaving.sites, leaving.exits)) for leaving in leavings
        )


def check_name(name: ProbeName) -> None:
    """Raise Unsupported for a name of anything but functions where they are entered."""
    parts = name.parts or (name,)
    if any(part.kind is not NameKind.FUNCTION or part.at_return for part in parts):
        raise Unsupported(
            f"'{name}': calls are those of functions, by their names, such as 'func:kv_*'; entry "
            "and exits are looked at in any case"
        )


@uncollected()
def plan_functions(
    target: Target, name: ProbeName, *, breakpoints: bool, progress: Progress
) -> Planned:
    """The functions of a name. Raises UnknownMarker, Unsupported, BadFile."""
    progress("reading symbols", 0)
    entries = target.unprepared(name)
    planned: list[Looked] = []
    not_opened: list[NotOpened] = []
    read, maps = target.memory.read, target.seen.maps
    for looked in looked_for(target.pid, read, maps, entries, progress):
        kinds = _against(looked, breakpoints=breakpoints)
        followed = [entry for entry, kind in zip(looked.entries, kinds, strict=True) if not kind]
        planned.append(looked._replace(entries=followed))
        pairs = zip(looked.entries, kinds, strict=True)
        not_opened += [_not_opened(entry, kind) for entry, kind in pairs if kind]
    return Planned(tuple(planned), tuple(not_opened))


def _not_opened(entry: UsdtSite, kind: str, reason: str = "") -> NotOpened:
    return NotOpened(symbol_of(entry.signature.name), kind, reason or kind)


def symbol_of(event: str) -> str:
    """The function of an event at its entry."""
    return event.removeprefix(PREFIX)


def _against(looked: Looked, *, breakpoints: bool) -> list[str]:
    """Why each function cannot be followed, as far as its file says it; "" where it can."""
    exits = looked.exits
    if exits is None:
        return [looked.problem] * len(looked.entries)
    left = exits.left(entry.place.offset for entry in looked.entries)
    openings, reasons = exits.openings, np.full(len(looked.entries), "", object)
    # What is written later is said first.
    if not breakpoints:
        trap = openings.ways == NUMBERS[Way.INT3]
        reasons[trap[left.entries]] = NEEDS_BREAKPOINT
        reasons[left.functions[trap[left.exits] | exits.overlap(left)]] = NEEDS_BREAKPOINT
    reasons[left.functions[exits.displaces(left)]] = _ONLY_EXIT
    closed = openings.ways == CLOSED
    are_closed = np.flatnonzero(closed[left.exits])[::-1]  # so that the first one is said
    reasons[left.functions[are_closed]] = openings.reasons(left.exits[are_closed], last=True)
    is_closed = closed[left.entries]
    reasons[is_closed] = openings.reasons(left.entries[is_closed], last=True)
    reasons[left.again] = _AGAIN
    reasons[np.bincount(left.functions, minlength=len(reasons)) == 0] = _NO_EXIT
    for number, unbounded in enumerate(Unbounded):
        reasons[left.unbounded == number] = str(unbounded)
    against: list[str] = reasons.tolist()
    return against


# ---- in the turn -------------------------------------------------------------------------------


class Chosen(NamedTuple):
    """Sites that can be switched on together, and the functions that are left out."""

    sites: tuple[Site, ...]
    not_opened: tuple[NotOpened, ...]


def make_ready(
    turn: Turn,
    planned: Planned,
    need_arena: Callable[[], object],
    *,
    breakpoints: bool,
    progress: Progress,
) -> Chosen:
    """Have stubs for all functions of a plan that can have them.

    Raises Refused where none can, or where the arena has no room for all: then nothing was done.
    """
    target = turn.target
    refuse_own(target)
    progress("looking at code", 0)
    functions, not_opened = planned.functions(), list(planned.not_opened)
    sites = [site for function in functions for site in function.sites]
    openings = {site: _opening(function, site) for function in functions for site in function.sites}
    looked = looked_at(target, sites, openings, breakpoints=True) if sites else ([], [])
    ready, closed = looked  # what needs a breakpoint gets no stub unless one is wanted
    by_key = {key_of(each.site): each for each in ready}
    reasons = {key_of(site): site.form.closed for site in closed}
    opened = {key_of(site): site for site in target.seen.opened}

    def judge(function: Followed) -> tuple[str, str] | None:
        for site in function.sites:
            reason = reasons.get(key_of(site))
            if reason:
                return _REFUSED, reason
            prepared, known = by_key.get(key_of(site)), opened.get(key_of(site))
            by_jump = _is_by_jump(prepared, known)
            if not by_jump and not breakpoints:
                return NEEDS_BREAKPOINT, NEEDS_BREAKPOINT
        return None

    functions = _kept(functions, judge, not_opened)
    wanted_keys = {key_of(site) for function in functions for site in function.sites}
    ready = [each for each in ready if key_of(each.site) in wanted_keys]
    _refuse_none(functions, not_opened)
    _check_room(target, ready)
    put_stubs(turn, ready, [], need_arena, progress, OF_CALLS)
    opened = {key_of(site): site for site in target.seen.opened}
    altered = _altered(target, [opened[key] for key in wanted_keys if key in opened])

    def judge_again(function: Followed) -> tuple[str, str] | None:
        for site in function.sites:
            if key_of(site) in altered:
                return _REFUSED, altered[key_of(site)]
            if key_of(site) not in opened:
                return _REFUSED, "cannot be opened: its instructions cannot be moved"
        return None

    functions = _kept(functions, judge_again, not_opened)
    _refuse_none(functions, not_opened)
    keys = {key_of(site) for function in functions for site in function.sites}
    return Chosen(
        tuple(site for site in target.seen.opened if key_of(site) in keys),
        tuple(not_opened),
    )


def _opening(function: Followed, site: UsdtSite) -> Opening | Closed | str:
    if site.leaves is None:
        return function.known.entry
    return opening_at(function.known, site)


def _is_by_jump(ready: Ready | None, known: Site | None) -> bool:
    if ready is not None:  # perhaps in the place of a stub for other arguments
        return len(ready.head) > 1
    return known is not None and known.form.modes[0] is not Mode.INT3


def _kept(
    functions: Sequence[Followed],
    judge: Callable[[Followed], tuple[str, str] | None],
    not_opened: list[NotOpened],
) -> tuple[Followed, ...]:
    """The functions against which there is nothing. Functions of one name have one slot, so what is
    against one of them is against all."""
    of_name: defaultdict[str, list[Followed]] = defaultdict(list)
    for function in functions:
        of_name[function.entry.signature.name].append(function)
    kept: list[Followed] = []
    for alike in of_name.values():
        answers = (judge(function) for function in alike)
        against = next((answer for answer in answers if answer), None)
        if against is None:
            kept += alike
        else:
            not_opened += [_not_opened(function.entry, *against) for function in alike]
    return tuple(kept)


def _altered(target: Target, sites: Iterable[Site]) -> dict[Key, str]:
    """Sites whose code another tool has changed, and a sentence for each."""
    states = target.states(list(sites))
    return {
        key_of(site): str(state.problem)
        for state in states if state.problem
        for site in state.lot.sites()
    }  # fmt: skip


def _refuse_none(functions: Sequence[Followed], not_opened: Sequence[NotOpened]) -> None:
    """Raise Refused where no function is left."""
    if functions:
        return
    first = not_opened[0]
    hint = "; --breakpoints takes it" if first.kind == NEEDS_BREAKPOINT else ""
    more = f" ({len(not_opened)} functions match, and none can be followed)"
    name = demangled(first.name)
    raise Refused(f"{name}: {first.reason}{hint}{more if len(not_opened) > 1 else ''}")


def _check_room(target: Target, ready: Sequence[Ready]) -> None:
    """Raise Refused where the runtime has no room for the stubs of these sites. Recorders need no
    room: where there is none for another one, the runtime's own code records."""
    arena = target.seen.arena
    room = arena.islands.room if arena else ISLANDS_SIZE
    size = len(ready) * USUAL_STUB
    if size > room:
        functions = len({each.site.signature.name for each in ready if each.site.leaves is None})
        fitting = functions * room // size
        raise Refused(
            f"the runtime has {room >> 10} KiB of room for stubs in process {target.pid}, and "
            f"{functions} functions need some {size >> 10}: name fewer, about {fitting} at a time, "
            "by patterns, or leave some out by '!pattern'"
        )
