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
from itertools import islice
from operator import attrgetter, le
from typing import cast

from markerjit.elf import AlikeNotes, FileImage, Image, MappedImage, Read, read_alike
from markerjit.elf.image import PF_X
from markerjit.elf.notes import Columns
from markerjit.errors import BadFile, BadNote, MemoryFault, UnknownMarker
from markerjit.memory import Mapping
from markerjit.model import Body, Kind, MappedObject, Place, RemoteAddress, Site
from markerjit.sites.lots import Lot, Lots
from markerjit.sites.names import ProbeName, check_is_marker, nearest
from markerjit.tuples import NamedTuple
from markerjit.x86.forms import can_reach, marker_form, marker_tails

_FIRST = attrgetter("first.address")

File = tuple[str, int, str]
"""A mapped file: its device, inode and path."""


class Objects(NamedTuple):
    """The result of discovery.

    sites     of all objects, by object and address
    objects   that have markers
    problems  notes that could not be believed, and objects that could not be read
    """

    sites: Lots
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


def discover_object(read: Read, maps: Sequence[Mapping], start: Mapping) -> Objects:
    """The same of the one object whose file is mapped from its beginning there."""
    file = file_of_mapping(start)
    of_file = [mapping for mapping in maps if file_of_mapping(mapping) == file]
    return discover_process(read, of_file)


def mapped_images(
    read: Read, maps: Sequence[Mapping], problems: list[BadNote | BadFile]
) -> Iterator[tuple[Mapping, MappedImage]]:
    """Every object that a process has mapped for execution, with its first mapping. The file of an
    object may be mapped once more as data, as by an emulator for its guest, or by a program that
    reads its own symbols: no object is there. One that cannot be read is added to the problems.
    Raises what `discover_process` raises."""
    code: dict[File, list[Mapping]] = {}
    for mapping in maps:
        if mapping.executable:
            code.setdefault(file_of_mapping(mapping), []).append(mapping)
    for mapping in starts_of_objects(maps):
        image = image_at(read, mapping, problems)
        if image is not None and _has_code(image, code[file_of_mapping(mapping)]):
            yield mapping, image


def _has_code(image: MappedImage, code: Sequence[Mapping]) -> bool:
    """Whether some of these mappings are in the executable segments of an object."""
    return any(
        mapping.start < segment.stop + image.bias and segment.start + image.bias < mapping.end
        for segment in image.loaded(PF_X)
        for mapping in code
    )


def starts_of_objects(maps: Sequence[Mapping]) -> Iterator[Mapping]:
    """The mappings of the beginnings of files that are mapped for execution, too: there are the
    headers of objects."""
    executable = {file_of_mapping(mapping) for mapping in maps if mapping.executable}
    for mapping in maps:
        starts_file = mapping.offset == 0 and mapping.readable and mapping.path[:1] not in ("", "[")
        if starts_file and file_of_mapping(mapping) in executable:
            yield mapping


def image_at(read: Read, mapping: Mapping, problems: list[BadNote | BadFile]) -> MappedImage | None:
    """The object that begins there; None where none does. Where it cannot be read that is added to
    the problems. Raises what `discover_process` raises."""
    try:
        return MappedImage(read, mapping.start, mapping.path)
    except BadFile:
        return None  # not an ELF object, or one mapped only to be looked at
    except MemoryFault as fault:
        problems.append(BadFile(f"{mapping.path}: its headers cannot be read: {fault}"))
        return None


def discover_file(path: str) -> Objects:
    """The markers of an executable or shared object. Raises BadFile, Unsupported."""
    collector = _Collector()
    with FileImage(path) as image:
        collector.add(image, path, False, None)
    return collector.objects()


def matching(sites: Sequence[Site], name: ProbeName, advice: str = "") -> Sequence[Site]:
    """The sites that a name matches.

    Raises UnknownMarker, with the nearest names, or else the advice, when there are none, and
    Unsupported for a name that is not of markers.
    """
    if name.is_plain:
        return _matching(sites, advice, name)
    from markerjit.sites.selection import chosen

    return chosen(name, partial(_matching, sites, advice))


def _matching(sites: Sequence[Site], advice: str, name: ProbeName) -> Lots:
    check_is_marker(name)
    sites = Lots.of(sites)
    markers = sites.markers
    selected = {marker for marker in markers if fnmatchcase(marker, name.name)}
    named = Lots(lot for lot in sites.lots if lot.first.signature.name in selected)
    if not name.is_plain:
        from markerjit.sites.selection import is_meant

        named = Lots.of([site for site in named if is_meant(name, site)])
    if not named.lots:
        near = () if selected else nearest(name.text, markers)
        raise UnknownMarker(name.text, near, advice=advice)
    return named


def file_of_mapping(mapping: Mapping) -> File:
    """The file that is mapped."""
    return mapping.device, mapping.inode, mapping.path


class _Collector:
    def __init__(self) -> None:
        self.problems: list[BadNote | BadFile] = []
        self._lots: list[Lot] = []
        self._objects: list[MappedObject] = []

    def add(self, image: Image, path: str, deleted: bool, code: Sequence[Mapping] | None) -> None:
        alike, problems = read_alike(image)
        self.problems.extend(problems)
        if not alike:
            return
        mapped = MappedObject(path, image.bias, image.build_id(), deleted)
        lots = [lot for notes in alike if (lot := self._lot(notes, mapped))]
        if code is not None:
            # A second mapping of the file, for reading only, has the notes but not the code.
            lots = [part for lot in lots if (part := _mapped(lot, code))]
        if not lots:
            return
        self._objects.append(mapped)
        self._lots += sorted(lots, key=_FIRST)

    def _lot(self, notes: AlikeNotes, mapped: MappedObject) -> Lot | None:
        """The sites of notes; None where each is too far from its body."""
        columns = _by_site(notes.columns)
        try:
            return _lot(notes, columns, mapped)
        except OverflowError:
            places = enumerate(zip(columns.site, columns.body, strict=True))
            near = [index for index, place in places if self._is_near(notes, *place, mapped)]
            return _lot(notes, columns.part(near), mapped) if near else None

    def _is_near(self, notes: AlikeNotes, site: int, body: int, mapped: MappedObject) -> bool:
        """Whether the site of a note can lead to its body; a problem more where it cannot."""
        if can_reach(notes.kind, site, body):
            return True
        self.problems.append(
            BadNote(
                f"{mapped.path}: the site of {notes.signature.name} at {site:#x} is too far from "
                f"its body at {body:#x}"
            )
        )
        return False

    def objects(self) -> Objects:
        return Objects(Lots(self._lots), tuple(self._objects), tuple(self.problems))


def _by_site(columns: Columns) -> Columns:
    """The columns in the order of the sites, as linkers mostly leave notes."""
    sites = columns.site
    if all(map(le, sites, islice(sites, 1, None))):
        return columns
    return columns.part(sorted(range(len(sites)), key=sites.__getitem__))


def _lot(notes: AlikeNotes, columns: Columns, mapped: MappedObject) -> Lot:
    """The sites of notes that are alike, one at least. Raises OverflowError where one cannot lead
    to its body."""
    signature, kind, has_inline, file, slot, preserving, _ = notes
    bias = mapped.bias
    _, sites, bodies, ends, lines = columns
    addresses = cast(list[RemoteAddress], [site + bias for site in sites])
    entries = cast(list[RemoteAddress], [body and body + bias for body in bodies])
    behind = cast(list[RemoteAddress], [end + bias for end in ends])
    idle = entries[0] if kind is Kind.SENTINEL else RemoteAddress(0)  # which does nothing
    of_slot = RemoteAddress(slot and slot + bias)
    body = Body(of_slot, entries[0], behind[0], idle, has_inline, preserving)
    place = Place(mapped, sites[0], f"{file}:{lines[0]}")
    tails = marker_tails(kind, sites, bodies)
    first = Site(signature, place, addresses[0], marker_form(kind, sites[0], bodies[0]), body)
    return Lot(first, addresses, entries, behind, lines, tails)


def _mapped(lot: Lot, code: Iterable[Mapping]) -> Lot | None:
    """The sites of the lot that are in one of these mappings."""
    indices: list[int] = []
    for mapping in code:
        first = bisect_left(lot.addresses, mapping.start)
        indices += range(first, bisect_left(lot.addresses, mapping.end))
    return lot.part(indices) if indices else None
