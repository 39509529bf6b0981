"""Replacing a function as a whole: its entry leads to another one in C, which may call the old one.

    1  the entry gets a stub, as for any probe, and its copies of the displaced instructions are the
       way into the old function
    2  the file is compiled with the address of these copies, and put into the arena. A thread may
       be in the new function, or have it on its stack, long after it was reverted: it is given
       back when nothing in the memory of the process leads there (probes/unused.py)
    3  the entry is opened, and the slot leads to a gate (probes/c/entries.py) that counts the call,
       gives the stack and the registers back as they were, and jumps to the new function

So a replacement is a probe by all that others see of it: the arena's tables have it, `status` shows
it, `off` and `revert` take it back byte for byte, and a repair settles what a killed controller has
left.

What this does not do: compare the prototypes of the two.
"""

from __future__ import annotations

from markerjit.elf.functions import NoFunctions
from markerjit.errors import BadArgument, BadFile, Reason, Refused, Unsupported
from markerjit.model import Mode, RemoteAddress, Site, UsdtSite
from markerjit.patch.apply import Applied
from markerjit.patch.request import Count, InC, Request
from markerjit.probes.c.compile import compile_replacement
from markerjit.probes.c.unit import PROBE_IN_C, split_probe
from markerjit.probes.loaded import replacement_at
from markerjit.probes.recorders import digest_of_objects
from markerjit.session.copies import copies_of
from markerjit.session.openings import exits_of_functions
from markerjit.session.probes_in_c import load_probe
from markerjit.session.switch import Switcher
from markerjit.session.target import key_of
from markerjit.session.turn import Turn
from markerjit.sites import ProbeName
from markerjit.sites.mapped_files import image_of
from markerjit.sites.names import NameKind
from markerjit.sites.selection import has_caller


def replace(switcher: Switcher, name: ProbeName, new: str) -> Applied:
    """Have the one function of a name lead to `FILE.c:function`. Raises what `replace` of a session
    does."""
    if name.kind is not NameKind.FUNCTION or name.at_return or name.parts:
        raise BadArgument("function", name.text, "the name of one function, as func:NAME")
    source, function = split_probe(new, "new", PROBE_IN_C)
    opening = Request(True, switcher.planner.strategy(None), Mode.JUMP, Count())
    with switcher.turn() as turn:
        original = _way_into(switcher, turn, name, opening)[1]
    compiled = compile_replacement(source, function, original)
    probe = InC(source.name, function, digest=digest_of_objects(compiled.objects), replaces=True)
    request = opening._replace(probe=probe)
    with switcher.turn() as turn:
        site, again = _way_into(switcher, turn, name, opening)
        if again != original:
            raise Refused(f"{name} was given another stub meanwhile; try again", try_again=True)
        _refuse_held(switcher, turn, site)
        load_probe(turn, switcher, [site], request, compiled)
        return switcher.switch(turn, [site], request).applied


def revert(switcher: Switcher, name: ProbeName) -> Applied:
    """Take the replacement of a function back. Raises Refused where it is not replaced."""
    with switcher.turn() as turn:
        states = turn.target.states(turn.target.matching(name))
        recorders = switcher.recorders
        replaced = [
            state.site for state in states
            if recorders and state.mode and replacement_at(recorders.arena, state.probe)
        ]  # fmt: skip
        if not replaced:
            raise Refused(f"'{name}' does not name a replaced function")
        return switcher.switch(turn, replaced, switcher.planner.off()).applied


def _way_into(
    switcher: Switcher, turn: Turn, name: ProbeName, request: Request
) -> tuple[Site, RemoteAddress]:
    """The entry of the function, which has a stub, and the copies of what is displaced there.
    Raises Refused where it cannot be replaced."""
    target = turn.target
    if has_caller(name, (mapping.path for mapping in turn.seen.files)):
        raise BadArgument("function", name.text, "a function without a caller: all calls are meant")
    asked = target.unprepared(name)
    if len(asked) > 1:
        places = ", ".join(site.place.source for site in asked[:3])
        raise Refused(
            f"'{name}' names {len(asked)} functions ({places}{', …' * (len(asked) > 3)}); name "
            "one, as func:OBJECT:NAME"
        )
    _refuse_loops(turn, asked[0])
    switcher.need_stubs(turn, name, request)
    key = key_of(asked[0])
    site = next((each for each in target.matching(name) if key_of(each) == key), None)
    if site is None or Mode.JUMP not in site.form.ways:
        closed = site.form.closed if site else ""
        if site and site.form.reason is Reason.NEEDS_BREAKPOINT:
            closed = ""  # which would not do, either
        explain = f"markerjit explain {target.pid} {name} says why"
        why = f"it {closed}" if closed else f"no jump fits at its entry; {explain}"
        raise Refused(f"{name} cannot be replaced: {why}")
    original = copies_of(target, site).get(site.address)
    if original is None:
        raise Refused(
            f"{name} cannot be replaced: its stub is not as this markerjit makes it, so the way "
            "into the old function is not known"
        )
    return site, RemoteAddress(original)


def _refuse_loops(turn: Turn, entry: UsdtSite) -> None:
    """Raise Refused for a function that jumps to its own start, in the middle of its work: that
    would come to the new one. And for one of which that is not known."""
    target, mapped = turn.target, entry.place.object
    try:
        with image_of(target.pid, target.memory.read, turn.seen.maps, mapped) as image:
            offset = entry.place.offset
            exits = exits_of_functions(image, {offset})[offset]
    except (BadFile, NoFunctions) as problem:
        raise Unsupported(f"{entry.signature.name} cannot be replaced: {problem}") from None
    if exits.unbounded or exits.again:
        why = str(exits.unbounded or "it jumps back to its own start in the middle of its work")
        raise Refused(f"{entry.signature.name} cannot be replaced: {why}")


def _refuse_held(switcher: Switcher, turn: Turn, site: Site) -> None:
    """Raise Refused where something else is on at the entry: it would end by that."""
    state = turn.target.state(site)
    recorders = switcher.recorders
    if state.mode and recorders and not replacement_at(recorders.arena, state.probe):
        raise Refused(f"{site.name} is on; switch that off first, or it would be lost")
