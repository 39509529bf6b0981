"""A process and what was seen in it. Nothing here changes the process, and nothing stops it.

`Target.look` sees the process anew: the mapped files, their sites, the runtime. The result is a
`Seen`, a value that stays true to its moment and is passed along instead of looking again.

What this does not do: decide when to look (view.py, turn.py), read how a site is (states.py), or
judge what was seen (planning.py).
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence, Set
from collections.abc import Mapping as Map
from contextlib import contextmanager, suppress
from operator import attrgetter
from typing import TYPE_CHECKING

from markerjit.arena.mapped import NO_ARENAS, Arenas, Probes, is_arena
from markerjit.errors import (
    BadArgument,
    MarkerError,
    MemoryFault,
    NoMarkers,
    NoSuchProcess,
    TargetGone,
    Unsupported,
)
from markerjit.memory import Mapping, ProcessMemory, has_ended, parse_maps, read_maps_text
from markerjit.model import RemoteAddress, Seccomp, Site
from markerjit.proc.permission import check_before_looking, why_not
from markerjit.sites import Lot, Lots, NameKind, Objects, ProbeName, discover_process, matching
from markerjit.sites.names import check_is_marker
from markerjit.tuples import NamedTuple

if TYPE_CHECKING:  # most processes have no arena, and no USDT probe that is looked for
    from markerjit.arena.arena import Arena
    from markerjit.arena.breakpoints import Breakpoints
    from markerjit.model import UsdtSite
    from markerjit.patch.switchable import SiteState
    from markerjit.remote.mappings import Mappings
    from markerjit.session.opened import Opened
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
    mapped     all mappings as the kernel tells them one by one; None where it was not asked
    """

    maps_text: str = ""
    maps: tuple[Mapping, ...] = ()
    files: tuple[Mapping, ...] = ()
    objects: Objects = Objects(Lots(()), (), ())
    arenas: Arenas = NO_ARENAS
    opened: tuple[Site, ...] = ()
    tables: tuple[tuple[RemoteAddress, int], ...] = ()
    mapped: bytes | None = None

    @property
    def arena(self) -> Arena | None:
        """Of the runtime in the process, None without one."""
        return self.arenas.own

    @property
    def probes(self) -> Probes:
        """Addresses of probes that are ours, those of a parent's arena too."""
        return self.arenas.probes

    @property
    def sites(self) -> Lots:
        """The sites of all markers, and of the USDT probes that have a stub."""
        markers = self.objects.sites
        return Lots((*markers.lots, *map(Lot.of, self.opened))) if self.opened else markers


class Target:
    """A process, held by a pidfd from the start until `close`.

    `own` says that it is this very process. `seccomp` says what is done about its filters. A
    `glance` is for one look at what is on: it leaves out the sites with stubs where all of them are
    as they were before.
    Raises NoSuchProcess, NotPermitted, Unsupported.
    """

    def __init__(self, pid: int, *, seccomp: Seccomp = Seccomp.READ, glance: bool = False) -> None:
        self.pid = pid
        self._glances = glance
        self.trusts_filters = seccomp is Seccomp.TRUST_ERRNO
        self._opened_by = os.getpid()
        self.own = pid == self._opened_by
        self.seen = Seen()
        self._usdt: tuple[tuple[Mapping, ...], UsdtSites] | None = None
        self._ancestors: tuple[tuple[Mapping, ...], Sequence[Arena]] = (), ()
        self._entered: tuple[object, tuple[UsdtSite, ...]] = None, ()
        self.unopenable: Map[Key, Site] = {}
        """Those that `note_closed` was told of; another mapping whenever it has other sites."""
        self._sharing: tuple[Sequence[Site], Map[RemoteAddress, Sequence[Site]]] = (), {}
        self._opened: dict[Key, Opened] = {}
        self._left = _Left((), {}, {})
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
        """Raise MarkerError after `close`, and in the child of a fork. That has the lock together
        with its parent, and what is this process for one of them is not for the other."""
        if os.getpid() != self._opened_by:
            raise MarkerError(
                f"process {self._opened_by} has opened this session of process {self.pid}, and we "
                "are a child that it has forked; attach again"
            )
        if self.closed:
            raise MarkerError(
                f"process {self.pid} was released, so this cannot be used any more; attach again"
            )

    def look(
        self,
        mappings: Mappings | None = None,
        *,
        expected: Sequence[UsdtSite] = (),
        made: Sequence[Opened] = (),
    ) -> Seen:
        """See the process anew. Objects are discovered again if the mapped files have changed: a
        library may have come or gone. Stacks and heaps come and go all the time, and have no
        markers. A caller that looks again and again gives the `mappings` of the process, and then
        its maps are read only when these are not as before. Sites that have just got stubs are
        `expected`: their marks are asked first, and nothing is looked for at their addresses. The
        same goes for those that were found before. The stubs of those that are `made` were read
        back from the process, and are not asked again. Raises TargetGone."""
        self.check_open()
        with self.memory.watched():
            seen = self._look(mappings)
            with seen.arenas.open_beside(self.seen.arenas):
                self.seen = self._with_opened(seen, expected, made)
        return self.seen

    def note_arena(self, arena: Arena) -> None:
        """An arena was made in the process, beside an older one if there is one: it was seen."""
        before = self.seen.arenas
        probes = Probes([*before.probes.bases, arena.base]).with_islands_of(self.seen.maps)
        arenas = Arenas(arena, before.open, probes, before.unfinished)
        self.seen = self.seen._replace(arenas=arenas)

    def _look(self, mappings: Mappings | None) -> Seen:
        seen = self.seen
        self._check_alive()
        mapped = mappings.now() if mappings else None
        if mapped and mapped == seen.mapped and not seen.arenas.unfinished:
            return seen
        with self.known():
            text = read_maps_text(self.pid, why_not=why_not)
        if not text:  # the memory is taken away a moment before the process counts as ended
            raise TargetGone(self.pid)
        is_same = text == seen.maps_text
        maps = seen.maps if is_same else parse_maps(text)
        if mapped and not _are_told(mapped, maps):
            mapped = None  # the one and the other may be of two moments
        if is_same and not seen.arenas.unfinished:
            return seen._replace(mapped=mapped) if mapped else seen
        files, objects = files_of(maps), seen.objects
        if files != seen.files:
            objects = discover_process(self.memory.read, maps)
            self.check_has_memory()  # else notes that could not be read would count as bad ones
        arenas = seen.arenas
        if arenas.are_all_of(maps):
            arenas = arenas._replace(probes=arenas.probes.with_islands_of(maps))
        else:
            arenas = _arenas_of(self.pid, self.memory, maps, arenas.open)
        return Seen(text, maps, files, objects, arenas, mapped=mapped)

    def _with_opened(
        self, seen: Seen, expected: Sequence[UsdtSite], made: Sequence[Opened]
    ) -> Seen:
        """With the sites of USDT probes that have a stub. Islands have nothing but stubs, so most
        processes are asked nothing. The child of a fork has those of its parent, too."""
        islands = seen.arenas.probes.islands
        if not islands:
            return seen._replace(opened=(), tables=()) if seen.opened else seen
        from markerjit.arena.find import inherited_arenas
        from markerjit.session.opened import any_open, opened_sites
        from markerjit.session.states import Reader

        own = seen.arenas.open
        if self._ancestors[0] is not seen.maps:
            bases = [arena.base for arena in own]
            ancestors = inherited_arenas(self.pid, self.memory, seen.maps, bases)
            self._ancestors = seen.maps, ancestors
        inherited = self._ancestors[1]
        arenas = (*own, *inherited)
        tables = _tables_of(own, inherited)
        if tables == self.seen.tables and seen.files == self.seen.files:
            return seen._replace(opened=self.seen.opened, tables=tables)
        read = Reader(self.memory.read).read
        prepared = {site.address for site in seen.objects.sites}
        if self._glances and not any_open(read, arenas, prepared):
            return seen._replace(opened=(), tables=tables)
        certain = {
            key_of(each.site): each
            for each in made
            if any(start <= each.site.body.entry < end for start, end in islands)
        }
        asked = self._expected_sites(seen, expected)
        others_asked = [site for site in asked if key_of(site) not in certain]
        opened = opened_sites(read, arenas, islands, others_asked)
        opened += tuple(certain.values())
        known = {site.address for site in (*seen.objects.sites, *self.usdt(seen).sites)}
        known |= {each.site.address for each in opened}
        functions = self._entered_functions(seen, arenas, known)
        opened += opened_sites(read, arenas, islands, functions)
        others = _others(arenas, known | {each.site.address for each in opened})
        if others:
            from markerjit.sites.instructions import instructions_at

            instructions = list(instructions_at(self.pid, read, seen.maps, others))
            opened += opened_sites(read, arenas, islands, instructions)
            others -= {each.site.address for each in opened}
        if others:
            from markerjit.sites.calls import calls_at

            calls = calls_at(self.pid, read, seen.maps, others)
            opened += opened_sites(read, arenas, islands, calls)
        self._opened = {key_of(each.site): each for each in opened}
        return seen._replace(opened=tuple(each.site for each in opened), tables=tables)

    def _expected_sites(self, seen: Seen, expected: Sequence[UsdtSite]) -> list[UsdtSite]:
        """The USDT sites, and others that may have a stub: each stub says whether it is theirs."""
        before = self._opened.values() if seen.files == self.seen.files else ()
        sites = {key_of(site): site for site in self.usdt(seen).sites}
        for site in (*(each.known for each in before), *expected):
            sites.setdefault(key_of(site), site)
        return [*sites.values()]

    def tables(self) -> tuple[tuple[RemoteAddress, int], ...]:
        """The `tables` of what was seen, as they are now: those of a parent's arenas, too, where
        there are stubs."""
        inherited = self._ancestors[1] if self._ancestors[0] is self.seen.maps else ()
        return _tables_of(self.seen.arenas.open, inherited)

    def recipe_of(self, site: Site) -> UsdtSite | None:
        """What the stub of a site was made from. None where it has none, and where a controller
        that knows other arguments has made it."""
        opened = self._opened.get(key_of(site))
        return opened.recipe if opened else None

    def entry_of(self, site: Site) -> Site | None:
        """The entry whose arguments the events of an exit have; None of anything else."""
        return self._left_now().entries.get(key_of(site))

    def exits_of(self, entry: Site) -> Sequence[Site]:
        """The exits with a stub whose events have the arguments of this entry."""
        return self._left_now().exits.get(key_of(entry), ())

    def _left_now(self) -> _Left:
        opened = self.seen.opened
        if self._left.opened is not opened:
            self._left = left = _Left(opened, {}, {})
            for key, (site, _, known) in self._opened.items():
                entry = self._opened.get(key_of(known.enters)) if known.enters else None
                if entry:
                    left.entries[key] = entry.site
                    left.exits.setdefault(key_of(entry.site), []).append(site)
        return self._left

    def _entered_functions(
        self, seen: Seen, arenas: Sequence[Arena], known: Set[RemoteAddress]
    ) -> tuple[UsdtSite, ...]:
        """The functions of which a table of patches has the entry, or an exit, at an address that
        is not `known`."""
        from markerjit.arena.patches import PatchKind
        from markerjit.session.opened import entry_left_at
        from markerjit.session.states import Reader

        others: set[RemoteAddress] = set()
        left: dict[RemoteAddress, int] = {}
        read = Reader(self.memory.read).read
        for arena in arenas:
            table = arena.patches.look()
            for entry in arena.patches.entries(known):
                if entry.gone or entry.kind == PatchKind.HOLE:
                    continue
                function = entry_left_at(read, table, entry)
                if function is None:
                    others.add(RemoteAddress(entry.address))
                else:
                    left[RemoteAddress(entry.address)] = function
        if not others and not left:
            return ()
        from markerjit.sites.functions import functions_at

        functions = functions_at(self.pid, self.memory.read, seen.maps, others)
        return (*functions, *self._left_functions(seen, left)) if left else functions

    def _left_functions(self, seen: Seen, left: Map[RemoteAddress, int]) -> tuple[UsdtSite, ...]:
        """The exits at these addresses, of functions that their objects have there."""
        from markerjit.session.exits import leavings_of, sites_at
        from markerjit.sites.functions import functions_at, mapped_from

        read, maps = self.memory.read, seen.maps
        entries = mapped_from(read, maps, left)
        functions = functions_at(self.pid, read, maps, entries)
        return tuple(sites_at(leavings_of(self.pid, read, maps, functions), set(left)))

    def usdt(self, seen: Seen | None = None) -> UsdtSites:
        """The sites of the USDT probes of what is mapped, with a stub or without."""
        seen = seen or self.seen
        if self._usdt is None or self._usdt[0] != seen.files:
            from markerjit.sites.usdt import usdt_of_process

            self._usdt = seen.files, usdt_of_process(self.pid, self.memory.read, seen.maps)
            self.unopenable = {}
        return self._usdt[1]

    def note_closed(self, sites: Sequence[Site]) -> None:
        """Sites that cannot have a stub, until something else is mapped."""
        closed = {key_of(site): site for site in sites}
        if any(self.unopenable.get(key) != site for key, site in closed.items()):
            self.unopenable = {**self.unopenable, **closed}

    def matching(self, name: ProbeName) -> Sequence[Site]:
        """The sites that were seen of the markers, USDT probes and functions that the name is of. A
        site without a stub that needs one is closed, and says why.

        Raises UnknownMarker, NoMarkers where the process has none at all, and Unsupported for a
        name of anything else.
        """
        if name.is_plain:
            return self._matching(name)
        from markerjit.sites.selection import chosen

        return chosen(name, self._matching)

    def bounds(self, glob: str) -> tuple[range, ...]:
        """The code of the functions that a glob names. Raises as `bounds_of_process`."""
        from markerjit.sites.bounds import bounds_of_process  # it imports numpy

        return bounds_of_process(self.pid, self.memory.read, self.seen.maps, glob)

    def _alone(self, name: ProbeName) -> ProbeName:
        """The name of a function without its caller, which is one. Raises UnknownMarker."""
        from markerjit.sites.selection import has_caller, without_caller

        if not has_caller(name, (mapping.path for mapping in self.seen.files)):
            return name
        self.bounds(name.object)
        return without_caller(name)

    def _matching(self, name: ProbeName) -> Sequence[Site]:
        if name.kind is NameKind.FUNCTION:
            return self._matching_functions(name)
        if name.kind is NameKind.INSTRUCTION:
            return self._matching_instructions(name)
        if name.kind is NameKind.CALL:
            return self._matching_entered(name)
        if name.kind is NameKind.USDT:
            return self._matching_usdt(name)
        if name.kind is NameKind.EVERYTHING:
            return self._everything()
        check_is_marker(name)
        seen = self.seen
        if not seen.objects.sites:
            self.check_has_memory()  # else what ends would seem to have none
            problems = seen.objects.problems
            raise NoMarkers(self._no_markers(problems))
        return matching(seen.objects.sites, name, f"markerjit list {self.pid} shows the markers")

    def _no_markers(self, problems: Sequence[object]) -> str:
        """What to do where a process has no marker."""
        if problems:
            return f"process {self.pid} has no usable markers: {problems[0]}"
        if self.seen.opened:
            return (
                f"process {self.pid} has no markers, but functions, calls or USDT probes that were "
                f"named by a switch; markerjit status {self.pid} shows what is on, and markerjit "
                f"off {self.pid} without a pattern ends all of it"
            )
        return (
            f"process {self.pid} has no markers; was it built with marker.h, and not with "
            "MJ_MODE=none? You can also name functions, such as func:malloc, and USDT probes: "
            f"markerjit list {self.pid} --usdt"
        )

    def _matching_usdt(self, name: ProbeName) -> tuple[Site, ...]:
        from markerjit.session.opened import with_stub_to_come

        known = self._known()
        sites = self.unprepared(name)
        return tuple(known.get(key_of(site)) or with_stub_to_come(site) for site in sites)

    def _matching_functions(self, name: ProbeName) -> tuple[Site, ...]:
        """Those that were opened once, or that were to be. Only where there are none, all that the
        name is of: a process has ten thousands of functions."""
        from markerjit.sites.functions import check_is_function

        check_is_function(name)
        return self._matching_entered(self._alone(name))

    def _matching_entered(self, name: ProbeName) -> tuple[Site, ...]:
        """The same of functions or calls, of which one may have been asked for by another name."""
        from markerjit.session.opened import with_stub_to_come
        from markerjit.sites.selection import is_meant

        sites = [site for site in self._known().values() if is_meant(name, site)]
        if not sites:
            asked = self.unprepared(name)
            known = self._known()
            sites = [known[key_of(site)] for site in asked if key_of(site) in known]
            sites = sites or [with_stub_to_come(site) for site in asked]
        return tuple(sorted(sites, key=attrgetter("address")))

    def _matching_instructions(self, name: ProbeName) -> tuple[Site, ...]:
        """Those that were opened once, or that were to be; and where there are none, those that the
        name is of."""
        from markerjit.session.opened import with_stub_to_come
        from markerjit.sites.selection import is_meant

        known = self._known()
        sites = [site for site in known.values() if is_meant(name, site)]
        if not sites:
            sites = [with_stub_to_come(site) for site in self.unprepared(name)]
        return tuple(sorted(sites, key=attrgetter("address")))

    def _known(self) -> dict[Key, Site]:
        """The sites that have a stub, or cannot have one."""
        return {**self.unopenable, **{key_of(site): site for site in self.seen.opened}}

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
        if name.kind is NameKind.INSTRUCTION:
            from markerjit.sites.instructions import instructions_of_process

            read, maps = self.memory.read, self.seen.maps
            return instructions_of_process(self.pid, read, maps, name).sites
        if name.kind is NameKind.CALL:
            from markerjit.sites.calls import calls_of_process

            return calls_of_process(self.pid, self.memory.read, self.seen.maps, name).sites
        if name.kind is not NameKind.FUNCTION:
            from markerjit.sites.usdt import matching_usdt

            return matching_usdt(self.usdt(), name)
        name = self._alone(name)
        entries = self._entries(name)
        if not name.at_return:
            return entries
        from markerjit.session.exits import leavings_of  # decodes the functions

        leavings = leavings_of(self.pid, self.memory.read, self.seen.maps, entries)
        return tuple(site for leaving in leavings for site in leaving.sites)

    def _entries(self, name: ProbeName) -> tuple[UsdtSite, ...]:
        """Where the functions of a name are entered, also of one with `:return`. A list mostly
        names the same functions with it and without."""
        key = self.seen.files, name.object, name.name
        if self._entered[0] != key:
            from markerjit.sites.functions import functions_of_process

            functions = functions_of_process(
                self.pid, self.memory.read, self.seen.maps, name, counts_nameless=False
            )
            self._entered = key, functions.sites
        return self._entered[1]

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

    def _everything(self) -> Sequence[Site]:
        sites = self.all_sites()
        if not sites:
            raise NoMarkers(f"nothing is on in process {self.pid}, and it has no markers")
        return sites

    def all_sites(self) -> Sequence[Site]:
        """The sites of EVERYTHING. After `calls`, thousands of functions were on."""
        opened = self.seen.opened
        if not opened:
            return self.seen.sites
        names = {state.site.marker for state in self.states(opened) if state.mode or state.problem}
        return self.seen._replace(
            opened=tuple(site for site in opened if site.marker in names)
        ).sites

    def states(self, sites: Sequence[Site]) -> list[SiteState]:
        """How sites are now: a state for each lot of them, or more where its sites differ now, and
        one for each site that came singly. One whose code is neither off nor on has a `problem`."""
        self.check_open()
        if not sites:
            return []
        from markerjit.session.states import Reader, states_of

        shared = [
            mapping
            for mapping in self.seen.maps
            if mapping.shared and mapping.executable and not is_arena(mapping)
        ]
        lots = Lots.of(tuple(sites) if shared else sites).lots
        read = Reader(self.memory.read).read if len(sites) > _MANY else self.memory.read
        states = states_of(read, lots, self._breakpoints())
        altered = [index for index, state in enumerate(states) if state.problem]
        if altered:
            sharing = self._sharing_with([states[index].site for index in altered])
            for index in altered:
                states[index] = self._looked_at(states[index], sharing)
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

    def _looked_at(
        self, state: SiteState, sharing: Map[RemoteAddress, Sequence[Site]]
    ) -> SiteState:
        """The state with its problem, or a second look where a breakpoint seems to be another
        tool's: a controller that works meanwhile may have planted it or taken it away between our
        reading the code and the arena. Where another site of ours is open in the same bytes, as
        `sharing` has them, this one is off."""
        assert state.problem
        from markerjit.session.states import states_of

        lots = [Lot.of(site) for site in sharing.get(state.site.address, ()) if site.body.covers]
        others = states_of(self.memory.read, lots, self._breakpoints())
        if any(other.code_mode for other in others):
            return state._replace(problem=None)
        if not state.problem.is_breakpoint:
            return state
        return states_of(self.memory.read, [state.lot], self._breakpoints())[0]

    def _sharing_with(self, sites: Iterable[Site]) -> Map[RemoteAddress, Sequence[Site]]:
        """The same as `sharing`, with those of these sites that have no stub."""
        unopened = [site for site in sites if not site.body.covers]
        if not unopened or not self.seen.opened:
            return self.sharing()
        from markerjit.session.taken import sharing

        return sharing((*self.seen.opened, *unopened))

    def sharing(self) -> Map[RemoteAddress, Sequence[Site]]:
        """The sites with a stub that have instructions of others, by address, and those."""
        opened = self.seen.opened
        if self._sharing[0] is not opened:
            from markerjit.session.taken import sharing

            self._sharing = opened, sharing(opened)
        return self._sharing[1]

    def _breakpoints(self) -> Breakpoints:
        from markerjit.arena.breakpoints import Breakpoints

        return Breakpoints(self.seen.arena, self.seen.probes, self._inherited)

    def _inherited(self) -> Sequence[Arena]:
        from markerjit.arena.find import inherited_arenas

        arenas = self.seen.arenas
        own = [arena.base for arena in arenas.open]
        return inherited_arenas(self.pid, self.memory, self.seen.maps, own)

    def calls(self, slot: RemoteAddress) -> int:
        """How often a slot's probe in C was called; 0 where its object was unloaded."""
        from markerjit.patch.slots import entries_of

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


Key = tuple[RemoteAddress, str]
"""Of a site without a stub: one that cannot have one may be said to be where a function begins."""


class _Left(NamedTuple):
    """Of sites with stubs: the entry of each exit, and the exits of each entry."""

    opened: Sequence[Site]
    entries: dict[Key, Site]
    exits: dict[Key, list[Site]]


def _arenas_of(
    pid: int, memory: ProcessMemory, maps: Sequence[Mapping], known: Sequence[Arena]
) -> Arenas:
    """The arenas of a process, as `find_arenas` finds them. Most processes have none, and then
    nothing is imported."""
    if not any(map(is_arena, maps)):
        return NO_ARENAS
    from markerjit.arena.find import find_arenas

    return find_arenas(pid, memory, maps, known)


def _tables_of(
    own: Sequence[Arena], inherited: Sequence[Arena]
) -> tuple[tuple[RemoteAddress, int], ...]:
    """The tables of patches of arenas, each with a number that is another one when it says
    something else of heads; of a parent's also when it says something else of a breakpoint."""
    return (
        *((arena.base, arena.patches.heads) for arena in own),
        *((arena.base, arena.patches.changed) for arena in inherited),
    )


def _others(arenas: Sequence[Arena], known: Set[RemoteAddress]) -> set[RemoteAddress]:
    """The heads in tables of patches at addresses that are not `known`."""
    from markerjit.arena.patches import PatchKind

    return {
        RemoteAddress(entry.address)
        for arena in arenas
        for entry in arena.patches.entries(known)
        if not entry.gone and entry.kind != PatchKind.HOLE
    }


def key_of(site: Site | UsdtSite) -> Key:
    """The address of a site, and its name."""
    return site.address, site.signature.name


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


def _are_told(mapped: bytes, maps: Iterable[Mapping]) -> bool:
    from markerjit.remote.mappings import are_told

    places = ((each.start, each.end, each.offset, each.inode)
              for each in maps if each.path != "[vsyscall]")  # fmt: skip
    return are_told(mapped, places)
