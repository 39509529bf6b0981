"""A switch that is ready to be made again: the packed plan, with everything that it depends on.

A plan is made from what was read under the target's lock, and its edits name the bytes that they
change. To be used again without reading and planning, it must name the other bytes, too: the rest
of each head, and the words of each slot. They become edits that change nothing, so the native
comparison notices any other state, no matter which process made it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from markerjit.arena.markers import Switched
from markerjit.arena.pack import pack
from markerjit.model import Edit, Mode, RemoteAddress
from markerjit.patch.plan import Plan
from markerjit.patch.slots import SLOT_ADAPTER, SLOT_DATA, SLOT_PROBE, SLOT_TAKES, SLOT_TOKEN
from markerjit.patch.switchable import SiteState
from markerjit.tuples import NamedTuple
from markerjit.x86.forms import FUNCTION, RETURN


class Prepared(NamedTuple):
    """A plan, with edits for the state that it depends on.

    packed    its edits as the native part takes them, and `changes` how many of them change
              something
    mapped    the lines of /proc/PID/maps that must not have changed
    switched  what becomes of the entries of the markers
    planted   breakpoints that it finds at sites, and the bodies that they lead to. They must still
              be ours; no byte shows that, so it is checked before
    """

    plan: Plan
    packed: bytearray
    changes: int
    mapped: bytes
    switched: Mapping[int, Switched]
    planted: tuple[tuple[RemoteAddress, RemoteAddress], ...]


def prepare(
    plan: Plan, states: Sequence[SiteState], mapped: bytes, switched: Mapping[int, Switched]
) -> Prepared | None:
    """Make it from the plan that was applied and the states that the plan was made from. None for a
    plan that cannot be repeated because it left some of the sites as they were, and on."""
    steps: dict[int, int] = {}
    for edit in plan.edits:
        for place in range(edit.address, edit.address + len(edit.old)):
            steps.setdefault(place, edit.step)
    guards: dict[int, Edit] = {}
    for guard in _guards(plan, states, steps):
        if guard is None:
            return None
        guards[guard.address] = guard
    # A place may have several edits, one after the other: their order is kept.
    edits = sorted((*guards.values(), *plan.edits), key=lambda edit: (edit.step, edit.address))
    whole = plan._replace(edits=tuple(edits))
    planted = tuple(
        place
        for state in states
        if state.code_mode is Mode.INT3
        for place in zip(state.lot.addresses, state.lot.entries, strict=True)
    )
    return Prepared(whole, pack(edits), whole.changes, mapped, switched, planted)


def _guards(
    plan: Plan, states: Sequence[SiteState], steps: Mapping[int, int]
) -> Iterator[Edit | None]:
    """Edits for what the plan does not change; a None for a site that is on and of which it changes
    nothing. Data is a step of its own, the last: among code it would keep that from being written
    by runs."""
    last = plan.edits[-1].step + 1
    of_code = next((edit.step for edit in plan.edits if edit.code), last)
    for state, address in _each(states):
        site = state.site
        words = dict(_words(state))
        head = range(address, address + len(state.head))
        changed = [steps[place] for place in (*head, *words) if place in steps]
        in_head = [steps[place] for place in head if place in steps]
        if not in_head and _stays_off(plan, state, address):
            in_head = [of_code]
        elif not changed or (state.head and not in_head):
            yield None
            continue
        for index, place in enumerate(head):
            if place not in steps:
                byte = state.head[index : index + 1]
                yield _guard(place, byte, site.marker, code=True, step=in_head[0])
        for place, word in words.items():
            if place not in steps:
                yield _guard(place, word.to_bytes(8, "little"), site.marker, code=False, step=last)


def _stays_off(plan: Plan, state: SiteState, address: RemoteAddress) -> bool:
    """Whether a site is off before a plan and after it, and its whole head was read. That of a
    function some of whose exits cannot be opened is."""
    is_off = not (state.code_mode or state.mode) and plan.modes.get(address, Mode.JUMP) is None
    return is_off and len(state.head) == len(state.site.form.head)


def _each(states: Sequence[SiteState]) -> Iterator[tuple[SiteState, RemoteAddress]]:
    """The states of all sites, with their addresses."""
    for state in states:
        for address in state.lot.addresses:
            yield state, address


def _words(state: SiteState) -> Iterator[tuple[int, int]]:
    """The words of its slot by their addresses."""
    site = state.site
    if site.slot:
        yield site.slot + SLOT_PROBE, state.probe
        yield site.slot + SLOT_DATA, state.data
        if site.body.preserving:
            yield site.slot + SLOT_ADAPTER, state.adapter
        if site.form.name == FUNCTION:  # else the entry might be closed that exits need
            yield site.slot + SLOT_TOKEN, state.token
        if site.form.name == RETURN:  # else it might need an entry that is not opened
            yield site.slot + SLOT_TAKES, state.takes


def _guard(place: int, expected: bytes, marker: str, *, code: bool, step: int) -> Edit:
    return Edit(RemoteAddress(place), expected, expected, f"{marker}: as it was", code, step)
