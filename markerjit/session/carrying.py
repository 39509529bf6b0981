"""Which entries of functions have to be open for a switch of their exits, and which not any more.

An event of an exit needs its entry where it has the time since then, or arguments, or where
something is asked of those. A count, or a selection of `ret` alone, needs nothing of it.

What this does not do: open or close anything (patch/plan.py).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence, Set
from functools import partial

from markerjit.arena.stash import stash_of
from markerjit.elf import parse_format
from markerjit.model import Change, Duration, Kept, RemoteAddress, Site
from markerjit.patch.carried import keep
from markerjit.patch.request import Count, HeapStep, InC, Pair, Probe, Record, Request
from markerjit.patch.switchable import NOTHING, Carried, Carry, SiteState
from markerjit.session.target import Key, Target, key_of
from markerjit.x86.forms import FUNCTION, RETURN

_NAME = re.compile(r"[^\W\d]\w*")
_CARRIES = (FUNCTION, RETURN)
_TOKENS = 1 << 63
"""More than will ever be given. Where a program has written a larger number over ours, they begin
anew."""


def carry_for(target: Target, request: Request) -> Carry:
    """What a switch of sites of a process by this request has to do for entries."""
    return partial(_carried, target, request)


def needs_entry(target: Target, site: Site, request: Request) -> bool:
    """Whether events of a site have something of the entry, by a request that switches it on."""
    if _only_counts(request):
        return False
    known = target.recipe_of(site)
    if known is None or known.enters is None:
        return False
    fields = parse_format(site.signature.format, site.signature.args)
    operands = known.recipe.operands
    names = {each.name for each in fields if isinstance(operands[each.arg], Duration | Kept)}
    return bool(names & _names_read(request.probe, names))


def _only_counts(request: Request) -> bool:
    """Whether events are counted, and nothing of them is read."""
    return isinstance(request.probe, Count) and request.probe.question is None


def _keep_nothing(target: Target) -> bool:
    """Whether no entry keeps anything: there is no memory for it."""
    seen = target.seen
    return all(arena.is_current and not stash_of(arena, seen.maps) for arena in seen.arenas.open)


def _names_read(probe: Probe, names: Set[str]) -> Set[str]:
    """Which of these names a probe reads, or more of them: an entry that is open for nothing does
    no harm."""
    match probe:
        case InC():
            return names
        case Pair(timed=timed) if timed.slower_ns is not None:
            return names  # of slow pairs all fields are kept
        case Pair(timed=timed):
            texts = [timed.by, timed.ends_by or "", timed.where or "", timed.per or "", timed.took]
        case HeapStep(select=select):
            texts = [select]
        case _:
            texts = [probe.question.whole] if probe.question else []
    read = set(_NAME.findall(" ".join(texts)))
    if probe.question and probe.question.select:
        from markerjit.questions.selection import has_all_fields

        if has_all_fields(probe.question.select):
            return names
    if isinstance(probe, Record) and (probe.question is None or probe.question.select is None):
        recorded = probe.options.fields
        read |= names if recorded is None else set(recorded)
    return read


def _carried(target: Target, request: Request, states: Sequence[SiteState]) -> Carried:
    switched = {key_of(state.site): state for state in states if state.site.form.name in _CARRIES}
    needs_none = not request.on or _only_counts(request)
    if not switched or (needs_none and _keep_nothing(target)):
        return NOTHING
    after = {
        key: request.on and needs_entry(target, state.site, request)
        for key, state in switched.items()
    }
    entries: dict[Key, Site] = {}
    for state in switched.values():
        entry = state.site if state.site.form.name == FUNCTION else target.entry_of(state.site)
        if entry is not None:
            entries[key_of(entry)] = entry
    known = _states(target, entries, switched)
    needed: list[SiteState] = []
    others: list[SiteState] = []
    for key, entry in entries.items():
        leavings = map(key_of, target.exits_of(entry))
        is_needed = any(_is_needed_by(leaving, known, after) for leaving in leavings)
        (needed if is_needed else others).append(known[key])
    words, token = _words(target, needed, others)
    off = switched.keys() if not request.on else ()
    return Carried(
        tuple(state for state in needed if key_of(state.site) not in switched),
        tuple(
            state for state in others
            if state.token and state.probe == state.site.body.idle
            and key_of(state.site) not in switched and not state.problem
        ),
        frozenset(state.site.address for state in needed if key_of(state.site) in off),
        tuple(words),
        token,
    )  # fmt: skip


def _words(
    target: Target, needed: Sequence[SiteState], others: Sequence[SiteState]
) -> tuple[list[Change], int]:
    """The tokens that entries get, or lose; and the last one that is new, 0 where none is. Entries
    of one name share a slot. An entry that was closed, or kept elsewhere, gets another token."""
    arena = target.seen.arena
    stash = stash_of(arena, target.seen.maps) if arena else RemoteAddress(0)
    token = first = arena.control.number("stash_tokens") % _TOKENS if arena else 0
    words: list[Change] = []
    by_slot: dict[RemoteAddress, list[SiteState]] = {}
    for state in needed:
        by_slot.setdefault(state.site.slot, []).append(state)
    for states in by_slot.values():
        is_kept = all(each.token and each.code_mode and each.stash == stash for each in states)
        token += not is_kept
        words += keep(states[0], states[0].token if is_kept else token, stash)
    unused = {state.site.slot: state for state in others if state.site.slot not in by_slot}
    for state in unused.values():
        words += keep(state, 0, stash)
    return words, token if token != first else 0


def _states(
    target: Target, entries: Mapping[Key, Site], switched: Mapping[Key, SiteState]
) -> dict[Key, SiteState]:
    """The states of these entries and of all their exits."""
    sites = {key: entry for key, entry in entries.items() if key not in switched}
    for entry in entries.values():
        sites |= {
            key_of(site): site for site in target.exits_of(entry) if key_of(site) not in switched
        }
    states = target.states([*sites.values()])
    return {**{key_of(state.site): state for state in states}, **switched}


def _is_needed_by(leaving: Key, known: Mapping[Key, SiteState], after: Mapping[Key, bool]) -> bool:
    """Whether an exit is on after the switch, and needs its entry."""
    needs = after.get(leaving)
    return bool(known[leaving].mode and known[leaving].needs) if needs is None else needs
