"""The arenas of a process as its mappings show them, and the probes in their code.

Most processes have none. So this is all that is imported to see that.

What this does not do: open an arena (find.py).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from markerjit.errors import MarkerError
from markerjit.memory import Mapping
from markerjit.model import RemoteAddress
from markerjit.tuples import NamedTuple

if TYPE_CHECKING:
    from markerjit.arena.arena import Arena

MAPPING_PATH = "/memfd:markerjit"


class Probes:
    """Addresses of probes that are ours: in the code of one of these arenas, or in an island of one
    (`islands`: from, and up to).

    `unknown` are the bases of those that this markerjit cannot read; `problem` says why not, of one
    of them.
    """

    def __init__(
        self,
        bases: Sequence[RemoteAddress] = (),
        unknown: Sequence[RemoteAddress] = (),
        problem: MarkerError | None = None,
        islands: Sequence[tuple[int, int]] = (),
    ) -> None:
        self.bases = tuple(bases)
        self.islands = tuple(islands)
        self.unknown = frozenset(unknown)
        self.problem = problem
        self._code = _code_of(self.bases)

    def __contains__(self, probe: object) -> bool:
        if not isinstance(probe, int):
            return False
        for start, end in self._code:  # asked for each site: `any` would take three times as long
            if start <= probe < end:
                return True
        return any(start <= probe < end for start, end in self.islands)

    def with_islands_of(self, maps: Sequence[Mapping]) -> Probes:
        """The same with the islands that are mapped now: they come later than their arena."""
        islands = list(_islands(maps))
        return Probes(self.bases, tuple(self.unknown), self.problem, islands)

    def are_unknown(self, probe: RemoteAddress) -> bool:
        """Whether this one is in an arena that we cannot read."""
        return any(start <= probe < end for start, end in _code_of(self.unknown))


def _code_of(bases: Collection[RemoteAddress]) -> list[tuple[int, int]]:
    """From where up to where the code of arenas is."""
    if not bases:
        return []
    from markerjit.abi import CODE_SIZE  # most processes have no arena

    return [(base, base + CODE_SIZE) for base in bases]


class Arenas(NamedTuple):
    """The arenas of a process.

    own        the one to work with: of our version, or an older one where there is no other, or a
               newer one; None without any
    beside     others of its own, which older controllers have made
    probes     those of all arenas that are mapped
    unfinished one is in the making, or was never made. There may be another one then without a
               change of what is mapped, since a controller maps it before it fills it
    mapped     where arenas are mapped, and the inode of each
    """

    own: Arena | None
    beside: tuple[Arena, ...]
    probes: Probes
    unfinished: bool
    mapped: frozenset[tuple[RemoteAddress, int]] = frozenset()

    @property
    def open(self) -> tuple[Arena, ...]:
        """Those of its own, all of them."""
        return (*filter(None, [self.own]), *self.beside)

    def are_all_of(self, maps: Sequence[Mapping]) -> bool:
        """Whether no other one has been mapped since, and none was filled."""
        complete = not self.unfinished and not self.probes.problem
        return complete and self.mapped == places_of(maps)

    @contextmanager
    def open_beside(self, others: Arenas) -> Iterator[None]:
        """Those that the `others` do not have are closed where something in here fails."""
        try:
            yield
        except BaseException:
            for arena in self.open:
                if arena not in others.open:
                    arena.close()
            raise

    def close(self) -> None:
        """Let go of all of them."""
        for arena in self.open:
            arena.close()


NO_ARENAS = Arenas(None, (), Probes(), False)


def is_arena(mapping: Mapping) -> bool:
    """Whether this is a piece of an arena, finished or not."""
    return mapping.path == MAPPING_PATH


def _pieces(maps: Sequence[Mapping]) -> list[Mapping]:
    return [mapping for mapping in maps if mapping.path == MAPPING_PATH]


def places_of(maps: Sequence[Mapping]) -> frozenset[tuple[RemoteAddress, int]]:
    """Where arenas are mapped, and the inode of each."""
    return frozenset((start, inode) for start, _, inode in mapped_arenas(maps))


def mapped_arenas(maps: Sequence[Mapping]) -> Iterator[tuple[RemoteAddress, int, int]]:
    """Start, size and inode of each arena's mapping, whose protection differs by part. Its islands
    are elsewhere."""
    all_pieces = _pieces(maps)
    for first in all_pieces:
        if not first.offset:
            pieces = (mapping for mapping in all_pieces if mapping.inode == first.inode)
            end = max(piece.end for piece in pieces if piece.start - piece.offset == first.start)
            yield first.start, end - first.start, first.inode


def _islands(maps: Sequence[Mapping]) -> Iterator[tuple[int, int]]:
    """From where up to where the islands of all arenas are."""
    pieces = _pieces(maps)
    bases = {(piece.start, piece.inode) for piece in pieces if not piece.offset}
    for piece in pieces:
        if piece.executable and (piece.start - piece.offset, piece.inode) not in bases:
            yield piece.start, piece.end
