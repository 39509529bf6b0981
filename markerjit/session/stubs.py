"""Stubs for sites of USDT probes: made in a turn, before the sites can be opened.

    1  nothing is put into the process before each site was looked at: its opening (spans/), its
       code in memory, its semaphore
    2  the runtime, if it is not there
    3  an island within reach of the object's code, a slot for each probe, and the stubs
    4  the arena's table gets each head, closed: from now on every controller finds the stub

A site that cannot be opened stays as it is, with the reason, and the others go on. A stub is never
taken away, so a thread may be in it at any time, and a controller that dies in 3 leaves room that
is lost and nothing else.

What this does not do: open a site. A switch does (switch.py), as it does for markers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from itertools import groupby
from operator import attrgetter
from typing import NamedTuple

from markerjit.abi import PAGE
from markerjit.arena.find import process_of
from markerjit.arena.islands import Island, Span
from markerjit.arena.markers import fnv1a
from markerjit.arena.patches import Head
from markerjit.arena.slots import Slots
from markerjit.elf import FileImage
from markerjit.elf.functions import NoFunctions
from markerjit.errors import BadFile, MemoryFault, Refused, UnexpectedBytes
from markerjit.model import MappedObject, Mode, RemoteAddress, Site, UsdtSite
from markerjit.patch.plan import SEMAPHORE_SIZE
from markerjit.probes.stub import LARGEST, Displaced, make_stub
from markerjit.proc.permission import read_status
from markerjit.session.opened import MARK_SIZE, NO_STUB, mark_of, with_stub, without_stub
from markerjit.session.openings import openings_of
from markerjit.session.target import Target
from markerjit.session.turn import Turn
from markerjit.sites.mapped_files import image_of
from markerjit.spans.openings import Closed, Opening, Way
from markerjit.x86.assemble import WronglyAssembled
from markerjit.x86.forms import NEAR_LENGTH, is_breakpoint
from markerjit.x86.relocate import Relocated, Unmovable, relocate
from markerjit.x86.run import whole_instructions

_OBJECT = attrgetter("place.object")
_BY_JUMP = (Way.NO_OP, Way.JUMP, Way.PADDING)


class Ready(NamedTuple):
    """A site that may get a stub: the bytes of its head, and the instructions that it loses."""

    site: UsdtSite
    head: bytes
    displaced: bytes


def make_stubs(turn: Turn, sites: Sequence[UsdtSite], need_arena: Callable[[], object]) -> None:
    """Have a stub for each of these sites that can be opened. `need_arena` makes the runtime if it
    is not there.

    Raises Refused where there is no room for stubs, and what making an arena raises.
    """
    target = turn.target
    if target.own:
        raise Refused(
            "USDT probes of our own process cannot be switched: its threads cannot all be stopped; "
            "do it from another process"
        )
    ready, closed = _looked_at(target, sites)
    if ready:
        need_arena()
        assert turn.seen.arena
        slots = Slots(target.memory, turn.seen.arena)
        slots.check_room(_owner(each.site) for each in ready)
        for mapped, of_object in groupby(ready, key=attrgetter("site.place.object")):
            closed += _put(turn, mapped, list(of_object), slots)
        target.look()
    target.note_closed(closed)


def say_openings(target: Target, sites: Sequence[UsdtSite]) -> None:
    """Note of each of these sites that has no stub how it would be opened, or why not. Changes
    nothing in the process."""
    ready, closed = _looked_at(target, sites)
    later = [without_stub(each.site, _later(each)) for each in ready]
    target.note_closed([*later, *closed])


def _later(ready: Ready) -> str:
    way = "a jump" if len(ready.head) == NEAR_LENGTH else "a breakpoint"
    code = ready.displaced.hex(" ")
    return f"{NO_STUB}, and is opened by {way} over {code}"


# ---- 1: what is there ----------------------------------------------------------------------------


def _looked_at(target: Target, sites: Sequence[UsdtSite]) -> tuple[list[Ready], list[Site]]:
    """Those of the sites without a stub that may get one, and the others, with the reason."""
    known = {site.address for site in target.seen.opened}
    new = [site for site in sites if site.address not in known]
    ready: list[Ready] = []
    closed: list[Site] = []
    copy_calls = not (new and read_status(target.pid).shadow_stack)
    for mapped, group in groupby(new, key=_OBJECT):
        of_object = list(group)
        try:
            with image_of(target.pid, target.memory.read, target.seen.maps, mapped) as image:
                places = [site.place.offset for site in of_object]
                openings = openings_of(image, places, _probes_of(target, mapped))
                for site in of_object:
                    opening = openings[site.place.offset]
                    answer = _against(target, site) or _ready(
                        target, image, site, opening, copy_calls=copy_calls
                    )
                    if isinstance(answer, Ready):
                        ready.append(answer)
                    else:
                        closed.append(without_stub(site, answer))
        except (BadFile, NoFunctions) as problem:
            closed += [without_stub(site, f"cannot be opened: {problem}") for site in of_object]
    return ready, closed


def _probes_of(target: Target, mapped: MappedObject) -> list[int]:
    """The places of all USDT probes of an object: one scan of its code answers for them too."""
    return [site.place.offset for site in target.usdt().sites if site.place.object == mapped]


def _against(target: Target, site: UsdtSite) -> str | None:
    """Why a site cannot be opened, as far as its semaphore says it."""
    semaphore = site.recipe.semaphore
    if not semaphore:
        return None
    mapping = next((each for each in target.seen.maps if each.start <= semaphore < each.end), None)
    if mapping is None:
        return f"has its semaphore at {semaphore:#x}, where nothing is mapped"
    if not mapping.writable or mapping.shared or semaphore % SEMAPHORE_SIZE:
        return f"has its semaphore at {semaphore:#x}, where no count of this process can be"
    return None


def _ready(
    target: Target,
    image: FileImage,
    site: UsdtSite,
    opening: Opening | Closed,
    *,
    copy_calls: bool,
) -> Ready | str:
    if isinstance(opening, Closed):
        reasons = dict.fromkeys(str(way.reason) for way in opening.turned_down)
        return f"cannot be opened: {', '.join(reasons)}"
    if opening.address != site.place.offset:
        return "begins with an endbr64, where indirect branches land"
    displaced = opening.code
    head = _head(image, opening)
    if not copy_calls and _calls(site, displaced):
        displaced = whole_instructions(displaced, site.address).first(1)
        head = head[:1]
    size = max(len(head), len(displaced))
    expected = image.read(site.place.offset, size)
    try:
        now = target.memory.read(site.address, size)
    except MemoryFault as fault:
        return f"cannot be opened: {fault}"
    if now != expected:
        return _changed(site, now, expected)
    return Ready(site, head, displaced)


def _calls(site: UsdtSite, displaced: bytes) -> bool:
    """Whether a call is among these instructions. Its copy pushes the return address by itself,
    which a shadow stack does not allow."""
    moved = relocate(displaced, site.address, site.address)
    return isinstance(moved, Relocated) and moved.calls


def _head(image: FileImage, opening: Opening) -> bytes:
    """The bytes that may change: those of a jump, unless its write could be interrupted at the
    border of two pages; else the first one, for a breakpoint."""
    crosses = opening.address // PAGE != (opening.address + NEAR_LENGTH - 1) // PAGE
    by_jump = opening.way in _BY_JUMP and not crosses
    return image.read(opening.address, NEAR_LENGTH if by_jump else 1)


def _changed(site: UsdtSite, now: bytes, expected: bytes) -> str:
    problem = UnexpectedBytes(
        site.address, now, expected, site.place.object.path, is_breakpoint=is_breakpoint(now)
    )
    return f"is not as its file has it: {problem}"


# ---- 3 and 4: stubs, and their heads in the table ------------------------------------------------


def _put(turn: Turn, mapped: MappedObject, ready: Sequence[Ready], slots: Slots) -> list[Site]:
    """Make the stubs of an object's sites. The result are sites that cannot have one."""
    arena = turn.seen.arena
    assert arena
    code = [each for each in turn.seen.maps if each.executable and each.path == mapped.path]
    span = Span(code[0].start, code[-1].end)
    near = partial(arena.islands.near, span, LARGEST + 2 * MARK_SIZE, arena.code)
    process = process_of(arena, turn.caller())
    island: Island | None = None
    heads: list[Head] = []
    closed: list[Site] = []
    for site, head, displaced in ready:
        if island is None or island.size - island.used < LARGEST + 2 * MARK_SIZE:
            island = near(process)
        slot = slots.take(_owner(site))
        place = RemoteAddress(arena.islands.place(island) + MARK_SIZE)
        stub = _stub(site, displaced, slot, place)
        if isinstance(stub, str):
            closed.append(without_stub(site, stub))
            continue
        arena.islands.put(island, mark_of(site) + stub, arena.code)
        island = island._replace(used=place + len(stub) - island.start)
        made = with_stub(site, head, slot, place)
        mode = made.form.modes[0]
        body = place if mode is Mode.INT3 else RemoteAddress(0)
        heads.append(Head(site.address, head, made.form.ways[mode], mode, slot, body))
    if heads:
        arena.patches.put(heads)
    return closed


def _owner(site: UsdtSite) -> int:
    return fnv1a(site.signature.text.encode())


def _stub(
    site: UsdtSite, displaced: bytes, slot: RemoteAddress, address: RemoteAddress
) -> bytes | str:
    try:
        stub = make_stub(
            site.signature, site.recipe.operands, slot, Displaced(site.address, displaced), address
        )
    except WronglyAssembled as problem:
        return f"has operands that cannot be loaded: {problem}"
    return f"cannot be opened: {stub.obstacle}" if isinstance(stub, Unmovable) else stub.code
