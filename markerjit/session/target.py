"""A process and what was seen in it. Nothing here changes the process, and nothing stops it.

`Target.look` sees the process anew: the mapped files, their sites, the runtime. The result is a
`Seen`, a value that stays true to its moment and is passed along instead of looking again.

What this does not do: decide when to look (view.py, turn.py), or judge what was seen (planning.py).
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from operator import attrgetter
from typing import TYPE_CHECKING, NamedTuple

from markerjit.abi import PAGE
from markerjit.arena.arena import Arena
from markerjit.arena.breakpoints import Breakpoints
from markerjit.arena.find import NO_ARENAS, Arenas, Probes, find_arenas, inherited_arenas, is_arena
from markerjit.elf import Read
from markerjit.errors import (
    BadArgument,
    MarkerError,
    MemoryFault,
    NoMarkers,
    NoSuchProcess,
    TargetGone,
    UnexpectedBytes,
    Unsupported,
)
from markerjit.memory import Mapping, ProcessMemory, has_ended, parse_maps, read_maps_text
from markerjit.model import RemoteAddress, Seccomp, Site, new
from markerjit.patch.plan import (
    BINDING_SIZE,
    SEMAPHORE_SIZE,
    SLOT_ADAPTER,
    SiteState,
    entries_of,
)
from markerjit.proc.permission import check_before_looking, why_not
from markerjit.sites import NameKind, Objects, ProbeName, discover_process, matching
from markerjit.sites.names import check_is_marker
from markerjit.sites.verify import code_state

if TYPE_CHECKING:  # most processes have no USDT probe that is looked for
    from markerjit.model import UsdtSite
    from markerjit.sites.usdt import UsdtSites

_MANY = 16


class Seen(NamedTuple):
    """The result of one look at a process.

    maps_text  /proc/PID/maps, and `maps` the same parsed
    files      those mappings in which markers can be
    objects    the objects that have markers, and their sites
    arenas     those of the runtime in the process
    opened     the sites of USDT probes that have a stub in the process: opened, or once so
    tables     the arenas that have stubs, a parent's too, and for each a number that is another
               one when its table of patches has changed since `opened` was read
    """

    maps_text: str = ""
    maps: tuple[Mapping, ...] = ()
    files: tuple[Mapping, ...] = ()
    objects: Objects = Objects((), (), ())
    arenas: Arenas = NO_ARENAS
    opened: tuple[Site, ...] = ()
    tables: tuple[tuple[RemoteAddress, int], ...] = ()

    @property
    def arena(self) -> Arena | None:
        """Of the runtime in the process, None without one."""
        return self.arenas.own

    @property
    def probes(self) -> Probes:
        """Addresses of probes that are ours, those of a parent's arena too."""
        return self.arenas.probes

    @property
    def sites(self) -> tuple[Site, ...]:
        """The sites of all markers, and of the USDT probes that have a stub."""
        return (*self.objects.sites, *self.opened) if self.opened else self.objects.sites


class Target:
    """A process, held by a pidfd from the start until `close`.

    `own` says that it is this very process. `seccomp` says what is done about its filters.
    Raises NoSuchProcess, NotPermitted, Unsupported.
    """

    def __init__(self, pid: int, *, seccomp: Seccomp = Seccomp.READ) -> None:
        self.pid = pid
        self.trusts_filters = seccomp is Seccomp.TRUST_ERRNO
        self.own = pid == os.getpid()
        self.seen = Seen()
        self._usdt: tuple[tuple[Mapping, ...], UsdtSites] | None = None
        self._closed: dict[RemoteAddress, Site] = {}
        self._recipes: dict[RemoteAddress, UsdtSite] = {}
        check_before_looking(pid)
        self.command = command_of(pid)
        with self.known():
            self.memory = ProcessMemory(pid, why_not=why_not)
        try:
            self.look()
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Let go of the process and of its arenas. May be called again."""
        self.seen.arenas.close()
        self.seen = self.seen._replace(arenas=NO_ARENAS)
        self.memory.close()

    @property
    def closed(self) -> bool:
        """Whether it was closed."""
        return self.memory.closed

    def check_open(self) -> None:
        """Raise MarkerError after `close`."""
        if self.closed:
            raise MarkerError(
                f"process {self.pid} was let go, so this cannot be used any more; attach again"
            )

    def look(self) -> Seen:
        """See the process anew. Objects are discovered again if the mapped files have changed: a
        library may have come or gone. Stacks and heaps come and go all the time, and have no
        markers. Raises TargetGone."""
        self.check_open()
        with self.memory.watched():
            self.seen = self._with_opened(self._look())
        return self.seen

    def note_arena(self, arena: Arena) -> None:
        """An arena was made in the process, beside an older one if there is one: it was seen."""
        before = self.seen.arenas
        probes = Probes([*before.probes.bases, arena.base]).with_islands_of(self.seen.maps)
        arenas = Arenas(arena, before.open, probes, before.unfinished)
        self.seen = self.seen._replace(arenas=arenas)

    def _look(self) -> Seen:
        seen = self.seen
        self._check_alive()
        with self.known():
            text = read_maps_text(self.pid, why_not=why_not)
        if text == seen.maps_text and not seen.arenas.unfinished:
            return seen
        if not text:  # the memory is taken away a moment before the process counts as ended
            raise TargetGone(self.pid)
        maps = parse_maps(text)
        files, objects = files_of(maps), seen.objects
        if files != seen.files:
            objects = discover_process(self.memory.read, maps)
            self.check_has_memory()  # else notes that could not be read would count as bad ones
        arenas = seen.arenas
        if arenas.are_all_of(maps):
            arenas = arenas._replace(probes=arenas.probes.with_islands_of(maps))
        else:
            arenas = find_arenas(self.pid, self.memory, maps, arenas.open)
        return Seen(text, maps, files, objects, arenas)

    def _with_opened(self, seen: Seen) -> Seen:
        """With the sites of USDT probes that have a stub. Islands have nothing but stubs, so most
        processes are asked nothing. The child of a fork has those of its parent, too."""
        islands = seen.arenas.probes.islands
        if not islands:
            return seen._replace(opened=(), tables=()) if seen.opened else seen
        own = seen.arenas.open
        bases = [arena.base for arena in own]
        inherited = inherited_arenas(self.pid, self.memory, seen.maps, bases)
        arenas = (*own, *inherited)
        tables = (
            *((arena.base, arena.patches.heads) for arena in own),
            *((arena.base, arena.patches.changed) for arena in inherited),
        )
        if tables == self.seen.tables and seen.files == self.seen.files:
            return seen._replace(opened=self.seen.opened, tables=tables)
        from markerjit.session.opened import opened_sites

        sites = [*self.usdt(seen).sites, *self._entered_functions(seen, arenas)]
        opened = opened_sites(self.memory.read, arenas, islands, sites)
        self._recipes = {site.address: site for site in sites}
        return seen._replace(opened=opened, tables=tables)

    def recipe_of(self, site: Site) -> UsdtSite | None:
        """What the stub of a site was made from; None where it has none."""
        return self._recipes.get(site.address)

    def _entered_functions(self, seen: Seen, arenas: Sequence[Arena]) -> tuple[UsdtSite, ...]:
        """The functions of which a table of patches has the entry: of what is neither a marker nor
        a USDT probe."""
        known = {site.address for site in seen.objects.sites}
        known |= {site.address for site in self.usdt(seen).sites}
        others = {
            RemoteAddress(entry.address)
            for arena in arenas
            for entry in arena.patches.entries(known)
            if not entry.gone
        }
        if not others:
            return ()
        from markerjit.sites.functions import functions_at

        return functions_at(self.pid, self.memory.read, seen.maps, others)

    def usdt(self, seen: Seen | None = None) -> UsdtSites:
        """The sites of the USDT probes of what is mapped, with a stub or without."""
        seen = seen or self.seen
        if self._usdt is None or self._usdt[0] != seen.files:
            from markerjit.sites.usdt import usdt_of_process

            self._usdt = seen.files, usdt_of_process(self.pid, self.memory.read, seen.maps)
            self._closed.clear()
        return self._usdt[1]

    def note_closed(self, sites: Sequence[Site]) -> None:
        """Sites of USDT probes that cannot be opened, until something else is mapped."""
        self._closed.update({site.address: site for site in sites})

    def matching(self, name: ProbeName) -> tuple[Site, ...]:
        """The sites that were seen of the markers, USDT probes and functions that the name is of. A
        site without a stub that needs one is closed, and says why.

        Raises UnknownMarker, NoMarkers where the process has none at all, and Unsupported for a
        name of anything else.
        """
        if name.is_plain:
            return self._matching(name)
        from markerjit.sites.selection import chosen

        return chosen(name, self._matching)

    def _matching(self, name: ProbeName) -> tuple[Site, ...]:
        if name.kind is NameKind.FUNCTION:
            return self._matching_functions(name)
        if name.kind is NameKind.USDT:
            return self._matching_usdt(name)
        check_is_marker(name)
        seen = self.seen
        if not seen.objects.sites:
            self.check_has_memory()  # else what ends would seem to have none
            problems = seen.objects.problems
            raise NoMarkers(
                f"process {self.pid} has no usable markers: {problems[0]}"
                if problems
                else f"process {self.pid} has no markers; was it built with marker.h, and not with "
                "MJ_MODE=none?"
            )
        return matching(seen.objects.sites, name)

    def _matching_usdt(self, name: ProbeName) -> tuple[Site, ...]:
        from markerjit.session.opened import NO_STUB, without_stub

        known = self._known()
        sites = self.unprepared(name)
        return tuple(known.get(site.address) or without_stub(site, NO_STUB) for site in sites)

    def _matching_functions(self, name: ProbeName) -> tuple[Site, ...]:
        """Those that were opened once, or that were to be. Only where there are none, all that the
        name is of: a process has ten thousands of functions."""
        from markerjit.session.opened import NO_STUB, without_stub
        from markerjit.sites.functions import check_is_entry
        from markerjit.sites.names import PREFIX
        from markerjit.sites.selection import is_of

        check_is_entry(name)
        functions = [
            site for site in self._known().values() if site.signature.name.startswith(PREFIX)
        ]
        sites = [
            site
            for site in functions
            if is_of(name, site.signature.name.removeprefix(PREFIX), site.place.object.path)
        ]
        if not sites:
            asked = self.unprepared(name)
            addresses = {site.address for site in asked}
            sites = [site for site in functions if site.address in addresses]
            sites = sites or [without_stub(site, NO_STUB) for site in asked]
        return tuple(sorted(sites, key=attrgetter("address")))

    def _known(self) -> dict[RemoteAddress, Site]:
        """The sites that have a stub, or cannot have one, by address."""
        return {**self._closed, **{site.address: site for site in self.seen.opened}}

    def unprepared(self, name: ProbeName) -> tuple[UsdtSite, ...]:
        """The sites of a name in code that nobody prepared, with a stub or without.

        Raises UnknownMarker, and Unsupported for a name of markers, or of what cannot be found.
        """
        if name.is_plain:
            return self._unprepared(name)
        from markerjit.sites.selection import chosen

        stubbed = [part for part in name.parts if part.is_of_stubs]
        return chosen(name._replace(parts=tuple(stubbed)), self._unprepared)

    def _unprepared(self, name: ProbeName) -> tuple[UsdtSite, ...]:
        if name.kind is not NameKind.FUNCTION:
            from markerjit.sites.usdt import matching_usdt

            return matching_usdt(self.usdt().sites, name)
        from markerjit.sites.functions import functions_of_process

        return functions_of_process(self.pid, self.memory.read, self.seen.maps, name).sites

    def files_changed(self) -> bool:
        """Whether files were mapped or unmapped since the last look."""
        maps = parse_maps(read_maps_text(self.pid, why_not=why_not))
        return files_of(maps) != self.seen.files

    @property
    def runtime_problem(self) -> MarkerError | None:
        """Why the runtime in the process cannot be used, and what to do."""
        return self.seen.probes.problem

    def refuse_unknown_runtime(self) -> None:
        """Raise Unsupported where a runtime is in the process that cannot be read: what that knows
        of the markers, and which controllers are at work there. Raise Refused where it is a newer
        version's, which can only be looked at: also beside one of ours, since its markers and its
        journal are not ours to judge."""
        if self.runtime_problem:
            raise Unsupported(str(self.runtime_problem))
        for arena in self.seen.arenas.open:
            arena.refuse_newer()

    def states(self, sites: Sequence[Site]) -> list[SiteState]:
        """How sites are now. One whose code is neither off nor on has a `problem`."""
        self.check_open()
        read = Reader(self.memory.read).read if len(sites) > _MANY else self.memory.read
        breakpoints = self._breakpoints()
        states = states_of(read, sites, breakpoints)
        for index, state in enumerate(states):
            if state.problem:
                states[index] = self._looked_at(state)
        shared = [
            mapping
            for mapping in self.seen.maps
            if mapping.shared and mapping.executable and not is_arena(mapping)
        ]
        if not shared:
            return states
        return [
            state._replace(
                is_shared=any(
                    mapping.start <= state.site.address < mapping.end for mapping in shared
                )
            )
            for state in states
        ]

    def state(self, site: Site) -> SiteState:
        """How a site is now."""
        return self.states([site])[0]

    def _looked_at(self, state: SiteState) -> SiteState:
        """The state, or a second look where a breakpoint seems to be another tool's: a controller
        that works meanwhile may have planted it or taken it away between our reading the code and
        the arena."""
        if state.problem is None or not state.problem.is_breakpoint:
            return state
        return states_of(self.memory.read, [state.site], self._breakpoints())[0]

    def _breakpoints(self) -> Breakpoints:
        return Breakpoints(self.seen.arena, self.seen.probes, self._inherited)

    def _inherited(self) -> Sequence[Arena]:
        arenas = self.seen.arenas
        own = [arena.base for arena in arenas.open]
        return inherited_arenas(self.pid, self.memory, self.seen.maps, own)

    def calls(self, slot: RemoteAddress) -> int:
        """How often a slot's probe in C was called; 0 where its object was unloaded."""
        with suppress(MemoryFault):
            return entries_of(self.memory.read, slot)[0]
        return 0

    def check_has_memory(self) -> None:
        """Raise TargetGone for a process that ends, too: it gives its memory up before it counts as
        ended."""
        if not self.memory.alive() or has_ended(self.pid):
            raise TargetGone(self.pid)

    def _check_alive(self) -> None:
        if not self.memory.alive():
            raise TargetGone(self.pid)

    @contextmanager
    def known(self) -> Iterator[None]:
        """For asking again of a process that was there: if it is not there now, it has ended."""
        try:
            yield
        except NoSuchProcess:
            raise TargetGone(self.pid) from None


def as_seccomp(seccomp: Seccomp | str) -> Seccomp:
    """The way that is meant, by itself or by its name. Raises BadArgument for any other."""
    try:
        return Seccomp(seccomp)
    except ValueError:
        names = " or ".join(map(str, Seccomp))
        raise BadArgument("seccomp", seccomp, names) from None


def command_of(pid: int) -> str:
    """The command line of a process; "" when it has ended, or is a kernel's."""
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            return file.read(4096).rstrip(b"\0").replace(b"\0", b" ").decode(errors="replace")
    except OSError:
        return ""


def files_of(maps: Sequence[Mapping]) -> tuple[Mapping, ...]:
    """The mappings in which markers can be. Memory of its own a program maps and unmaps all the
    time."""
    return tuple(
        mapping for mapping in maps if mapping.path[:1] not in ("", "[") and not is_arena(mapping)
    )


class Words(NamedTuple):
    """What a slot holds; zeros where there is no slot, or no such word in it."""

    probe: RemoteAddress
    data: RemoteAddress
    adapter: RemoteAddress


def words_of(read: Read, slot: RemoteAddress, *, preserving: bool) -> Words:
    """The words of a slot, whose bodies make preserving calls or not."""
    size = SLOT_ADAPTER + 8 if preserving else BINDING_SIZE
    content = read(slot, size) if slot else b""
    places = slice(0, 8), slice(8, BINDING_SIZE), slice(SLOT_ADAPTER, SLOT_ADAPTER + 8)
    return Words(*(RemoteAddress(int.from_bytes(content[at], "little")) for at in places))


def raised_of(read: Read, semaphore: RemoteAddress) -> int:
    """The count in a semaphore."""
    return int.from_bytes(read(semaphore, SEMAPHORE_SIZE), "little")


def states_of(read: Read, sites: Sequence[Site], breakpoints: Breakpoints) -> list[SiteState]:
    """How sites are now. The sites of a marker share a slot, which is read once."""
    states: list[SiteState] = []
    slots: dict[tuple[RemoteAddress, bool], Words] = {}
    for site in sites:
        body = site.body
        key = body.slot, body.preserving
        words = slots.get(key)
        if words is None:
            words = slots[key] = words_of(read, body.slot, preserving=body.preserving)
        probe, data, adapter = words
        mode, head, problem = None, b"", None
        try:
            mode, head = code_state(read, site, probe, breakpoints.has)
        except UnexpectedBytes as unexpected:
            problem = unexpected
        raised = raised_of(read, body.semaphore) if body.semaphore else 0
        fields = (site, mode, probe, data, head, problem, False, adapter, raised)
        states.append(new(SiteState, fields))
    return states


class Reader:
    """Reads by pages and keeps them: for a hundred thousand sites, at one moment."""

    def __init__(self, read: Read) -> None:
        self._read = read
        self._pages: dict[int, bytes] = {}

    def read(self, address: RemoteAddress, size: int) -> bytes:
        """As the function that it was made with; raises what that raises."""
        at = address % PAGE
        end = at + size
        if end > PAGE:
            return self._read(address, size)
        page = self._pages.get(address - at) or self._page(address - at)
        return page[at:end]

    def _page(self, start: int) -> bytes:
        page = self._pages[start] = self._read(RemoteAddress(start), PAGE)
        return page
