"""A view of a process: its markers, how they are, what their counters say.

It only reads. It stops no thread, writes nothing, and needs no native code. `Session` adds
switching.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Self

from markerjit.arguments import check_all, check_flag, check_int, check_pid, check_text
from markerjit.errors import BadNote, MarkerError
from markerjit.model import RemoteAddress, Seccomp, Site
from markerjit.session.target import Target, as_seccomp
from markerjit.sites import NameKind, ProbeName, parse_name

if TYPE_CHECKING:
    from markerjit.patch.switchable import SiteState
    from markerjit.probes.loaded import Values
    from markerjit.session.functions import FunctionView
    from markerjit.session.status import ArenaStatus, MarkerStatus
    from markerjit.session.strays import StrayHead
    from markerjit.session.usdt import UsdtNeed, UsdtView
    from markerjit.session.watch import Ending


class Sites(tuple[Site, ...]):
    """Sites that a notebook shows as a table."""

    __slots__ = ()

    def _repr_html_(self) -> str:
        from markerjit.printable.html import html_of

        return html_of(self)


class Statuses(list["MarkerStatus"]):
    """Statuses that a notebook shows as a table."""

    def _repr_html_(self) -> str:
        from markerjit.printable.html import html_of

        return html_of(self)


class View:
    """A process that is looked at, until `close` or the end of a `with` statement. `pid` is the
    process, `command` its command line.

    A process without markers can be looked at, too, because the library that has them may be
    loaded later. Raises NoSuchProcess, NotPermitted, Unsupported.
    """

    def __init__(self, pid: int, *, seccomp: Seccomp | str = "read") -> None:
        check_pid(pid)
        self._target = Target(pid, seccomp=as_seccomp(seccomp))
        self._states: Sequence[SiteState] = ()  # as `statistics` has last seen them
        self.pid = pid
        self.command = self._target.command

    def close(self) -> None:
        """End the session. Markers that are on stay on. May be called again."""
        self._target.close()

    @property
    def closed(self) -> bool:
        """Whether it was closed."""
        return self._target.closed

    def __repr__(self) -> str:
        command = "".join(
            character if character.isprintable() else "?" for character in self.command[:60]
        )
        state = "closed" if self.closed else "open"
        return f"<{type(self).__name__} of {self.pid} ({command}), {state}>"

    def __del__(self) -> None:
        """As for a file that was not closed: warns (python -X dev), and closes."""
        if "command" in vars(self) and not self.closed:
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
        """The sites of all markers whose names match the shell glob. `*` also matches other sites
        that are on or altered, and gives none in a process that has neither.

        Raises UnknownMarker, with the nearest names, if none matches; NoMarkers for a name in a
        process that has no markers at all; BadArgument for a text that is not a name; and
        Unsupported for a name of anything but markers.
        """
        check_text("pattern", pattern)
        name = parse_name(pattern)
        self._target.look()
        return Sites(self._matching(name))

    @property
    def problems(self) -> Sequence[Exception]:
        """Notes that could not be believed; their sites are not offered."""
        self._target.check_open()
        return self._target.seen.objects.problems

    def states(self, sites: Sequence[Site]) -> list[SiteState]:
        """The present state of each site. One whose code is neither off nor on has a `problem`."""
        check_all("sites", sites, Site)
        return self._target.states(tuple(sites))

    def status(self, pattern: str = "*", *, look: bool = True) -> list[MarkerStatus]:
        """Every marker that matches: whether it is on, since when, by which controller, its hits
        and losses.

        `*` matches all markers, and those functions, instructions, calls and USDT probes that are
        on. One that was on before needs its name, such as `func:*`. Without `look`, objects that
        came or went since the last call are not looked for.
        """
        check_flag("look", look)
        check_text("pattern", pattern)
        name = parse_name(pattern)
        from markerjit.session.status import marker_statuses

        if look:
            self._target.look()
        states = self._states = self._target.states(self._matching(name))
        seen = self._target.seen
        return Statuses(marker_statuses(states, seen.arena, seen.probes, self._target.calls))

    statistics = status  # its name before 0.6

    def last_statistics(self) -> list[MarkerStatus]:
        """The markers that `statistics` saw last, as they were, with their hits as they are now.
        They are still there when the process has ended, unless it had closed our descriptor.

        Calls of probes in C that were compiled with an older header are not among the hits.
        """
        self._target.check_open()
        from markerjit.session.status import marker_statuses

        seen = self._target.seen
        return marker_statuses(self._states, seen.arena, seen.probes)

    @property
    def is_gone(self) -> bool:
        """Whether the process has ended, or executes another file by now. Raises MarkerError after
        `close`."""
        self._target.check_open()
        return self._target.memory.is_gone()

    @property
    def workers(self) -> Sequence[int]:
        """The children that execute the same file, as the workers of a server do, in order. Each is
        a process of its own, with markers that are switched in it alone. Raises MarkerError after
        `close`."""
        from markerjit.proc.children import workers_of

        self._target.check_open()
        return workers_of(self.pid)

    def ending(self) -> Ending | None:
        """How the process has ended; None if it has not. It may execute another file."""
        self._target.check_open()
        if self._target.memory.alive():
            return None
        from markerjit.session.watch import ending_of

        return ending_of(self.pid, self._target.memory.pidfd)

    def usdt(self, pattern: str = "*") -> UsdtView:
        """The USDT probes of the process whose names match the shell glob, `provider:name` or the
        name alone. Their notes are read from the files of what is mapped.

        Raises UnknownMarker if none matches; `*` gives none in a process without them.
        """
        check_text("pattern", pattern)
        name = parse_name(pattern)
        from markerjit.session.usdt import usdt_of

        return usdt_of(self._target, name)

    def usdt_needs(self, pattern: str) -> tuple[UsdtNeed, ...]:
        """The USDT probes of the pattern that are on in vain, because the program passes them only
        while another one is on, too. The tables of providers know of these."""
        check_text("pattern", pattern)
        self._target.check_open()
        globs = parse_name(pattern).usdt_globs
        if not globs:
            return ()  # and nothing is imported
        from markerjit.session.usdt import usdt_needs_of

        return usdt_needs_of(self._target, globs)

    def usdt_problems(self, pattern: str) -> tuple[BadNote, ...]:
        """What is wrong with the notes of USDT probes of the pattern, which are left out."""
        check_text("pattern", pattern)
        name = parse_name(pattern)
        from markerjit.session.notes import problems_of_notes

        self._target.look()
        return problems_of_notes(self._target, name)

    def functions(self, pattern: str) -> FunctionView:
        """The functions of the process that match a name such as `func:pg_*` or `pg_*`, in all
        objects that are mapped, or in one: `func:libc.so*:malloc`.

        Raises UnknownMarker if none matches, and Unsupported for a name of anything else.
        """
        check_text("pattern", pattern)
        name = parse_name(pattern)
        if name.kind is NameKind.MARKER and not name.source:
            name = parse_name(f"func:{pattern}")
        from markerjit.session.functions import functions_of

        return functions_of(self._target, name)

    def as_reads(self, pattern: str, text: str) -> str:
        """The reads of memory that a question with members of structures becomes:
        `req->length > 9` becomes `u32(req + 8) > 9`. A question without members stays as it is.

        Raises BadQuestion for a member that does not exist, and if no types are known.
        """
        check_text("pattern", pattern)
        check_text("text", text)
        from markerjit.session.members import Members

        return Members(self._target, parse_name(pattern)).without(text)

    def stray_heads(self) -> list[StrayHead]:
        """Heads that were opened for markers and belong to none that is mapped now, by address."""
        target = self._target
        target.check_open()
        from markerjit.session.strays import find_strays

        strays = find_strays(self.pid, target.memory, target.seen)
        if strays and target.files_changed():  # they may be of an object that was loaded just now
            strays = find_strays(self.pid, target.memory, target.look())
        return [stray.head for stray in strays]

    def probe_values(self) -> list[Values]:
        """The counts of probes in C, by file."""
        arena = self._target.look().arena
        if arena is None or not arena.units.used:
            return []
        from markerjit.probes.loaded import values

        return values(arena)

    def arena(self) -> ArenaStatus | None:
        """The runtime in the process, and its users. None without the runtime, or if
        `runtime_problem` says that it cannot be read."""
        self._target.check_open()
        arena = self._target.seen.arena
        if arena is None:
            return None
        from markerjit.session.status import arena_status

        # The lock first: a change that ends in between leaves an empty journal.
        locked = self._target.memory.is_locked()
        return arena_status(arena, locked=locked)

    @property
    def has_runtime(self) -> bool:
        """Whether the runtime is in the process already."""
        self._target.check_open()
        return self._target.seen.arena is not None or self.runtime_problem is not None

    @property
    def runtime_problem(self) -> MarkerError | None:
        """Why the runtime in the process cannot be used, and what to do. Mostly another version of
        markerjit has put it there. Markers can then be looked at, but not switched."""
        self._target.check_open()
        return self._target.runtime_problem

    def read(self, address: RemoteAddress, size: int) -> bytes:
        """Bytes of the target, up to a GiB at once."""
        check_int("address", address, 0, (1 << 64) - 1)
        check_int("size", size, 0, 1 << 30)
        self._target.check_open()
        return self._target.memory.read(address, size)

    def _matching(self, name: ProbeName) -> Sequence[Site]:
        return self._target.all_sites() if name.text == "*" else self._target.matching(name)
