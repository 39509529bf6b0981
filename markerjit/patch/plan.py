"""Plans: what would be written where, in which order, and why that is safe. Nothing is touched.

A plan is made from what was seen at the sites, and is checked again when it is applied: every edit
names the bytes that it expects. Switching one site is:

    on    slot.data and slot.adapter, slot.probe, its hole, the code that opens the site, then its
          semaphore. The words of slots that were never used come before all others, and are written
          before threads are stopped
    off   the semaphore, the code back, its hole, then slot.probe

Both are preceded by the words of slots by which the entry of a function keeps its arguments for the
exits. The entry is opened and closed with these words (carried.py).

So no thread can enter a body whose probe is missing, and a thread that is inside finds either the
probe or NULL. How bytes are changed while threads run is for the protocols
(markerjit/patch/protocol); most changes of code are one byte.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import chain, pairwise, repeat, takewhile
from operator import attrgetter
from types import MappingProxyType
from typing import TYPE_CHECKING, TypeVar, cast

from markerjit.abi import PAGE, PROBE_COUNTED
from markerjit.arena.pack import ADDRESS, NEW, WHAT
from markerjit.arena.patches import Head, PatchKind
from markerjit.errors import Reason, shown
from markerjit.model import Change, Edit, Mode, RemoteAddress, Site, new
from markerjit.patch.protocol import Context, Refusal, is_byte_flip, plan_change
from markerjit.patch.slots import (
    SEMAPHORE_SIZE,
    SLOT_ADAPTER,
    SLOT_DATA,
    SLOT_PROBE,
    SLOT_TAKES,
)
from markerjit.patch.switchable import (
    NOTHING,
    Carry,
    LeftOut,
    SiteState,
    nothing_carried,
    to_be_closed,
    to_be_opened,
)
from markerjit.printable import counted
from markerjit.quiesce.strategies import STOP, Strategy
from markerjit.runs import MANY, Run, Runs, parts_of
from markerjit.sites.lots import Lot, Lots
from markerjit.tuples import NamedTuple
from markerjit.x86.forms import RETURN, reach_of

if TYPE_CHECKING:
    from markerjit.patch.steps import Step

__all__ = [
    "Binding",
    "Edit",
    "LeftOut",
    "Plan",
    "Refusal",
    "SiteState",
    "addresses_of",
    "by_slot",
    "complete",
    "plan_off",
    "plan_on",
]

T = TypeVar("T", bound=tuple[object, ...])
_ADDRESS = attrgetter("address")
_EARLY = attrgetter("early")
_STEP = attrgetter("step")
_PLACE = attrgetter("step", "address")
_SLOT_OF_STATE = attrgetter("site.body.slot")
_MARKER_OF_STATE = attrgetter("site.signature.name")
_CODE_MODE = attrgetter("code_mode")
_SEMAPHORE = attrgetter("site.body.semaphore")
_HOLE = attrgetter("site.body.hole")

_HELD = {SLOT_PROBE: "probe", SLOT_DATA: "data", SLOT_ADAPTER: "adapter", SLOT_TAKES: "takes"}
"""The words of slots, as a state has them."""
_WORD = 8
_MOST_RAISED = (1 << 8 * SEMAPHORE_SIZE) - 1
_HEAD_ONLY = (PatchKind.HEAD, 0, 0)
_HEAD_ADDRESS, _HEAD_BODY = map(Head._fields.index, ("address", "body"))


class Plan(NamedTuple):
    """Edits in the order in which they are written; taken back in reverse if one fails.

    strategy       of quiescence
    traps          breakpoint addresses and the bodies that they lead to, which the runtime has to
                   know before the first breakpoint is written
    needs_runtime  the runtime is not in the target, or was not told of the markers: this plan is
                   for looking at
    untraps        addresses of breakpoints that the plan takes away
    left_out       markers that match and cannot be switched, in the order of their sites
    modes          the mode in which each switched site will be on, by its address; None: off
    heads          the heads that are open afterwards; they are put into the arena's table first
    carries        entries of functions are opened or closed for their exits, or words of those
                   change; `token` is the last one that an entry gets, 0 where none gets one
    """

    title: str
    edits: Sequence[Edit]
    strategy: Strategy = STOP
    traps: tuple[tuple[RemoteAddress, RemoteAddress], ...] = ()
    needs_runtime: bool = False
    untraps: tuple[RemoteAddress, ...] = ()
    left_out: tuple[LeftOut, ...] = ()
    modes: Mapping[RemoteAddress, Mode | None] = MappingProxyType({})
    heads: Sequence[Head] = ()
    carries: bool = False
    token: int = 0

    @property
    def changes(self) -> int:
        """The number of edits that change something; the others are only compared."""
        return sum(
            len(part) * (part.first.old != part.first.new)
            if isinstance(part, Run)
            else sum(edit.old != edit.new for edit in part)
            for part in parts_of(self.edits)
        )

    def steps(self) -> Iterator[Step]:
        """The steps of the plan in order (steps.py)."""
        from markerjit.patch.steps import steps_of  # for those who look at a plan

        return steps_of(
            self.edits, self.strategy,
            heads=len(self.heads), traps=len(self.traps), needs_runtime=self.needs_runtime,
        )  # fmt: skip

    def __repr__(self) -> str:
        edits = f"{counted(len(self.edits), 'edit')}, {counted(self.changes, 'change')}"
        left_out = f", {len(self.left_out)} left out" if self.left_out else ""
        return f"<Plan {shown(self.title)}: {edits}{left_out}>"

    def _repr_html_(self) -> str:
        from markerjit.printable.html import html_table

        rows = (step._repr_cells_() for step in self.steps())
        remarks = [f"left out: {marker.sentence}" for marker in self.left_out]
        return html_table(rows, caption=self.title, remarks=remarks)


def addresses_of(edits: Sequence[Edit]) -> list[int]:
    """The addresses of all edits, in order."""
    addresses: list[int] = []
    for part in parts_of(edits):
        addresses += part.columns[ADDRESS] if isinstance(part, Run) else map(_ADDRESS, part)
    return sorted(addresses)


_NO_COLUMNS: Mapping[int, Sequence[object]] = MappingProxyType({})


class Alike(NamedTuple):
    """A change, and all addresses at which it is to be made, including its own. Only flips of one
    byte have several addresses, and words of slots that were never used: the plan for one address
    is valid for all. These words have columns of what else differs, as a run of edits has it, and
    are in the order of their addresses."""

    change: Change
    addresses: Sequence[RemoteAddress]
    columns: Mapping[int, Sequence[object]] = _NO_COLUMNS


def _alone(change: Change) -> Alike:
    return Alike(change, [change.address])


class Binding(NamedTuple):
    """The content of a marker's slot: the address of the probe, and the address of its data; of the
    adapter through which a preserving body reaches a C function, 0 where it needs none; and of an
    exit what the probe takes of what the entry keeps (MJ_SLOT_TAKES)."""

    probe: RemoteAddress
    data: RemoteAddress
    adapter: RemoteAddress = RemoteAddress(0)
    takes: int = 0


def plan_on(
    states: Sequence[SiteState],
    bindings: Mapping[RemoteAddress, Binding] | None,
    *,
    mode: Mode | None = None,
    ours: Container[int] = (),
    strategy: Strategy = STOP,
    own: bool = False,
    carry: Carry = nothing_carried,
) -> Plan | Refusal:
    """Switch all sites on, in `mode`, or as each is on already, or as it was made for.

    Sites that cannot be switched (switchable.py) are left out, and refused if there are no others.
    An altered site is refused. `bindings` say what each slot is to hold; without them the plan is
    for looking at. `ours` has the addresses of our probes. `own`: it is this process. `carry` says
    which entries the exits among the sites need.
    """
    states, left_out = to_be_opened(states, ours)
    if not states and left_out:
        return Refusal(left_out[0].reason, left_out[0].sentence)
    carried = carry(states)
    every = [*states, *carried.opened]
    traps: list[tuple[RemoteAddress, RemoteAddress]] = []
    modes_after: dict[RemoteAddress, Mode | None] = {}
    heads: list[Head] = []
    many: list[Sequence[Head]] = []
    ways_before: object = None  # of the site before, which most sites are like
    mode_before: Mode | None = None
    chosen: Mode | Refusal = Mode.INT3
    for index, state in enumerate(every):
        site, before, lot = state.site, state.code_mode, state.lot
        form, body = site.form, site.body
        if state.problem:
            return Refusal(state.problem.reason, str(state.problem))
        if form.ways is not ways_before or before is not mode_before:
            wish = mode or before
            if index >= len(states):  # an entry that is carried stays as it is open
                wish = before or (mode if mode in form.ways else None)
            chosen = _choose_mode(site, wish)
            ways_before, mode_before = form.ways, before
        if isinstance(chosen, Refusal):
            return chosen
        modes_after |= dict.fromkeys(lot.addresses, chosen)
        by_trap = chosen is Mode.INT3 and bool(body.entry)
        if by_trap:
            traps += zip(lot.addresses, lot.entries, strict=True)
        if form.head:
            if body.covers:
                heads += heads_of(site, chosen)
            elif lot.size < MANY:
                heads += _heads_of_lot(lot, chosen, by_trap=by_trap)
            else:
                many.append(_heads_of_lot(lot, chosen, by_trap=by_trap))
    modes_after |= {state.site.address: None for state in carried.closed}
    every += carried.closed
    context = Context(strategy, own, handler=bool(traps) or _any_breakpoint(every))
    filled, emptied = _hole_changes(every, modes_after)
    of_new, of_others = _slot_changes(states, bindings)
    groups = (
        *of_new, map(_alone, carried.words), *of_others, filled,
        _code_changes(every, modes_after), emptied, _semaphore_changes(states, modes_after),
    )  # fmt: skip
    edits = _edits(groups, context)
    if isinstance(edits, Refusal):
        return edits
    if edits:
        edits = _with_guards(states, edits)
    return Plan(
        _title("on", states), edits, strategy, tuple(traps), bindings is None,
        untraps=_untraps(every, {address for address, _ in traps}), left_out=left_out,
        modes=_modes_of(states, modes_after) if carried != NOTHING else modes_after,
        heads=_together([heads, *many]), carries=carried != NOTHING, token=carried.token,
    )  # fmt: skip


def _with_guards(states: Sequence[SiteState], edits: Sequence[Edit]) -> Sequence[Edit]:
    """The edits, with guards behind those that are written early."""
    first = sum(1 for _ in takewhile(_EARLY, edits))
    step = edits[min(first, len(edits) - 1)].step
    guards = tuple(_guards(states, edits, step))
    if not isinstance(edits, Runs):
        return *edits[:first], *guards, *edits[first:]
    early = [*takewhile(lambda part: part[0].early, edits.parts)]
    return Runs([*early, guards, *edits.parts[len(early) :]])


def _heads_of_lot(lot: Lot, mode: Mode, *, by_trap: bool) -> Run[Head]:
    """The same of sites that a compiler prepared. Those that a breakpoint opens are told their
    bodies."""
    form, slot = lot.first.form, lot.first.body.slot
    none = RemoteAddress(0)
    head = Head(none, form.head, form.ways[mode], mode, slot, none, *_HEAD_ONLY)
    columns: dict[int, Sequence[object]] = {_HEAD_ADDRESS: lot.addresses}
    if by_trap:
        columns[_HEAD_BODY] = lot.entries
    return Run(head, columns)


def _together(parts: Sequence[Sequence[T]]) -> Sequence[T]:
    """The values of some sequences, as a tuple where none of them is a run."""
    if any(isinstance(part, Run) for part in parts):
        return Runs(parts)
    return tuple(chain.from_iterable(parts))


def _guards(states: Sequence[SiteState], edits: Sequence[Edit], step: int) -> Iterator[Edit]:
    """Slots' data that the plan leaves as it is, as edits that change nothing. Without them an
    object that was loaded anew, at the same address, would get a probe without its data. The slot
    of a stub is in the arena, and stays as it is while the lock is held."""
    # Runs are of code, and of slots in the arena.
    single = [part for part in parts_of(edits) if not isinstance(part, Run)]
    changed = {edit.address for part in single for edit in part if not edit.code}
    for state in _slot_states([state for state in states if not state.site.body.covers]):
        address = RemoteAddress(state.site.slot + SLOT_DATA)
        if address not in changed:
            data = state.data.to_bytes(8, "little")
            yield Edit(address, data, data, f"{state.site.marker}: slot.data", False, step)


def plan_off(
    states: Sequence[SiteState],
    *,
    ours: Container[int] = (),
    strategy: Strategy = STOP,
    own: bool = False,
    carry: Carry = nothing_carried,
) -> Plan | Refusal:
    """Switch off all sites that can be (switchable.py). The others are left out, and refused if
    nothing else is there.

    The slots keep their data, which a thread inside may still read; and their probe, where threads
    run on and it could not be taken away by one store. A probe in C is refused there: a thread that
    has come by the open site, and is not counted yet, would still find it after `off` has waited.
    """
    states, left_out = to_be_closed(states, ours)
    if not states and left_out:
        return Refusal(left_out[0].reason, left_out[0].sentence)
    carried = carry(states)
    modes_after: dict[RemoteAddress, Mode | None] = dict.fromkeys(_addresses(states))
    code_after = modes_after | {
        state.site.address: state.code_mode
        for state in states if state.site.address in carried.stays
    } | dict.fromkeys(_addresses(carried.closed))  # fmt: skip
    every = [*states, *carried.closed]
    code = _code_changes(every, code_after)
    staying = {state.site.slot for state in states if state.site.address in carried.stays}
    slots = []
    for state in _slot_states(states):
        if state.probe == state.site.body.idle:
            continue
        can_go = state.site.slot in staying and not state.probe & PROBE_COUNTED
        if strategy.stops or own or can_go or state.site.form.is_decided_by_slot:
            idle = state.site.body.idle
            slots.append(_word_change(state, SLOT_PROBE, idle, "slot.probe, none"))
        elif state.probe & PROBE_COUNTED:
            return Refusal(
                Reason.QUIESCENCE,
                f"{state.site.marker} has a probe in C, and under {strategy.name} a thread may be "
                "on its way into it unseen, so its end cannot be waited for; use --quiesce stop",
            )
    context = Context(strategy, own, handler=_any_breakpoint(every))
    _, emptied = _hole_changes(every, code_after)
    words = map(_alone, carried.words)
    edits = _edits((words, _semaphore_changes(states, modes_after), code, emptied, slots), context)
    if isinstance(edits, Refusal):
        return edits
    return Plan(
        _title("off", states), edits, strategy,
        untraps=_untraps([state for state in every if not code_after[state.site.address]]),
        left_out=left_out, modes=modes_after, carries=carried != NOTHING,
    )  # fmt: skip


def _modes_of(
    states: Sequence[SiteState], modes: Mapping[RemoteAddress, Mode | None]
) -> dict[RemoteAddress, Mode | None]:
    """The sites that were asked for."""
    return {address: modes[address] for address in _addresses(states)}


def _addresses(states: Iterable[SiteState]) -> Iterator[RemoteAddress]:
    return (address for state in states for address in state.lot.addresses)


def complete(plan: Plan, bindings: Mapping[RemoteAddress, Binding]) -> Plan:
    """The plan with the words of slots that were not known when it was made. None of them is an
    adapter: a probe in C is loaded, and with it the runtime, before its switch is planned."""
    words: dict[int, int] = {}
    for slot, binding in bindings.items():
        words[slot + SLOT_PROBE] = binding.probe
        words[slot + SLOT_DATA] = binding.data
        words[slot + SLOT_TAKES] = binding.takes
    parts = [
        part if isinstance(part, Run) else [_completed(edit, words) for edit in part]
        for part in parts_of(plan.edits)
    ]
    return plan._replace(edits=_together(parts), needs_runtime=False)


def _completed(edit: Edit, words: Mapping[int, int]) -> Edit:
    return edit if edit.new else edit._replace(new=words[edit.address].to_bytes(8, "little"))


def _edits(groups: Iterable[Iterable[Alike]], context: Context) -> Sequence[Edit] | Refusal:
    """The edits of the groups, one group after the other; inside a group all first steps, then all
    second ones, each in the order of addresses."""
    parts: list[Sequence[Edit]] = []
    step = 0
    words: dict[tuple[bool, bool], tuple[object, ...]] = {}
    span: tuple[object, ...] = ()
    of_spans = context.strategy.stops and not context.own  # there a store depends on the address
    for group in groups:
        of_group: list[Sequence[Edit]] = []
        single: list[Edit] = []
        for change, addresses, columns in group:
            address, old, bytes_after, what, code, quiet, _, early = change
            is_span = of_spans and code and _is_span(change)
            known = span if is_span else words.get((quiet, early))
            if known and not columns and (is_span or _is_word(change)):
                fields = (address, old, bytes_after, what, code, step, *known)
                single.append(new(Edit, fields))
                continue
            planned = plan_change(change, context)
            if isinstance(planned, Refusal):
                return planned
            if is_span:
                span = planned[0][6:]
            elif _is_word(change):
                words[quiet, early] = planned[0][6:]
            for edit in planned:
                _, old, bytes_after, what, code, of_change, *flags = edit
                rest = (old, bytes_after, what, code, step + of_change, *flags)
                away = edit.address - change.address
                if columns:  # one edit, at the address itself
                    run = Run(new(Edit, (address, *rest)), {ADDRESS: addresses, **columns})
                    if len(run) >= MANY:
                        of_group.append(run)
                    else:
                        single += run
                elif len(addresses) >= MANY:
                    places = sorted(address + away for address in addresses)
                    of_group.append(Run(new(Edit, (places[0], *rest)), {ADDRESS: places}))
                else:
                    single += [new(Edit, (address + away, *rest)) for address in addresses]
        in_order = _in_order([*of_group, *([single] if single else [])])
        parts += in_order
        step = in_order[-1][-1].step + 1 if in_order else step
    return _together(parts)


def _in_order(parts: list[Sequence[Edit]]) -> list[Sequence[Edit]]:
    """The edits of a group in the order of their steps, and of their addresses. Runs stay whole
    where none of the others has a place among theirs."""
    for part in parts:
        if isinstance(part, list):
            part.sort(key=_ADDRESS)
            part.sort(key=_STEP)  # stable; two sorts by a number take less than one by both
    parts.sort(key=lambda part: _PLACE(part[0]))
    if all(_PLACE(before[-1]) < _PLACE(after[0]) for before, after in pairwise(parts)):
        return parts
    return [sorted(chain.from_iterable(parts), key=_PLACE)]


def _is_word(change: Change) -> bool:
    """Whether it is of an aligned word of data that is known. If one of them can be planned in a
    context, by one edit, so can any other that threads read or do not read as they do that."""
    _, old, bytes_after, _, code, *_ = change
    return not code and len(old) == len(bytes_after) == _WORD and not change.address % _WORD


def _is_span(change: Change) -> bool:
    """Whether it is of some bytes of code in one page, which no breakpoint completes. If one of
    them can be planned in a context where threads stand, by one edit, so can any other."""
    address, old, bytes_after, _, code, _, completion, _ = change
    size = len(old)
    return (
        code and completion is None and size == len(bytes_after) > 1
        and address % PAGE + size <= PAGE
    )  # fmt: skip


def _untraps(
    states: Sequence[SiteState], stay: Container[RemoteAddress] = ()
) -> tuple[RemoteAddress, ...]:
    if not _any_breakpoint(states):
        return ()
    planted = (state.lot.addresses for state in states if state.code_mode is Mode.INT3)
    return tuple(address for addresses in planted for address in addresses if address not in stay)


def _any_breakpoint(states: Sequence[SiteState]) -> bool:
    return Mode.INT3 in map(_CODE_MODE, states)


def _title(how: str, states: Sequence[SiteState]) -> str:
    markers = counted(len(set(map(_MARKER_OF_STATE, states))), "marker")
    return f"switch {how} {markers} at {counted(sum(state.lot.size for state in states), 'site')}"


def _choose_mode(site: Site, mode: Mode | None) -> Mode | Refusal:
    ways = site.form.ways
    if mode is None:
        return next(iter(ways))
    if mode in ways:
        return mode
    names = " or ".join(map(str, ways))
    return Refusal(
        Reason.OTHER_MODE,
        f"{site.marker} is compiled as {site.kind} ({site.source}), which can be switched with "
        f"{names}, not with {mode}",
    )


def _code_changes(
    states: Iterable[SiteState], modes: Mapping[RemoteAddress, Mode | None]
) -> list[Alike]:
    """From the first byte of each head that changes to the last one; most often the same."""
    changes: list[Alike] = []
    known: dict[tuple[object, ...], tuple[int, list[RemoteAddress]]] = {}
    for state in states:
        lot, before, left = state.lot, state.code_mode, state.head
        form, after = lot.first.form, modes[lot.first.address]
        if before is after or not form.head:
            continue
        name, ways = lot.first.signature.name, form.ways
        if form.inside and lot.size == 1:  # no breakpoint is completed there, and none is alike
            head = left or (ways[before] if before else form.head)
            start, old, bytes_after = _difference(head, ways[after] if after else form.head)
            what = f"{name}: {form.name} site {after or 'off'}"
            place = RemoteAddress(lot.first.address + start)
            fields = place, old, bytes_after, what, True, False, None, False
            changes.append(new(Alike, (new(Change, fields), [place], _NO_COLUMNS)))
            continue
        alike = (name, id(ways), form.head, before, left, after)
        if alike in known:
            start, addresses = known[alike]
            addresses += _behind(lot.addresses, start)
            continue
        # Behind a breakpoint a change that was left half done may differ from the usual.
        head = left or (ways[before] if before else form.head)
        start, old, bytes_after = _difference(head, ways[after] if after else form.head)
        what = f"{name}: {form.name} site {after or 'off'}"
        places = _behind(lot.addresses, start)
        # A breakpoint must be at the start of the instruction. A jump that gets another target
        # differs only behind its first byte.
        entries = repeat(None, lot.size) if form.inside or start else lot.entries
        of_lot = (
            Change(place, old, bytes_after, what, True, completion=entry)
            for place, entry in zip(places, entries, strict=True)
        )
        first = next(of_lot)
        if is_byte_flip(first):
            known[alike] = start, places
            changes.append(Alike(first, places))
        else:
            changes += map(_alone, (first, *of_lot))
    return changes


def _behind(addresses: Iterable[RemoteAddress], away: int) -> list[RemoteAddress]:
    """So many bytes behind each address."""
    return cast(list[RemoteAddress], [address + away for address in addresses])


def heads_of(site: Site, mode: Mode) -> tuple[Head, ...]:
    """What the arena's table has of a site with a stub that is opened in this mode."""
    _, _, address, form, body = site
    entry = body.entry if mode is Mode.INT3 else RemoteAddress(0)
    after = form.ways[mode]
    fields = address, form.head, after, mode, body.slot, entry, PatchKind.HEAD, body.covers, 0
    head = new(Head, fields)
    if not body.hole:
        return (head,)
    at, before, filled, covers = body.hole
    hole = Head(at, before, filled, Mode.JUMP, body.slot, RemoteAddress(0), PatchKind.HOLE, covers)
    reach = reach_of(form.ways[Mode.JUMP])
    return hole, head._replace(kind=PatchKind.SHORT, reach=reach)


def _hole_changes(
    states: Iterable[SiteState], modes: Mapping[RemoteAddress, Mode | None]
) -> tuple[list[Alike], list[Alike]]:
    """Holes that are filled, before the short jumps that lead there are written; and those that are
    given back, after. The change is of the whole hole, so that no thread stands before its jump."""
    filled: list[Alike] = []
    emptied: list[Alike] = []
    for state in filter(_HOLE, states):
        at, before, after, _ = state.site.body.hole  # type: ignore[misc]
        is_used = modes[state.site.address] is Mode.JUMP
        content = after if is_used else before
        if state.hole != content:
            what = f"{state.site.marker}: hole {'filled' if is_used else 'given back'}"
            change = _alone(Change(at, state.hole, content, what, code=True))
            (filled if is_used else emptied).append(change)
    return filled, emptied


def _semaphore_changes(
    states: Iterable[SiteState], modes: Mapping[RemoteAddress, Mode | None]
) -> Iterator[Alike]:
    """Each open site has raised its semaphore by one, so that counts of other tracers stay. A count
    that was reset meanwhile is not lowered below 0, and a full count is not raised."""
    raised: dict[RemoteAddress, tuple[SiteState, int]] = {}
    for state in filter(_SEMAPHORE, states):
        semaphore = state.site.body.semaphore
        added = bool(modes[state.site.address]) - bool(state.code_mode)
        added *= state.lot.size
        if added:
            first, sum_ = raised.get(semaphore, (state, 0))
            raised[semaphore] = first, sum_ + added
    for semaphore, (state, added) in raised.items():
        after = min(max(state.raised + added, 0), _MOST_RAISED)
        if after != state.raised:
            old, new_ = (n.to_bytes(SEMAPHORE_SIZE, "little") for n in (state.raised, after))
            what = f"{state.site.marker}: semaphore"
            yield _alone(Change(semaphore, old, new_, what, code=False))


def _difference(old: bytes, new: bytes) -> tuple[int, bytes, bytes]:
    """The offset of the first byte that differs, and the old and new bytes from there to the last
    that differs."""
    start, end = 0, len(old)
    while old[start] == new[start]:
        start += 1
    while old[end - 1] == new[end - 1]:
        end -= 1
    return start, old[start:end], new[start:end]


_OfSlots = tuple[list[Alike], list[Alike]]
"""All data, adapters and what probes take, then all probes: a thread that finds the probe finds
those."""


def _slot_changes(
    states: Sequence[SiteState], bindings: Mapping[RemoteAddress, Binding] | None
) -> tuple[_OfSlots, _OfSlots]:
    """The changes of slots that were never used, and those of all others. An adapter that the new
    probe does not need stays, for threads that are on their way to it."""
    open_slots = {
        state.site.body.slot
        for state in states
        if state.code_mode or state.site.form.is_decided_by_slot
    }
    of_new: _OfSlots = [], []
    of_others: _OfSlots = [], []
    blank: tuple[list[_Word], list[_Word]] = [], []
    for state in _slot_states(states):
        new = bindings[state.site.slot] if bindings is not None else None
        if new is not None and new[:2] == (state.probe, state.data) and _has_rest(state, new):
            continue
        quiet = state.site.slot not in open_slots
        early = quiet and _is_new(state)
        if early and new is not None and not state.adapter and not state.probe:
            _add_words(blank, state.site, new)
            continue
        data, probes = of_new if early else of_others
        change = partial(_word_change, state, quiet=quiet, early=early)
        if new is None or state.data != new.data:
            data.append(change(SLOT_DATA, new and new.data, "slot.data"))
        if new is not None and new.adapter and state.adapter != new.adapter:
            data.append(change(SLOT_ADAPTER, new.adapter, "slot.adapter"))
        if state.site.form.name == RETURN and (new is None or state.takes != new.takes):
            data.append(change(SLOT_TAKES, new and new.takes, "slot.takes"))
        if new is None or state.probe != new.probe:
            probes.append(change(SLOT_PROBE, new and new.probe, "slot.probe"))
    for changes, words in zip(of_new, blank, strict=True):
        changes += _from_zero(words)
    return of_new, of_others


_Word = tuple[RemoteAddress, bytes, str]
"""Where a word is that is 0, what it becomes, and what it is."""


def _add_words(blank: tuple[list[_Word], list[_Word]], site: Site, binding: Binding) -> None:
    """The words of a slot that was never used, as in `_OfSlots`."""
    name, slot = site.signature.name, site.body.slot
    probe, data, adapter, takes = binding
    of_data = ((SLOT_DATA, data), (SLOT_ADAPTER, adapter), (SLOT_TAKES, takes))
    for words, known in ((blank[0], of_data), (blank[1], ((SLOT_PROBE, probe),))):
        for offset, value in known:
            if value:
                word = value.to_bytes(_WORD, "little")
                words.append((RemoteAddress(slot + offset), word, f"{name}: slot.{_HELD[offset]}"))


def _from_zero(words: list[_Word]) -> list[Alike]:
    """The changes of words that are 0, as one."""
    if not words:
        return []
    addresses, values, whats = zip(*sorted(words), strict=True)
    place, value, what = words[0]
    first = Change(place, bytes(_WORD), value, what, code=False, quiet=True, early=True)
    return [Alike(first._replace(address=addresses[0]), addresses, {NEW: values, WHAT: whats})]


def _has_rest(state: SiteState, binding: Binding) -> bool:
    """Whether its slot has all of this content but the probe and its data."""
    is_adapted = not binding.adapter or state.adapter == binding.adapter
    return is_adapted and (state.site.form.name != RETURN or state.takes == binding.takes)


def _is_new(state: SiteState) -> bool:
    """Whether its slot is one in the arena that was never used. Its data comes before its site is
    opened, or the address of a stash before that is opened for exits alone, and both stay. Then no
    thread has ever come to the stub. A slot of a file that is mapped may go with that."""
    body = state.site.body
    used = state.data or state.token or state.stash or state.takes
    return bool(body.covers) and not used and state.probe == body.idle


def by_slot(sites: Sequence[Site]) -> Iterator[Site]:
    """One site for each slot: the sites of a marker in one object share theirs."""
    each = (lot.first for lot in sites.lots) if isinstance(sites, Lots) else iter(sites)
    return _first_of_each((site.body.slot, site) for site in each)


def _slot_states(states: Sequence[SiteState]) -> Iterator[SiteState]:
    """One state for each slot."""
    return _first_of_each(zip(map(_SLOT_OF_STATE, states), states, strict=True))


def _first_of_each(slots: Iterable[tuple[int, T]]) -> Iterator[T]:
    seen = {0}  # no slot
    for slot, item in slots:
        if slot not in seen:
            seen.add(slot)
            yield item


def _word_change(
    state: SiteState,
    offset: int,
    word: int | None,
    what: str,
    quiet: bool = False,
    early: bool = False,
) -> Alike:
    place = RemoteAddress(state.site.body.slot + offset)
    held: int = getattr(state, _HELD[offset])
    before = held.to_bytes(8, "little")
    after = b"" if word is None else word.to_bytes(8, "little")
    what = f"{state.site.signature.name}: {what}"
    fields = (place, before, after, what, False, quiet, None, early)
    return new(Alike, (new(Change, fields), [place], _NO_COLUMNS))
