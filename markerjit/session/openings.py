"""How sites of foreign code can be opened, and where functions are left, remembered by the build
of their object.

The answer needs a scan of all the object's code (spans/), and cannot change for a given file. So it
is remembered in the user's cache (sites/remembered.py), one file for each build id, with a digest
of the whole object. These make a wrong answer unlikely, and none of them replaces another:

    build id   only the name of the file in the cache. Anybody can give a program the build id of
               another one, so the digest of all bytes decides
    digest     of the bytes that were scanned: a scan reads a copy, so that the owner of an object
               cannot put the answers for one under the digest of another
    rules      a digest of the code that answers, and the version of its decoder: what others
               answered is not believed
    checksum   a damaged entry is ignored, and written again
    code       the displaced bytes are compared with the file here, and with the process before they
               are copied and before each write

A user who can write the cache can have a span opened that a branch enters, in a process that the
same user may trace, and so may write anyway. What another user could write is not believed: root
reads nothing in the home directory of somebody else.

An object without a build id, or larger than MAX_BYTES, is scanned each time.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any, Generic, TypeVar

import capstone

import markerjit.elf as elf
import markerjit.spans as spans
import markerjit.x86 as x86
from markerjit.elf import FileImage
from markerjit.elf.code_reader import ReadCode, code_reader
from markerjit.errors import MemoryFault
from markerjit.sites.remembered import recall, remember
from markerjit.spans.calls import best_opening_of_call
from markerjit.spans.code import Code, TargetKind
from markerjit.spans.exits import Exit, ExitKind, Exits, Unbounded, exits_of
from markerjit.spans.openings import Closed, HolePlace, Opening, TurnedDown, Way, Why, best_opening
from markerjit.tuples import NamedTuple
from markerjit.x86.relocate import Obstacle

MAX_BYTES = 1 << 28
"""The largest object that is copied and digested."""

Progress = Callable[[str, float], None]
"""Called with what is looked at, and how much of it is done, from 0 to 1."""


def silent(what: str, done: float) -> None:
    """Report no progress."""


_MAX_ENTRY = 1 << 24
_MOST_READ = 4
_READ: dict[str, tuple[str, int, str, dict[int, Any]]] = {}
"""By the name of an entry, its checksum, the size and the digest of the object, and the answers: a
switch asks for the same ones three times."""
_TURN = 64
"""Answers between two reports of progress."""
_PIECE = 1 << 20
_REASONS: dict[str, type[Obstacle | TargetKind | Why]] = {
    kind.__name__: kind for kind in (Obstacle, TargetKind, Why)
}

Openings = dict[int, Opening | Closed]
"""By the address in the object's file."""

A = TypeVar("A", Opening | Closed, Exits)


class _Question(NamedTuple, Generic[A]):
    """What is asked of addresses of an object: the name of its entries in the cache, the answer for
    an address, that as JSON and back, and the openings in it."""

    name: str
    ask: Callable[[Code, int], A]
    encode: Callable[[A], list[object]]
    decode: Callable[[Any], A]
    openings: Callable[[A], Iterable[Opening | Closed]]


def openings_of(image: FileImage, asked: Collection[int], others: Iterable[int] = ()) -> Openings:
    """How these addresses of an object can be opened. Where that is not remembered, the `others`
    are looked at in the same scan.

    Raises NoFunctions, MemoryFault.
    """
    return _answers(_OPENING, image, asked, others)


def openings_of_calls(image: FileImage, asked: Collection[int]) -> Openings:
    """How the calls, or jumps, at these addresses can be opened. Raises as `openings_of`."""
    return _answers(_CALL, image, asked, ())


def exits_of_functions(
    image: FileImage, entries: Collection[int], progress: Progress = silent
) -> dict[int, Exits]:
    """Where the functions that are entered at these addresses are left, by those. `progress` is
    called where that is not remembered. Raises as `openings_of`."""
    return _answers(_EXITS, image, entries, (), progress)


def _answers(
    question: _Question[A],
    image: FileImage,
    asked: Collection[int],
    others: Iterable[int],
    progress: Progress = silent,
) -> dict[int, A]:
    build_id = image.build_id()
    if not build_id or image.size > MAX_BYTES:
        return _scanned(question, image, asked, progress)
    name = f"{question.name}-{build_id}"
    known = _recalled(question, image, name)
    if known.keys() >= set(asked):
        return known
    with _copy_of(image) as copy:
        # Recalled once more: what was known is not of the copy where the file has changed since.
        again = _recalled(question, copy, name)
        missing = {*asked, *others}.difference(again)
        answers = {**again, **_scanned(question, copy, missing, progress)}
        remember(name, _encoded(question, _digest(copy), answers))
    return answers


def _scanned(
    question: _Question[A], image: FileImage, addresses: Collection[int], progress: Progress
) -> dict[int, A]:
    code = Code(image)
    answers: dict[int, A] = {}
    for number, address in enumerate(sorted(addresses)):
        if number % _TURN == 0:
            progress(f"{os.path.basename(image.name)}, {question.name}", number / len(addresses))
        answers[address] = question.ask(code, address)
    return answers


@contextmanager
def _copy_of(image: FileImage) -> Iterator[FileImage]:
    """A copy of the file that nobody else can change."""
    file = os.memfd_create("markerjit-object", os.MFD_CLOEXEC)
    try:
        with open(file, "wb", closefd=False) as out:
            for piece in _pieces(image):
                out.write(piece)
        with FileImage(f"/proc/self/fd/{file}") as copy:
            copy.name = image.name
            yield copy
    finally:
        os.close(file)


def _pieces(image: FileImage) -> Iterator[bytes]:
    for offset in range(0, image.size, _PIECE):
        yield image.read_file(offset, min(_PIECE, image.size - offset))


def _digest(image: FileImage) -> str:
    digest = _blake2b()
    for piece in _pieces(image):
        digest.update(piece)
    return str(digest.hexdigest())


@cache
def _rules() -> str:
    """A digest of what gives the answers: with other code, or another decoder, they may differ."""
    sources = (
        path for room in (elf, spans, x86) for path in sorted(Path(room.__path__[0]).glob("*.py"))
    )
    code = b"".join(path.read_bytes() for path in sources)
    return str(_blake2b(code + capstone.__version__.encode()).hexdigest())


def _blake2b(data: bytes = b"") -> Any:
    try:
        from _blake2 import blake2b  # hashlib's own, which would load OpenSSL besides
    except ImportError:  # a Python that was built without
        from hashlib import blake2b
    return blake2b(data, digest_size=32)


# ---- an entry: a checksum, and a line of JSON ----------------------------------------------------


def _recalled(question: _Question[A], image: FileImage, name: str) -> dict[int, A]:
    """What is remembered of this object; nothing where the entry is damaged or of another one."""
    checksum, _, text = (recall(name, _MAX_ENTRY) or "").partition("\n")
    if not text or _blake2b(text.encode()).hexdigest() != checksum:
        return {}
    read = _READ.get(name)
    if read and read[:2] == (checksum, image.size) and read[2] == _digest(image):
        return dict(read[3])
    try:
        entry = json.loads(text)
        if entry["rules"] != _rules() or entry["digest"] != _digest(image):
            return {}
        answers = {
            int(address): question.decode(value) for address, value in entry["openings"].items()
        }
        openings = (each for answer in answers.values() for each in question.openings(answer))
        read_code = code_reader(image)
        if all(_has_code(read_code, opening) for opening in openings):
            while len(_READ) >= _MOST_READ:
                del _READ[next(iter(_READ))]
            _READ[name] = checksum, image.size, entry["digest"], answers
            return dict(answers)
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError, MemoryFault):
        pass
    return {}


def _has_code(read: ReadCode, opening: Opening | Closed) -> bool:
    if isinstance(opening, Closed):
        return True
    if read(opening.address, len(opening.code)) != opening.code:
        return False
    return all(read(hole.address, len(hole.code)) == hole.code for hole in opening.holes)


def _encoded(question: _Question[A], digest: str, answers: Mapping[int, A]) -> str:
    values = {str(address): question.encode(answers[address]) for address in sorted(answers)}
    text = json.dumps({"rules": _rules(), "digest": digest, "openings": values})
    return f"{_blake2b(text.encode()).hexdigest()}\n{text}"


def _plain(opening: Opening | Closed) -> list[object]:
    turned_down = [
        [way.name, type(reason).__name__, reason.name, address]
        for way, reason, address in opening.turned_down
    ]
    if isinstance(opening, Closed):
        return [opening.address, turned_down]
    way, address, code, size, holes, _ = opening
    places = [[hole.address, hole.code.hex(), hole.made] for hole in holes]
    return [address, turned_down, way.name, code.hex(), size, places]


def _decoded(value: list[Any]) -> Opening | Closed:
    """Raises ValueError, TypeError, KeyError for anything else."""
    address, plain, *opening = value
    turned_down = tuple(
        TurnedDown(Way[way], _REASONS[kind][reason], at) for way, kind, reason, at in plain
    )
    if not opening:
        return Closed(address, turned_down)
    way, code, size, places = opening
    holes = tuple(HolePlace(at, bytes.fromhex(text), made) for at, text, made in places)
    return Opening(Way[way], address, bytes.fromhex(code), size, holes, turned_down)


def _plain_exits(exits: Exits) -> list[object]:
    """Without the better ways of what can be opened: nobody asks for them, and they are most."""
    leaving = [[at, kind.name, _plain(_brief(opening))] for at, kind, opening in exits.exits]
    reason = exits.unbounded.name if exits.unbounded else None
    return [_plain(_brief(exits.entry)), leaving, reason, exits.at, exits.again]


def _brief(opening: Opening | Closed) -> Opening | Closed:
    return opening._replace(turned_down=()) if isinstance(opening, Opening) else opening


def _decoded_exits(value: list[Any]) -> Exits:
    """Raises as `_decoded`."""
    entry, leaving, reason, at, again = value
    exits = tuple(Exit(place, ExitKind[kind], _decoded(plain)) for place, kind, plain in leaving)
    return Exits(_decoded(entry), exits, Unbounded[reason] if reason else None, at, bool(again))


def _openings_in(exits: Exits) -> Iterator[Opening | Closed]:
    yield exits.entry
    for leaving in exits.exits:
        yield leaving.opening


_OPENING = _Question("openings", best_opening, _plain, _decoded, lambda opening: (opening,))
_CALL = _OPENING._replace(name="calls", ask=best_opening_of_call)
_EXITS = _Question("exits", exits_of, _plain_exits, _decoded_exits, _openings_in)
