"""Plans: what would be written where, in which order, and why that is safe. Nothing is touched.

A plan is made from what was seen at the sites, and is checked again when it is applied: every edit
names the bytes that it expects. Switching one site is:

    on    slot.data, slot.probe, then the one byte of code that opens the site
    off   the byte of code back, then slot.probe

so no thread can enter a body whose probe is not there, and one that is inside finds either the
probe or NULL. An edit of code is one byte and leaves a whole instruction, in every mode: there is
none that a thread could see half of. That byte is still written while all threads are stopped (or,
in our own process, followed by a fence on every core), because the processor manuals promise
nothing for an instruction that another core changes while it is executed: Intel SDM volume 3,
"Handling Self- and Cross-Modifying Code".
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from markerjit.model import Kind, Mode, RemoteAddress, Site
from markerjit.x86.templates import TEMPLATES, modes

SLOT_PROBE = 0
SLOT_DATA = 8
SLOT_SIZE = 16


class Edit(NamedTuple):
    """Bytes to replace. `what` is for people; `code` says whether threads execute them.

    `new` is empty while it is not known: in a plan made before the runtime is in the target.
    """

    address: RemoteAddress
    old: bytes
    new: bytes
    what: str
    code: bool


class Plan(NamedTuple):
    """Edits in the order in which they are written; taken back in reverse if one fails.

    traps          breakpoint addresses and the bodies that they lead to, which the runtime has to
                   know before the first breakpoint is written
    needs_runtime  the runtime is not in the target, or was not told of the markers: this plan is
                   for looking at
    """

    title: str
    edits: tuple[Edit, ...]
    traps: tuple[tuple[RemoteAddress, RemoteAddress], ...] = ()
    needs_runtime: bool = False

    def steps(self, quiescence: str) -> Iterator[str]:
        """What applying the plan does, a line a step, in order."""
        if self.needs_runtime:
            yield (
                "put the runtime into the process, if it is not there (a borrowed thread makes and "
                "maps a memfd), and tell it of the markers"
            )
        if self.traps:
            leads = counted(len(self.traps), "breakpoint")
            yield f"tell the runtime's SIGTRAP handler where to go from {leads}"
        if not self.edits:
            yield "nothing to write: it is so already"
            return
        yield f"quiesce: {quiescence}"
        places = counted(len(self.edits), "place")
        yield f"compare the old bytes at {places}; give up if any differs"
        for edit in self.edits:
            new = edit.new.hex(" ") or "its address in the runtime"
            yield f"write {edit.address:#x}: {edit.old.hex(' ')} -> {new}  ({edit.what})"
        yield "read everything back; if anything differs, put the old bytes back in reverse order"
        yield "resume"


def counted(number: int, noun: str) -> str:
    """`1 site`, `2 sites`."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


class Refusal(NamedTuple):
    """No, why, and whether the same may work later."""

    reason: str
    try_again: bool = False


class Binding(NamedTuple):
    """What a marker's slot is to hold: the probe's address, and the address of its data."""

    probe: RemoteAddress
    data: RemoteAddress


class SiteState(NamedTuple):
    """A site as it was found: how its code is switched, and what its slot holds."""

    site: Site
    code_mode: Mode | None
    probe: RemoteAddress
    data: RemoteAddress

    @property
    def mode(self) -> Mode | None:
        """How the site is on, None when it is off."""
        if self.site.kind is Kind.POINTER:
            return Mode.POINTER if self.probe else None
        if self.site.kind is Kind.SENTINEL:
            return Mode.SENTINEL if self.probe != self.site.body else None
        return self.code_mode

    @property
    def idle_probe(self) -> RemoteAddress:
        """What the slot's probe is while nothing is on."""
        return self.site.body if self.site.kind is Kind.SENTINEL else RemoteAddress(0)


def plan_on(
    states: Sequence[SiteState],
    bindings: Mapping[RemoteAddress, Binding] | None,
    *,
    mode: Mode | None = None,
    ours: frozenset[int] = frozenset(),
) -> Plan | Refusal:
    """Switch all sites on, in `mode`, or as each is on already, or as it was made for.

    `bindings` say what each slot is to hold; without them the plan is for looking at. `ours` are
    the addresses of our probes: a slot with another one belongs to the program itself
    (marker_set_probe) and is refused, as the original refused it with EBUSY.
    """
    edits: list[Edit] = []
    traps: list[tuple[RemoteAddress, RemoteAddress]] = []
    for state in states:
        site = state.site
        chosen = _choose_mode(site, mode or state.code_mode)
        if isinstance(chosen, Refusal):
            return chosen
        if state.probe not in (*ours, state.idle_probe):
            return _foreign_probe(state)
        if state.code_mode not in (None, chosen):
            # From one mode to another two bytes would change, with a state between that is neither.
            return Refusal(f"{site.marker} is on by {state.code_mode}; switch it off first")
        if chosen is Mode.INT3:
            traps.append((site.address, site.body))
        edits += _code_edits(state, chosen)
    slots = _slot_edits(states, bindings)
    return Plan(_title("on", states), (*slots, *edits), tuple(traps), bindings is None)


def plan_off(states: Sequence[SiteState], *, ours: frozenset[int] = frozenset()) -> Plan | Refusal:
    """Switch all sites off. The slots keep their data, which a thread inside may still read."""
    edits: list[Edit] = []
    for state in states:
        if state.site.kind is Kind.DIRECT:
            return _always_on(state.site)
        if state.probe not in (*ours, state.idle_probe):
            return _foreign_probe(state)
        edits += _code_edits(state, None)
    for state in _by_slot(states):
        if state.probe != state.idle_probe:
            what = f"{state.site.marker}: slot.probe, none"
            edits.append(_word_edit(state, SLOT_PROBE, state.probe, state.idle_probe, what))
    return Plan(_title("off", states), tuple(edits))


def _title(how: str, states: Sequence[SiteState]) -> str:
    markers = counted(len({state.site.marker for state in states}), "marker")
    return f"switch {how} {markers} at {counted(len(states), 'site')}"


def _choose_mode(site: Site, wanted: Mode | None) -> Mode | Refusal:
    possible = modes(site.kind)
    if not possible:
        return _always_on(site)
    if wanted is None:
        return possible[0]
    if wanted in possible:
        return wanted
    names = " or ".join(map(str, possible))
    return Refusal(
        f"{site.marker} is compiled as {site.kind} ({site.source}), which can be switched with "
        f"{names}, not with {wanted}"
    )


def _foreign_probe(state: SiteState) -> Refusal:
    return Refusal(
        f"{state.site.marker} has a probe of the program itself at {state.probe:#x}; "
        "only the program can take that away (marker_disable_probe)"
    )


def _always_on(site: Site) -> Refusal:
    return Refusal(
        f"{site.marker} is compiled as direct ({site.source}): it always calls its probe and "
        "cannot be switched"
    )


def _code_edits(state: SiteState, wanted: Mode | None) -> Iterator[Edit]:
    """An edit for each byte of the head that has to change: never more than one."""
    site = state.site
    template = TEMPLATES.get(site.kind)
    if template is None:
        return
    old = template.active[state.code_mode] if state.code_mode else template.dormant
    new = template.active[wanted] if wanted else template.dormant
    what = f"{site.marker}: {site.kind} site {wanted or 'off'}"
    for index, (before, after) in enumerate(zip(old, new, strict=True)):
        if before != after:
            address = RemoteAddress(site.address + index)
            yield Edit(address, bytes([before]), bytes([after]), what, code=True)


def _slot_edits(
    states: Sequence[SiteState], bindings: Mapping[RemoteAddress, Binding] | None
) -> Iterator[Edit]:
    for state in _by_slot(states):
        new = bindings[state.site.slot] if bindings is not None else None
        name = state.site.marker
        if new is None or state.data != new.data:
            yield _word_edit(state, SLOT_DATA, state.data, new and new.data, f"{name}: slot.data")
        if new is None or state.probe != new.probe:
            yield _word_edit(
                state, SLOT_PROBE, state.probe, new and new.probe, f"{name}: slot.probe"
            )


def _by_slot(states: Sequence[SiteState]) -> Iterator[SiteState]:
    """One state for each slot: the sites of a marker in one object share theirs."""
    seen: set[int] = set()
    for state in states:
        if state.site.slot and state.site.slot not in seen:
            seen.add(state.site.slot)
            yield state


def _word_edit(state: SiteState, offset: int, old: int, new: int | None, what: str) -> Edit:
    address = RemoteAddress(state.site.slot + offset)
    new_bytes = b"" if new is None else new.to_bytes(8, "little")
    return Edit(address, old.to_bytes(8, "little"), new_bytes, what, code=False)
