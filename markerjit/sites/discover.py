"""Find the markers of a process in its memory, or of a file.

A process is read from memory only: the notes are loaded with the code that they describe, so a file
that was deleted or replaced since cannot mislead us. Discovery changes nothing and stops no thread.

What this does not do: decode code. `markerjit.sites.verify` asks whether the bytes at a site are
what its note says; nothing is patched before that.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from fnmatch import fnmatchcase
from functools import partial
from operator import attrgetter
from typing import NamedTuple

from markerjit.elf import FileImage, Image, MappedImage, Note, Read, read_notes
from markerjit.errors import BadFile, BadNote, MemoryFault, UnknownMarker
from markerjit.memory import Mapping
from markerjit.model import Body, Kind, MappedObject, Place, Site, new
from markerjit.sites.names import ProbeName, check_is_marker, nearest
from markerjit.x86.forms import marker_form

_address = attrgetter("address")


class Objects(NamedTuple):
    """The result of discovery.

    sites     of all objects, by object and address
    objects   that have markers
    problems  notes that could not be believed, and objects that could not be read
    """

    sites: tuple[Site, ...]
    objects: tuple[MappedObject, ...]
    problems: tuple[BadNote | BadFile, ...]


def discover_process(read: Read, maps: Sequence[Mapping]) -> Objects:
    """The markers of every object mapped into a process.

    Raises Unsupported for a 32-bit process, and what `read` raises when the process ends.
    """
    code = [mapping for mapping in maps if mapping.executable]
    collector = _Collector()
    for mapping, image in mapped_images(read, maps, collector.problems):
        collector.add(image, mapping.path, mapping.deleted, code)
    return collector.objects()


def mapped_images(
    read: Read, maps: Sequence[Mapping], problems: list[BadNote | BadFile]
) -> Iterator[tuple[Mapping, MappedImage]]:
    """Every object that a process has mapped to execute it, with its first mapping. One that cannot
    be read is a problem more. Raises what `discover_process` raises."""
    executable = {_file(mapping) for mapping in maps if mapping.executable}
    for mapping in maps:
        starts_file = mapping.offset == 0 and mapping.readable and mapping.path[:1] not in ("", "[")
        if not starts_file or _file(mapping) not in executable:
            continue
        try:
            yield mapping, MappedImage(read, mapping.start, mapping.path)
        except BadFile:
            continue  # not an ELF object, or one mapped only to be looked at
        except MemoryFault as fault:
            problems.append(BadFile(f"{mapping.path}: its headers cannot be read: {fault}"))


def discover_file(path: str) -> Objects:
    """The markers of an executable or shared object. Raises BadFile, Unsupported."""
    collector = _Collector()
    with FileImage(path) as image:
        collector.add(image, path, False, None)
    return collector.objects()


def matching(sites: Sequence[Site], name: ProbeName) -> tuple[Site, ...]:
    """The sites that a name is of.

    Raises UnknownMarker, with the nearest names, when there are none, and Unsupported for a name
    that is not of markers.
    """
    if name.is_plain:
        return _matching(sites, name)
    from markerjit.sites.selection import chosen

    return chosen(name, partial(_matching, sites))


def _matching(sites: Sequence[Site], name: ProbeName) -> tuple[Site, ...]:
    check_is_marker(name)
    markers = {site.signature.name for site in sites}
    selected = {marker for marker in markers if fnmatchcase(marker, name.name)}
    named = [site for site in sites if site.signature.name in selected]
    if not name.is_plain:
        from markerjit.sites.selection import is_meant

        named = [site for site in named if is_meant(name, site)]
    if not named:
        raise UnknownMarker(name.text, () if selected else nearest(name.text, markers))
    return tuple(named)


def _file(mapping: Mapping) -> tuple[str, int, str]:
    return mapping.device, mapping.inode, mapping.path


class _Collector:
    def __init__(self) -> None:
        self.problems: list[BadNote | BadFile] = []
        self._sites: list[Site] = []
        self._objects: list[MappedObject] = []

    def add(self, image: Image, path: str, deleted: bool, code: Sequence[Mapping] | None) -> None:
        notes, problems = read_notes(image)
        self.problems.extend(problems)
        if not notes:
            return
        mapped = MappedObject(path, image.bias, image.build_id(), deleted)
        sites = sorted(self._of_notes(notes, mapped), key=_address)
        if code is not None:
            # A second mapping of the file, for reading only, has the notes but not the code.
            sites = _mapped(sites, code)
        if not sites:
            return
        self._objects.append(mapped)
        self._sites.extend(sites)

    def _of_notes(self, notes: Iterable[Note], mapped: MappedObject) -> Iterator[Site]:
        for note in notes:
            try:
                yield _site(note, mapped)
            except OverflowError:
                self.problems.append(
                    BadNote(
                        f"{mapped.path}: the site of {note.name} at {note.site:#x} is too far from "
                        f"its body at {note.body:#x}"
                    )
                )

    def objects(self) -> Objects:
        return Objects(tuple(self._sites), tuple(self._objects), tuple(self.problems))


def _site(note: Note, mapped: MappedObject) -> Site:
    """Raises OverflowError where the site cannot lead to its body."""
    signature, kind, has_inline, file, line, at, body, end, slot, preserving = note
    bias = mapped.bias
    entry = body + bias if body else 0
    idle = entry if kind is Kind.SENTINEL else 0  # which does nothing
    place = new(Place, (mapped, at, f"{file}:{line}"))
    of_slot = slot + bias if slot else 0
    of_body = new(Body, (of_slot, entry, end + bias, idle, has_inline, preserving, 0))
    return new(Site, (signature, place, at + bias, marker_form(kind, at, body), of_body))


def _mapped(sites: Sequence[Site], code: Iterable[Mapping]) -> list[Site]:
    """Those sites, in the order of their addresses, that one of these mappings has."""
    mapped: list[Site] = []
    for mapping in code:
        first = bisect_left(sites, mapping.start, key=_address)
        mapped += sites[first : bisect_left(sites, mapping.end, key=_address)]
    return mapped
