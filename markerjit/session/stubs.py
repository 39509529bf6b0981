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

from collections.abc import Callable, Container, Mapping, Sequence
from functools import cache, partial
from itertools import groupby
from operator import attrgetter

from markerjit.abi import PAGE
from markerjit.arena.find import process_of
from markerjit.arena.hashes import fnv1a, hashes_of
from markerjit.arena.islands import Filling, Span
from markerjit.arena.patches import Head
from markerjit.arena.slots import Slots
from markerjit.elf import FileImage, Read
from markerjit.elf.functions import NoFunctions
from markerjit.elf.sections import is_go
from markerjit.errors import BadFile, MemoryFault, Reason, Refused, UnexpectedBytes
from markerjit.memory import Mapping as Code
from markerjit.model import Hole, MappedObject, RemoteAddress, Signature, Site, UsdtSite, new
from markerjit.patch.plan import heads_of
from markerjit.patch.slots import SEMAPHORE_SIZE
from markerjit.probes.before import BEFORE_STUB
from markerjit.probes.fast import USUAL, Fast, FastPaths
from markerjit.probes.stub import LARGEST, Displaced, code_of_stub, make_copies
from markerjit.probes.stub import Code as StubCode
from markerjit.proc.permission import read_status
from markerjit.ring.types import Options
from markerjit.session.consent import without_breakpoint
from markerjit.session.exits import opening_at
from markerjit.session.opened import (
    Opened,
    before_stub,
    marks_of,
    with_stub,
    with_stub_to_come,
    without_stub,
)
from markerjit.session.openings import (
    Openings,
    Progress,
    exits_of_functions,
    openings_of,
    openings_of_calls,
    silent,
)
from markerjit.session.states import Reader
from markerjit.session.taken import Taken, spans_of
from markerjit.session.target import Key, Target, key_of
from markerjit.session.turn import Turn
from markerjit.sites.mapped_files import image_of
from markerjit.sites.names import PREFIX_OF_CALLS, PREFIX_OF_INSTRUCTIONS
from markerjit.spans.openings import Closed, HolePlace, Opening, Way, Why
from markerjit.tuples import NamedTuple
from markerjit.x86.encoding import WronglyAssembled
from markerjit.x86.forms import (
    CALL,
    INSTRUCTION,
    NEAR_LENGTH,
    REACH,
    TAIL_CALL,
    hole_content,
    is_breakpoint,
    is_call,
    is_near_condition,
)
from markerjit.x86.relocate import Relocated, Unmovable, relocate
from markerjit.x86.run import whole_instructions

_OBJECT = attrgetter("place.object")
_BY_HOLE = (Way.HOLE, Way.MADE)
_CALLS = (CALL, TAIL_CALL)
_ALONE = (*_CALLS, INSTRUCTION)
"""Forms of sites in whose place no other one is."""
_AT_ONCE = 1024
"""Stubs that are written together, between two reports of progress."""
_ROOM = LARGEST + 2 * BEFORE_STUB
"""That a stub may take."""
USUAL_STUB = 1024
"""That one takes on average, with what stands before it: 1,016 for 350 places of Debian's
libsqlite3, exits with what their entries keep among them."""
_MOST_PREFERRED = 1 << 20
"""Bytes of an island."""


class Ready(NamedTuple):
    """A site that may get a stub: the bytes of its head, the instructions that it loses, and the
    place of the hole through which a short jump leads to the stub."""

    site: UsdtSite
    head: bytes
    displaced: bytes
    hole: HolePlace | None = None


class Obstacle(NamedTuple):
    """Why a site gets no stub; and whether that `lasts` (`Form` of model.py), as what the file says
    does, and no other site that may be off later, or code that may be changed back."""

    why: str
    lasts: bool = False


def make_stubs(
    turn: Turn,
    sites: Sequence[UsdtSite],
    need_arena: Callable[[], object],
    way: Options = USUAL,
    *,
    breakpoints: bool,
) -> None:
    """Have a stub for each of these sites that can be opened, with a fast path for records that are
    made in this way. `need_arena` makes the runtime if it is not there; `breakpoints` were asked
    for.

    Raises Refused where there is no room for stubs, and what making an arena raises.
    """
    refuse_own(turn.target)
    looked = looked_at(turn.target, with_entries(sites), breakpoints=breakpoints)
    put_stubs(turn, *looked, need_arena, way=way)


def have_stubs(target: Target, sites: Sequence[UsdtSite]) -> bool:
    """Whether each of these sites, and each entry that they need, has a stub for its arguments, or
    has just been found to have none, for a reason that lasts."""
    have = {key_of(site): site.signature for site in target.seen.opened}
    closed = target.unopenable
    return all(
        have[key] == site.signature if key in have else key in closed and closed[key].form.lasts
        for key, site in ((key_of(site), site) for site in with_entries(sites))
    )


def put_stubs(
    turn: Turn,
    ready: Sequence[Ready],
    closed: list[Site],
    need_arena: Callable[[], object],
    progress: Progress = silent,
    way: Options = USUAL,
) -> None:
    """Make the stubs of sites that may get one, and note the sites that cannot. Their fast paths
    record in this way. Raises as `make_stubs`."""
    target = turn.target
    if ready:
        need_arena()
        assert turn.seen.arena
        slots = Slots(target.memory, turn.seen.arena)
        sites = [each.site for each in ready]
        slots.check_room(owners_of(sites))
        marks = marks_of(sites)
        done = 0
        made: list[Opened] = []
        heads: list[Head] = []
        paths = FastPaths(turn.seen.arena, way)
        for mapped, group in groupby(ready, key=attrgetter("site.place.object")):
            of_object = list(group)
            for at in range(0, len(of_object), _AT_ONCE):
                progress("stubs", done / len(ready))
                some = of_object[at : at + _AT_ONCE]
                preferred = min((len(of_object) - at) * USUAL_STUB, _MOST_PREFERRED)
                put = _put(
                    turn, mapped, some, slots, paths, preferred, marks[done : done + len(some)]
                )
                closed += put.closed
                made += put.made
                heads += put.heads
                done += len(some)
        as_entered = turn.seen.arena.patches.have(heads)
        target.look(expected=sites, made=made if as_entered else ())
    target.note_closed(closed)


def refuse_own(target: Target) -> None:
    """Raise Refused for our own process."""
    if target.own:
        raise Refused(
            "USDT probes and functions of our own process cannot be switched: its threads cannot "
            f"all be stopped; do it from another process, as markerjit on {target.pid} PATTERN does"
        )


def say_openings(target: Target, sites: Sequence[UsdtSite], *, breakpoints: bool) -> None:
    """Note of each of these sites that has no stub how it would be opened, or why not. Changes
    nothing in the process."""
    asked = set(map(key_of, sites))
    ready, closed = looked_at(target, with_entries(sites), breakpoints=breakpoints)
    later = [with_stub_to_come(each.site, _way(each)) for each in ready]
    target.note_closed([site for site in (*later, *closed) if key_of(site) in asked])


def with_entries(sites: Sequence[UsdtSite]) -> list[UsdtSite]:
    """These sites, and before them the entries whose arguments those of them have that are
    exits."""
    asked = set(map(key_of, sites))
    entries = {key_of(site.enters): site.enters for site in sites if site.enters is not None}
    return [*(entry for key, entry in entries.items() if key not in asked), *sites]


def _way(ready: Ready) -> str:
    """How a site will be opened, as the end of a sentence."""
    way = "a jump" if len(ready.head) == NEAR_LENGTH else "a breakpoint"
    if _gets_target(ready):
        return f", and is opened by another target of {ready.head.hex(' ')}"
    if ready.hole:
        jump = ready.hole.jump + ready.site.place.object.bias
        way = f"a short jump to a {'made ' if ready.hole.made else ''}hole at {jump:#x},"
    code = ready.displaced.hex(" ")
    return f", and is opened by {way} over {code}"


# ---- 1: what is there ----------------------------------------------------------------------------


def looked_at(
    target: Target,
    sites: Sequence[UsdtSite],
    known_openings: Mapping[UsdtSite, Opening | Closed | str] | None = None,
    *,
    breakpoints: bool,
) -> tuple[list[Ready], list[Site]]:
    """Those of the sites without a stub that may get one, and the others, with the reason. How they
    can be opened may be known already. Without `breakpoints` a site that needs one gets no stub:
    its address would lead to that for good, also when a jump fits later."""
    have = {key_of(site): site.signature for site in target.seen.opened}
    if all(have.get(key_of(site)) == site.signature for site in sites):
        return [], []
    known = {site.address: site.signature.name for site in target.seen.opened}
    clashing = {key_of(site) for site in sites if _clashes(site, known.get(site.address))}
    renewed = _with_other_arguments(target, sites)
    opened = {key_of(site) for site in target.seen.opened} - renewed
    passed_over = opened | clashing
    without = [site for site in sites if key_of(site) not in passed_over]
    ready: list[Ready] = []
    closed = [
        without_stub(site, f"cannot be opened: {known[site.address]} is there already; use that")
        for site in sites
        if key_of(site) in clashing
    ]
    # Asked for only where a site may get a stub: it has the states of all that have one.
    again = {address for address, _ in renewed}
    taken = cache(partial(taken_in, target, sites, again, breakpoints=breakpoints))
    read = Reader(target.memory.read).read
    copy_calls = not (without and read_status(target.pid).shadow_stack)
    loose = [each for each in target.seen.maps if each.executable and each.writable]
    for mapped, group in groupby(without, key=_OBJECT):
        of_object = list(group)
        try:
            with image_of(target.pid, target.memory.read, target.seen.maps, mapped) as image:
                openings = known_openings or _openings(image, of_object, _probes_of(target, mapped))
                for site in sorted(of_object, key=lambda site: _rank(site, openings[site])):
                    opening = openings[site]
                    answer = _against(target, site, loose) or _ready(
                        read, image, site, opening, taken, copy_calls=copy_calls
                    )
                    if key_of(site) in renewed and not _is_by_jump(answer):
                        continue  # it keeps the stub that it has
                    if isinstance(answer, Obstacle):
                        closed.append(without_stub(site, answer.why, lasts=answer.lasts))
                    elif breakpoints or _is_by_jump(answer):
                        ready.append(answer)
                        _take(taken(), answer)
                    else:
                        lasts = copy_calls and not _may_get_jump(image, site, opening, taken())
                        closed.append(without_breakpoint(site, lasts=lasts))
        except (BadFile, NoFunctions) as problem:
            closed += [without_stub(site, f"cannot be opened: {problem}") for site in of_object]
    with_stub_now = {(site.address, site.signature) for site in target.seen.opened}
    return _with_their_entries(ready, closed, with_stub_now)


def _with_their_entries(
    ready: Sequence[Ready], closed: list[Site], opened: set[tuple[RemoteAddress, Signature]]
) -> tuple[list[Ready], list[Site]]:
    """The same, but for exits whose entries cannot have a stub: their events would never have what
    they are to have."""
    available = opened | {(each.site.address, each.site.signature) for each in ready}
    of_closed = {key_of(site): site.form for site in closed}
    allowed: list[Ready] = []
    for each in ready:
        entry = each.site.enters
        if entry is None or (entry.address, entry.signature) in available:
            allowed.append(each)
        else:
            form = of_closed.get(key_of(entry))
            other = "is on for arguments that another controller knows; switch it off first"
            why = f"needs its entry, which {form.closed if form else other}"
            reason, lasts = (form.reason, form.lasts) if form else (Reason.NO_OPENING, False)
            closed.append(without_stub(each.site, why, reason, lasts=lasts))
    return allowed, closed


def _with_other_arguments(target: Target, sites: Sequence[UsdtSite]) -> set[Key]:
    """Those of the sites that are closed, and whose stub was made for other arguments than ours, by
    a controller that has debugging information where we have none, or the other way round."""
    asked = {key_of(site): site.signature for site in sites}
    unlike = [
        site for site in target.seen.opened
        if asked.get(key_of(site), site.signature) != site.signature
    ]  # fmt: skip
    states = target.states(unlike) if unlike else []
    return {key_of(state.site) for state in states if not state.code_mode and not state.problem}


def _is_by_jump(answer: Ready | Obstacle) -> bool:
    """A breakpoint is looked up by its address, which leads to one stub for good."""
    return isinstance(answer, Ready) and len(answer.head) > 1


def _clashes(site: UsdtSite, known: str | None) -> bool:
    """Whether a site of another name has its stub at this one's address, and one of the two is an
    instruction or a call. These have their places wherever they are named; exits are looked at
    further."""
    if known is None or known == site.signature.name:
        return False
    return site.form.name in _ALONE or known.startswith((PREFIX_OF_INSTRUCTIONS, PREFIX_OF_CALLS))


def _openings(
    image: FileImage, sites: Sequence[UsdtSite], others: Sequence[int]
) -> dict[UsdtSite, Opening | Closed | str]:
    """How each of an object's sites can be opened, or why not."""
    entries = {site.leaves for site in sites if site.leaves is not None}
    calls = {site.place.offset for site in sites if site.form.name in _CALLS}
    places = [
        site.place.offset for site in sites if site.leaves is None and site.form.name not in _CALLS
    ]
    exits = exits_of_functions(image, entries) if entries else {}
    openings: Openings = {place: exits[place].entry for place in places if place in exits}
    if not openings.keys() >= set(places):
        openings = openings_of(image, places, others)
    of_calls = openings_of_calls(image, calls) if calls else {}

    def opening_of(site: UsdtSite) -> Opening | Closed | str:
        if site.leaves is not None:
            return opening_at(exits[site.leaves], site)
        known = of_calls if site.form.name in _CALLS else openings
        return known[site.place.offset]

    return {site: opening_of(site) for site in sites}


def _rank(site: UsdtSite, opening: Opening | Closed | str) -> tuple[bool, bool]:
    """The order in which sites get their bytes: first those that have no choice, and an entry
    before an exit, which may be a part of what the entry displaces."""
    has_choice = isinstance(opening, Opening) and bool(opening.holes)
    return has_choice, site.leaves is not None


def _probes_of(target: Target, mapped: MappedObject) -> list[int]:
    """The places of all USDT probes of an object: one scan of its code answers for them too."""
    return [site.place.offset for site in target.usdt().sites if site.place.object == mapped]


def _against(target: Target, site: UsdtSite, loose: Sequence[Code]) -> Obstacle | None:
    """Why a site cannot be opened, as far as its semaphore and the mappings say it; `loose` are
    those of code that can be written to."""
    if any(each.start <= site.address < each.end for each in loose):
        return Obstacle(
            "cannot be opened: its code is writable, so the program may change it at any time, "
            "and with it a jump of ours"
        )
    semaphore = site.recipe.semaphore
    if not semaphore:
        return None
    mapping = next((each for each in target.seen.maps if each.start <= semaphore < each.end), None)
    if mapping is None:
        return Obstacle(f"has its semaphore at {semaphore:#x}, where nothing is mapped")
    if not mapping.writable or mapping.shared or semaphore % SEMAPHORE_SIZE:
        return Obstacle(
            f"has its semaphore at {semaphore:#x}, where no count of this process can be"
        )
    return None


def taken_in(
    target: Target,
    asked: Sequence[UsdtSite] = (),
    renewed: Container[int] = (),
    *,
    breakpoints: bool = False,
) -> Taken:
    """The bytes of a process that sites have now, besides those that are `asked` for: these may be
    open already, and keep what they have, but for the `renewed` ones, which get another stub.
    Without `breakpoints` an entry may have the bytes of its exits: nothing else would open it."""
    addresses = {site.address for site in asked}
    keeping = asked if breakpoints else _without_exits_in(asked)
    seen = target.seen
    spans = [span for site in seen.objects.sites for span in spans_of(site)]
    closed: list[range] = []
    on: list[range] = []
    for state in target.states(seen.opened):
        own, *hole = spans_of(state.site)
        is_kept = state.site.address in addresses and state.site.address not in renewed
        is_on = state.code_mode or state.problem
        (spans if is_kept else on if is_on else closed).append(own)
        spans += hole
    return Taken(spans, {site.address for site in keeping}, closed, on)


def _without_exits_in(sites: Sequence[UsdtSite]) -> list[UsdtSite]:
    """These sites without the exits that begin behind the first byte of an entry's jump."""
    entries = {site.address for site in sites if site.leaves is None}
    return [
        site for site in sites
        if site.leaves is None
        or entries.isdisjoint(range(site.address - NEAR_LENGTH + 1, site.address))
    ]  # fmt: skip


def _take(taken: Taken, ready: Ready) -> None:
    start = ready.site.address
    taken.add(range(start, start + max(len(ready.head), len(ready.displaced))))
    if ready.hole:
        taken.add(_in_process(ready.hole, ready.site.place.object))


def _in_process(hole: HolePlace, mapped: MappedObject) -> range:
    start = hole.address + mapped.bias
    return range(start, start + len(hole.code))


def _ready(
    read: Read,
    image: FileImage,
    site: UsdtSite,
    opening: Opening | Closed | str,
    taken: Callable[[], Taken],
    *,
    copy_calls: bool,
) -> Ready | Obstacle:
    if isinstance(opening, str):
        return Obstacle(opening, lasts=True)
    if isinstance(opening, Closed):
        reasons = dict.fromkeys(str(way.reason) for way in opening.turned_down)
        if str(Why.NOT_COVERED) in reasons and is_go(image):
            return Obstacle("cannot be opened: no unwind table has functions of Go", lasts=True)
        return Obstacle(f"cannot be opened: {', '.join(reasons)}", lasts=True)
    if opening.address != site.place.offset:
        return Obstacle("begins with an endbr64, where indirect branches land", lasts=True)
    ready = _by_jump(image, site, opening, taken())
    if ready is None and site.leaves is not None and opening.way is not Way.INT3:
        if not _may_get_jump(image, site, opening, taken()):
            return Obstacle(
                "cannot be opened: another site that is asked for, or a marker, has the same bytes",
                lasts=True,
            )
        return Obstacle(
            "cannot be opened now: its entry or another site is on, and has the same bytes; switch "
            "that off first"
        )
    if ready is None or (not copy_calls and _copies_call(ready)):
        displaced = whole_instructions(opening.code, site.address).first(1)
        own = range(site.address, site.address + len(displaced))
        if not taken().is_free(own):
            return Obstacle(
                "cannot be opened: a marker has its instructions, or a probe or function that is "
                "on; only what is on can be switched off first",
                lasts=not taken().once_off.is_free(own),
            )
        ready = Ready(site, displaced[:1], displaced)
        if not copy_calls and _copies_call(ready):
            return Obstacle(
                "cannot be opened: a copy of its call is not allowed with a shadow stack"
            )
    return _altered(read, ready) or ready


def _may_get_jump(
    image: FileImage, site: UsdtSite, opening: Opening | Closed | str, taken: Taken
) -> bool:
    """Whether a site that gets no jump may get one once other sites are off."""
    return isinstance(opening, Opening) and bool(_by_jump(image, site, opening, taken.once_off))


def _by_jump(image: FileImage, site: UsdtSite, opening: Opening, taken: Taken) -> Ready | None:
    """The site with a head for its jump. None where the jump's write could be interrupted at the
    border of two pages, where another site has the bytes, and where no hole is left."""
    if opening.way is Way.INT3 or _crosses_page(opening.address, opening.size):
        return None
    size = max(opening.size, len(opening.code))
    if not taken.is_free(range(site.address, site.address + size)):
        return None
    head = opening.code[: opening.size]
    if len(head) < opening.size:  # padding behind
        head = image.read(opening.address, opening.size)
    if opening.way not in _BY_HOLE:
        return Ready(site, head, opening.code)
    for hole in opening.holes:
        span = _in_process(hole, site.place.object)
        if not _crosses_page(hole.address, hole.size) and taken.is_free_of_all(span):
            return Ready(site, head, opening.code, hole)
    return None


def _crosses_page(address: int, size: int) -> bool:
    return address // PAGE != (address + size - 1) // PAGE


def _altered(read: Read, ready: Ready) -> Obstacle | None:
    """What is not as the file has it, of what the site changes or has copied."""
    site, head, displaced, hole = ready
    mapped = site.place.object
    places = [(site.address, displaced if len(displaced) > len(head) else head)]
    if hole:
        places.append((RemoteAddress(hole.address + mapped.bias), hole.code))
    for address, expected in places:
        try:
            now = read(address, len(expected))
        except MemoryFault as fault:
            return Obstacle(f"cannot be opened: {fault}")
        if now != expected:
            return _changed(address, now, expected, mapped.path)
    return None


def _copies_call(ready: Ready) -> bool:
    """Whether a call is among the displaced instructions, and is copied. The copy pushes the return
    address by itself, which a shadow stack does not allow."""
    if _gets_target(ready):
        return False
    moved = relocate(ready.displaced, ready.site.address, ready.site.address)
    return isinstance(moved, Relocated) and moved.calls


def _gets_target(ready: Ready) -> bool:
    """Whether nothing is displaced: the instruction leads to the stub in place of its target."""
    is_own = ready.site.form.name == CALL and is_call(ready.head)
    return ready.head == ready.displaced and (is_own or is_near_condition(ready.head))


def _changed(address: RemoteAddress, now: bytes, expected: bytes, path: str) -> Obstacle:
    problem = UnexpectedBytes(address, now, expected, path, is_breakpoint=is_breakpoint(now))
    return Obstacle(f"is not as its file has it: {problem}")


# ---- 3 and 4: stubs, and their heads in the table ------------------------------------------------


class _Put(NamedTuple):
    """Sites that cannot have a stub, those whose stubs were read back from the process, and what
    the table has got of all that have one."""

    closed: list[Site]
    made: list[Opened]
    heads: list[Head]


def _put(
    turn: Turn,
    mapped: MappedObject,
    ready: Sequence[Ready],
    slots: Slots,
    paths: FastPaths,
    preferred: int,
    marks: Sequence[bytes],
) -> _Put:
    """Make the stubs of an object's sites, with these marks. `preferred` is the room that these and
    the next ones will need."""
    arena = turn.seen.arena
    assert arena
    span = _span_around(turn.seen.maps, ready[0].site)
    process = process_of(arena, turn.caller())
    filling: Filling | None = None
    heads: list[Head] = []
    closed: list[Site] = []
    made_stubs: list[Opened] = []
    in_filling: list[Opened] = []
    sites = [each.site for each in ready]
    owners = owners_of(sites)
    of_entries = [owner_of(site.enters) if site.enters else 0 for site in sites]
    slots.take_many((*filter(None, of_entries), *owners))
    for each, owner, of_entry, mark in zip(ready, owners, of_entries, marks, strict=True):
        site, head, displaced, _ = each
        entry = slots.take(of_entry) if of_entry else RemoteAddress(0)
        if filling is None or filling.room < _ROOM:
            if filling:
                made_stubs += _written(turn, filling, in_filling)
                in_filling = []
            island = arena.islands.near(span, _ROOM, process, preferred=preferred)
            filling = Filling(arena.islands, island)
        slot = slots.take(owner)
        place = RemoteAddress(filling.place + BEFORE_STUB)
        fast = paths.of(site.signature) if len(head) > 1 else None  # a breakpoint takes longer
        made = _made(each, slot, place, entry, fast)
        if isinstance(made, str):
            closed.append(without_stub(site, made))
            continue
        of_path, code, hole = made
        filling.add(before_stub(mark, of_path) + code)
        with_hole = with_stub(site, head, slot, place, len(displaced), hole)
        heads += heads_of(with_hole, with_hole.form.modes[0])
        in_filling.append(new(Opened, (with_hole, site, site)))
    if filling:
        made_stubs += _written(turn, filling, in_filling)
    if heads:
        arena.patches.put(heads)
    return _Put(closed, made_stubs, heads)


def _span_around(maps: Sequence[Code], site: UsdtSite) -> Span:
    """The code of a site's object, as it was loaded. A program may map a piece of its own file once
    more, far away from there, as V8 does with its builtins; and have other memory in the place of
    some of it, as of large pages."""
    path = site.place.object.path
    own = [each for each in maps if each.executable and each.path == path]
    home = min(own, key=lambda each: abs(each.start - site.address))
    loaded = [each for each in own if _base(each) - _base(home) in REACH]
    return Span(loaded[0].start, loaded[-1].end)


def _base(mapping: Code) -> int:
    """Where the file would begin."""
    return mapping.start - mapping.offset


def _written(turn: Turn, filling: Filling, stubs: list[Opened]) -> list[Opened]:
    """Write stubs. The result are those that the process has where its jumps will lead."""
    address, code = filling.written()
    try:
        is_there = turn.target.memory.read(address, len(code)) == code
    except MemoryFault:
        is_there = False
    return stubs if is_there else []


def _made(
    ready: Ready,
    slot: RemoteAddress,
    place: RemoteAddress,
    entry: RemoteAddress,
    fast: Fast | None,
) -> tuple[bytes, bytes, Hole | None] | str:
    """The stub of a site for a place: what belongs to its fast path, its code with what its hole
    needs behind it, and the hole."""
    site, _, _, where = ready
    stub = _stub(ready, slot, place, entry, fast)
    if where is None or isinstance(stub, str):
        return stub if isinstance(stub, str) else (stub.before, stub.code, None)
    address = RemoteAddress(where.address + site.place.object.bias)
    before, behind = where.code[: where.size], RemoteAddress(place + len(stub.code))
    if not where.made:
        filled = hole_content(before, address, place, 0)
        return stub.before, stub.code, Hole(address, before, filled, len(where.code))
    copies = make_copies(Displaced(address, where.code), behind)
    if isinstance(copies, Unmovable):
        return f"cannot be opened: {copies.obstacle}"
    filled = hole_content(before, address, place, behind)
    return stub.before, stub.code + copies.code, Hole(address, before, filled, len(where.code))


def owner_of(site: UsdtSite) -> int:
    """Whose the slot of a site is."""
    return fnv1a(site.signature.text.encode())


def owners_of(sites: Sequence[UsdtSite]) -> list[int]:
    """The same of many."""
    return hashes_of([site.signature.text for site in sites])


def _stub(
    ready: Ready,
    slot: RemoteAddress,
    address: RemoteAddress,
    entry: RemoteAddress,
    fast: Fast | None,
) -> StubCode | str:
    site, head, displaced, _ = ready
    try:
        lost = Displaced(site.address, displaced)
        stub = code_of_stub(site, slot, lost, address, entry, head=head, fast=fast)
    except WronglyAssembled as problem:
        return f"has operands that cannot be loaded: {problem}"
    return f"cannot be opened: {stub.obstacle}" if isinstance(stub, Unmovable) else stub
