"""A view of a process: its markers, how they are, what their counters say.

It only reads. It stops nobody, writes nothing, and needs no native code; `Session` adds switching.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from types import TracebackType
from typing import TYPE_CHECKING, Self

from markerjit.abi import PAGE
from markerjit.arena.arena import Arena
from markerjit.arena.breakpoints import Breakpoints
from markerjit.arena.find import Probes, find_arenas, inherited_arenas, is_arena
from markerjit.arguments import check_all, check_int, check_pid, check_text
from markerjit.elf import Read
from markerjit.errors import (
    MarkerError,
    MemoryFault,
    NoMarkers,
    NoSuchProcess,
    TargetGone,
    UnexpectedBytes,
)
from markerjit.memory import Mapping, ProcessMemory, has_ended, parse_maps, read_maps_text
from markerjit.model import RemoteAddress, Site
from markerjit.patch.plan import SLOT_SIZE, SiteState, entries_of
from markerjit.proc.permission import check_before_looking, why_not
from markerjit.session.status import ArenaStatus, MarkerStatus, arena_status, marker_statuses
from markerjit.sites import Objects, discover_process, matching
from markerjit.sites.verify import code_state

if TYPE_CHECKING:
    from markerjit.probes.loaded import Values

_MANY = 16


class View:
    """Open until `close`, or for the length of a `with`. `pid` is the process, `command` its line.

    Raises NoSuchProcess, NotPermitted, Unsupported, NoMarkers.
    """

    def __init__(self, pid: int) -> None:
        check_pid(pid)
        self.pid = pid
        self._maps: tuple[Mapping, ...] = ()
        self._maps_text = ""
        self._files: tuple[Mapping, ...] = ()
        self._objects = Objects((), (), (), None)
        self._arena: Arena | None = None
        self._in_the_making = False
        self._probes = Probes()
        check_before_looking(pid)
        self.command = command_of(pid)
        with self._known():
            self._memory = ProcessMemory(pid, why_not=why_not)
        try:
            self._look_again()
            if not self._objects.sites:
                self._check_has_memory()
                raise NoMarkers(self._no_markers())
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """End it. What is switched on stays on. May be called again."""
        if self._arena:
            self._arena.close()
            self._arena = None
        self._memory.close()

    @property
    def closed(self) -> bool:
        """Whether it was closed."""
        return self._memory.closed

    def __repr__(self) -> str:
        command = "".join(one if one.isprintable() else "?" for one in self.command[:60])
        state = "closed" if self.closed else "open"
        return f"<{type(self).__name__} of {self.pid} ({command}), {state}>"

    def __del__(self) -> None:
        """Like a file that was not closed: it is said (python -X dev), and closed."""
        if "_memory" in vars(self) and not self.closed:
            warnings.warn(f"unclosed {self!r}", ResourceWarning, stacklevel=2, source=self)
            self.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def sites(self, pattern: str = "*") -> tuple[Site, ...]:
        """The sites of all markers whose names match the shell glob.

        Raises UnknownMarker, with the nearest names, when none does.
        """
        check_text("pattern", pattern)
        self._look_again()
        return self._matching(pattern)

    @property
    def problems(self) -> Sequence[Exception]:
        """Notes that could not be believed; their sites are not offered."""
        return self._objects.problems

    def states(self, sites: Sequence[Site]) -> list[SiteState]:
        """How sites are now. One whose code is neither off nor on has a `problem`."""
        check_all("sites", sites, Site)
        self._check_open()
        read = Reader(self._memory.read).read if len(sites) > _MANY else self._memory.read
        breakpoints = self._breakpoints()
        states = [self._looked_at(state_of(read, site, breakpoints)) for site in sites]
        shared = [
            mapping
            for mapping in self._maps
            if mapping.shared and mapping.executable and not is_arena(mapping)
        ]
        if not shared:
            return states
        return [
            state._replace(
                is_shared=any(one.start <= state.site.address < one.end for one in shared)
            )
            for state in states
        ]

    def _looked_at(self, state: SiteState) -> SiteState:
        """The state, or a second look where a breakpoint seems to be another tool's: a controller
        that works meanwhile may have planted it or taken it away between our reading the code and
        the arena."""
        if state.problem is None or not state.problem.is_breakpoint:
            return state
        return state_of(self._memory.read, state.site, self._breakpoints())

    def _breakpoints(self) -> Breakpoints:
        return Breakpoints(self._arena, self._probes, self._inherited)

    def _inherited(self) -> Sequence[Arena]:
        return inherited_arenas(self.pid, self._memory, self._maps, self._arena)

    def statistics(self, pattern: str = "*") -> list[MarkerStatus]:
        """Every marker that matches: whether it is on, since when, by whom, hits and losses."""
        states = self.states(self.sites(pattern))
        return marker_statuses(states, self._arena, self._probes, self._calls)

    def _calls(self, slot: RemoteAddress) -> int:
        """How often a slot's probe in C was called; 0 where its object was unloaded."""
        with suppress(MemoryFault):
            return entries_of(self._memory.read, slot)[0]
        return 0

    def probe_values(self) -> list[Values]:
        """What probes in C have counted, by file."""
        self._look_again()
        if self._arena is None or not self._arena.current().data_used:
            return []
        from markerjit.probes.loaded import values

        return values(self._arena)

    def arena(self) -> ArenaStatus | None:
        """What the process holds of ours, and by whom; None without the runtime, or where
        `runtime_problem` says that it cannot be read."""
        if self._arena is None:
            return None
        # The lock first: a change that ends in between leaves an empty journal.
        locked = self._memory.is_locked()
        return arena_status(self._arena, locked=locked)

    @property
    def has_runtime(self) -> bool:
        """Whether the runtime is in the process already."""
        return self._arena is not None or self.runtime_problem is not None

    @property
    def runtime_problem(self) -> MarkerError | None:
        """Why the runtime in the process cannot be used, and what to do: mostly because another
        version of markerjit has put it there. Markers can be looked at then, not switched."""
        return self._probes.problem

    def read(self, address: RemoteAddress, size: int) -> bytes:
        """Bytes of the target, up to a GiB at once."""
        check_int("address", address, 0, (1 << 64) - 1)
        check_int("size", size, 0, 1 << 30)
        self._check_open()
        return self._memory.read(address, size)

    def _look_again(self) -> None:
        """Discover again if the mapped files have changed: a library may have come or gone. Stacks
        and heaps come and go all the time, and have no markers."""
        self._check_open()
        with self._memory.watched():
            self._look()

    def _look(self) -> None:
        self._check_alive()
        with self._known():
            text = read_maps_text(self.pid, why_not=why_not)
        if text == self._maps_text and not self._in_the_making:
            return
        if not text:  # its memory is taken away a moment before it counts as ended
            raise TargetGone(self.pid)
        maps = parse_maps(text)
        files = files_of(maps)
        if files != self._files:
            objects = discover_process(self._memory.read, maps)
            self._check_has_memory()  # else notes that could not be read would count as bad ones
            self._objects, self._files = objects, files
        self._maps, self._maps_text = maps, text
        if self._arena is None:
            self._arena, self._probes = find_arenas(self.pid, self._memory, maps)
        # Another controller may have mapped one and not filled it yet: that changes no mapping.
        self._in_the_making = self._arena is None and any(map(is_arena, maps))

    def _matching(self, pattern: str) -> tuple[Site, ...]:
        return matching(self._objects.sites, pattern)

    def _check_alive(self) -> None:
        if not self._memory.alive():
            raise TargetGone(self.pid)

    def _check_open(self) -> None:
        if self.closed:
            raise MarkerError(f"{self!r} cannot be used any more; attach again")

    def _check_has_memory(self) -> None:
        """The same, and more slowly: it gives its memory up before it counts as ended."""
        if not self._memory.alive() or has_ended(self.pid):
            raise TargetGone(self.pid)

    @contextmanager
    def _known(self) -> Iterator[None]:
        """For asking again of what was there: if there is no such process now, it has ended."""
        try:
            yield
        except NoSuchProcess:
            raise TargetGone(self.pid) from None

    def _no_markers(self) -> str:
        if self._objects.problems:
            return f"process {self.pid} has no usable markers: {self._objects.problems[0]}"
        return (
            f"process {self.pid} has no markers; was it built with marker.h, "
            "and not with MJ_MODE=none?"
        )

    def _state(self, site: Site) -> SiteState:
        return self.states([site])[0]


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
    return tuple(one for one in maps if one.path[:1] not in ("", "[") and not is_arena(one))


def state_of(read: Read, site: Site, breakpoints: Breakpoints) -> SiteState:
    """How a site is now."""
    slot = read(site.slot, SLOT_SIZE) if site.slot else bytes(SLOT_SIZE)
    probe = RemoteAddress(int.from_bytes(slot[:8], "little"))
    data = RemoteAddress(int.from_bytes(slot[8:], "little"))
    try:
        mode, head = code_state(read, site, lambda: breakpoints.has(site, probe))
    except UnexpectedBytes as problem:
        return SiteState(site, None, probe, data, problem=problem)
    return SiteState(site, mode, probe, data, head)


class Reader:
    """Reads by pages and keeps them: for a hundred thousand sites, at one moment."""

    def __init__(self, read: Read) -> None:
        self._read = read
        self._chunks: dict[int, bytes] = {}

    def read(self, address: RemoteAddress, size: int) -> bytes:
        """As the function that it was made with; raises what that raises."""
        at = address % PAGE
        if at + size > PAGE:
            return self._read(address, size)
        start = address - at
        chunk = self._chunks.get(start)
        if chunk is None:
            chunk = self._chunks[start] = self._read(RemoteAddress(start), PAGE)
        return chunk[at : at + size]
