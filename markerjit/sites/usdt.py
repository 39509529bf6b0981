"""Find the USDT probes of a process or of a file.

Their notes are not loaded with the program. So the file of each mapped object is read
(mapped_files.py), or it is known what is in them (usdt_kept.py). Nothing is changed, and no thread
is stopped.

What this does not do: read notes (usdt_notes.py), decide how a site can be opened, or look at code
behind the no-op.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress
from fnmatch import fnmatchcase
from functools import partial

from markerjit.elf import FileImage, Read
from markerjit.elf.sections import may_have_section
from markerjit.errors import (
    BadFile,
    BadNote,
    MemoryFault,
    UnexpectedBytes,
    UnknownMarker,
    Unsupported,
)
from markerjit.memory import Mapping
from markerjit.model import MappedObject, Mode, RemoteAddress, UsdtSite, new
from markerjit.sites.discover import image_at, starts_of_objects
from markerjit.sites.mapped_files import file_of
from markerjit.sites.names import NameKind, ProbeName, nearest
from markerjit.sites.usdt_files import NO_PROBES, KnownFiles, Probes
from markerjit.sites.usdt_kept import Listings, rules
from markerjit.sites.usdt_listing import Listing, placed
from markerjit.sites.verify import read_each
from markerjit.tuples import NamedTuple
from markerjit.x86.forms import is_breakpoint

_SECTION = b".note.stapsdt"
_SEMAPHORE = 2


class UsdtSites(NamedTuple):
    """The sites of all USDT probes, by object and address, and what is wrong with those left out,
    with files, and with the user's tables."""

    sites: tuple[UsdtSite, ...]
    problems: tuple[BadNote | BadFile, ...]


class UsdtState(NamedTuple):
    """The present state of a site of a process.

    raised   the count in its semaphore, which is the number of attached tracers; None without a
             semaphore, or where it cannot be read
    problem  what is wrong with the code: another tool's breakpoint, for instance
    mode     the mode in which we have opened it; None if we have not
    """

    site: UsdtSite
    raised: int | None = None
    problem: UnexpectedBytes | None = None
    mode: Mode | None = None


def usdt_of_file(path: str) -> UsdtSites:
    """The USDT probes of an executable or shared object. Raises BadFile, Unsupported."""
    collector = _Collector()
    with FileImage(path) as image:
        if may_have_section(image, _SECTION):
            collector.add(image, MappedObject(path, 0, image.build_id(), False), None)
    return collector.result()


def usdt_of_process(pid: int, read: Read, maps: Sequence[Mapping]) -> UsdtSites:
    """The USDT probes of every object mapped into a process.

    Raises Unsupported for a 32-bit process, and what `read` raises when the process ends.
    """
    collector = _Collector()
    code = [range(mapping.start, mapping.end) for mapping in maps if mapping.executable]
    files = KnownFiles(pid, rules())
    for mapping in starts_of_objects(maps):
        known = files.find(mapping)
        if known == NO_PROBES:
            continue
        loaded = image_at(read, mapping, collector.problems)
        if loaded is None:
            continue
        mapped = MappedObject(mapping.path, loaded.bias, loaded.build_id(), mapping.deleted)
        if known and known.are_of(loaded) and collector.add_known(mapped, known, code):
            continue
        try:
            image = file_of(pid, mapping, loaded)
        except BadFile as problem:
            collector.problems.append(problem)
            continue
        with image:
            has_any = may_have_section(image, _SECTION)
            probes = collector.add(image, mapped, code) if has_any else NO_PROBES
            files.note(image, mapping, loaded, probes)
    files.keep()
    return collector.result()


def usdt_states(read: Read, sites: Sequence[UsdtSite]) -> list[UsdtState]:
    """The present states of these sites of a process. Those that are near to each other are read
    together. Raises what `read` raises when the process ends."""
    semaphores = (site.recipe.semaphore for site in sites if site.recipe.semaphore)
    raised = {
        address: int.from_bytes(count, "little")
        for address, count in _read_all(read, semaphores, _SEMAPHORE).items()
    }
    code: dict[RemoteAddress, bytes] = {}
    for size in {len(site.form.head) for site in sites}:
        heads = (site.address for site in sites if len(site.form.head) == size)
        code.update(_read_all(read, heads, size))
    return [
        new(
            UsdtState,
            (site, raised.get(site.recipe.semaphore), _problem(code.get(site.address), site), None),
        )
        for site in sites
    ]


def matching_usdt(listed: UsdtSites, name: ProbeName) -> tuple[UsdtSite, ...]:
    """The sites that a name is of: `provider:name`, or a name of any provider's.

    Raises UnknownMarker when there are none: with what is wrong with a note of such a probe, the
    nearest names, or what is wrong with a file. Raises Unsupported for a name that is not of USDT
    probes.
    """
    if name.is_plain:
        return tuple(_matching(listed, name))
    from markerjit.sites.selection import chosen

    return chosen(name, partial(_matching, listed))


def problems_of(listed: UsdtSites, globs: Iterable[str]) -> tuple[BadNote, ...]:
    """What is wrong with the notes of probes whose names match one of these globs."""
    globs = tuple(globs)
    return tuple(
        problem
        for problem in listed.problems
        if isinstance(problem, BadNote) and any(fnmatchcase(problem.name, glob) for glob in globs)
    )


def _matching(listed: UsdtSites, name: ProbeName) -> Iterable[UsdtSite]:
    sites = listed.sites
    if name.kind not in (NameKind.USDT, NameKind.MARKER) or name.source:
        raise Unsupported(f"'{name}' names {name.kind.value}; a USDT probe is 'provider:name'")
    pattern = name.name if name.kind is NameKind.USDT else f"*:{name.name}"
    names = {site.signature.name for site in sites}
    selected = {probe for probe in names if fnmatchcase(probe, pattern)}
    if not selected:
        notes = problems_of(listed, [pattern])
        near = () if notes else nearest(name.text, names)
        files = [problem for problem in listed.problems if isinstance(problem, BadFile)]
        wrong = next(iter((*notes, *files)), None)
        advice = f"left out: {wrong}" if wrong else "markerjit list with --usdt shows the probes"
        raise UnknownMarker(name.text, near, what="USDT probe", advice=advice)
    named = [site for site in sites if site.signature.name in selected]
    if name.object:
        from markerjit.sites.selection import is_of_object

        named = [site for site in named if is_of_object(name.object, site.place.object.path)]
    if not named:
        raise UnknownMarker(name.text, (), what="USDT probe")
    return named


class _Collector:
    def __init__(self) -> None:
        self.problems: list[BadNote | BadFile] = []
        self._sites: list[UsdtSite] = []
        self._listings = Listings()

    def add(
        self, image: FileImage, mapped: MappedObject, code: Sequence[range] | None
    ) -> Probes | None:
        """The sites of an object: of a process those that one of the ranges `code` has. The result
        is by what they are found again; None where they were not kept."""
        listing, entry, digest = self._listings.of(image)
        self._add(listing, mapped, code)
        return Probes(entry, digest) if entry and digest else None

    def add_known(self, mapped: MappedObject, probes: Probes, code: Sequence[range]) -> bool:
        """The same of a file that was looked at before. False where what was found is not kept any
        more."""
        listing = self._listings.known(mapped.path, probes.entry, probes.digest)
        if listing is not None:
            self._add(listing, mapped, code)
        return listing is not None

    def _add(self, listing: Listing, mapped: MappedObject, code: Sequence[range] | None) -> None:
        self.problems += listing.problems
        sites = placed(listing, mapped)
        if code is not None and sites:  # a second mapping of the file is for reading only
            last = sites[-1].address
            near = [span for span in code if span.start <= last and sites[0].address < span.stop]
            if not any(sites[0].address in span and last in span for span in near):
                sites = [site for site in sites if any(site.address in span for span in near)]
        self._sites += sites

    def result(self) -> UsdtSites:
        problems = (*self.problems, *self._listings.problems)
        return UsdtSites(tuple(self._sites), problems)


def _read_all(read: Read, places: Iterable[RemoteAddress], size: int) -> dict[RemoteAddress, bytes]:
    """The bytes at these addresses, without those that cannot be read."""
    addresses = sorted({*places})
    try:
        return dict(zip(addresses, read_each(read, addresses, size), strict=True))
    except MemoryFault:  # one of them at least
        content: dict[RemoteAddress, bytes] = {}
        for address in addresses:
            with suppress(MemoryFault):
                content[address] = read(address, size)
        return content


def _problem(code: bytes | None, site: UsdtSite) -> UnexpectedBytes | None:
    """What is wrong with the code at a site; None is code that cannot be read."""
    expected = site.form.head
    if code == expected:
        return None
    return UnexpectedBytes(
        site.address,
        code or b"",
        expected,
        site.signature.name,
        is_breakpoint=is_breakpoint(code or b""),
    )
