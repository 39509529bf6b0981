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
from markerjit.elf.image import PF_X, PT_LOAD
from markerjit.errors import MemoryFault
from markerjit.sites.remembered import recall, remember
from markerjit.spans.calls import best_opening_of_call
from markerjit.spans.code import Code
from markerjit.spans.columns import (
    KeptExits,
    KeptOpenings,
    Plain,
    columns_of_exits,
    columns_of_openings,
)
from markerjit.spans.exits import exits_of
from markerjit.spans.openings import Closed, Opening, best_opening
from markerjit.tuples import NamedTuple

MAX_BYTES = 1 << 28
"""The largest object that is copied and digested."""

Progress = Callable[[str, float], None]
"""Called with what is looked at, and how much of it is done, from 0 to 1."""


def silent(what: str, done: float) -> None:
    """Report no progress."""


_MAX_ENTRY = 1 << 24
_MOST_READ = 4
_READ: dict[str, tuple[str, int, str, Any]] = {}
"""By the name of an entry, its checksum, the size and the digest of the object, and the answers: a
switch asks for the same ones three times."""
_TURN = 64
"""Answers between two reports of progress."""
_PIECE = 1 << 20

Openings = Mapping[int, Opening | Closed]
"""By the address in the object's file."""

K = TypeVar("K", KeptOpenings, KeptExits)


class _Question(NamedTuple, Generic[K]):
    """What is asked of addresses of an object: the name of its entries in the cache, the answer for
    an address, the columns of answers, and the answers of columns."""

    name: str
    ask: Callable[[Code, int], Any]
    columns: Callable[[Mapping[int, Any]], Plain]
    kept: Callable[[Plain], K]


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
) -> KeptExits:
    """Where the functions that are entered at these addresses are left, by those. `progress` is
    called where that is not remembered. Raises as `openings_of`."""
    return _answers(_EXITS, image, entries, (), progress)


def _answers(
    question: _Question[K],
    image: FileImage,
    asked: Collection[int],
    others: Iterable[int],
    progress: Progress = silent,
) -> K:
    build_id = image.build_id()
    if not build_id or image.size > MAX_BYTES:
        return question.kept(question.columns(_scanned(question, image, asked, progress)))
    name = f"{question.name}-{build_id}"
    known = _recalled(question, image, name)
    if known is not None and known.keys() >= set(asked):
        return known
    with _copy_of(image) as copy:
        # Recalled once more: what was known is not of the copy where the file has changed since.
        again: Mapping[int, Any] = _recalled(question, copy, name) or {}
        missing = {*asked, *others}.difference(again)
        answers = {**again, **_scanned(question, copy, missing, progress)}
        columns = question.columns({address: answers[address] for address in sorted(answers)})
        remember(name, _encoded(_digest(copy), columns))
    return question.kept(columns)


def _scanned(
    question: _Question[K], image: FileImage, addresses: Collection[int], progress: Progress
) -> dict[int, Any]:
    code = Code(image)
    code.expect(len(addresses))
    answers: dict[int, Any] = {}
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


def _recalled(question: _Question[K], image: FileImage, name: str) -> K | None:
    """What is remembered of this object; None where the entry is damaged or of another one."""
    checksum, _, text = (recall(name, _MAX_ENTRY) or "").partition("\n")
    if not text or _blake2b(text.encode()).hexdigest() != checksum:
        return None
    read = _READ.get(name)
    if read and read[:2] == (checksum, image.size) and read[2] == _digest(image):
        before: K = read[3]
        return before
    try:
        entry = json.loads(text)
        if entry["rules"] != _rules() or entry["digest"] != _digest(image):
            return None
        answers = question.kept(entry["answers"])
        if answers.openings.have_code(_texts(image)):
            while len(_READ) >= _MOST_READ:
                del _READ[next(iter(_READ))]
            _READ[name] = checksum, image.size, entry["digest"], answers
            return answers
    except (
        ValueError, TypeError, KeyError, IndexError, AttributeError, RecursionError, MemoryFault,
    ):  # fmt: skip
        pass
    return None


def _texts(image: FileImage) -> list[tuple[int, bytes]]:
    """The executable segments, and where they are. Raises MemoryFault."""
    return [
        (each.address, image.read(each.address, each.file_size))
        for each in image.segments
        if each.type == PT_LOAD and each.flags & PF_X
    ]


def _encoded(digest: str, answers: Plain) -> str:
    text = json.dumps({"rules": _rules(), "digest": digest, "answers": answers})
    return f"{_blake2b(text.encode()).hexdigest()}\n{text}"


_OPENING = _Question("openings", best_opening, columns_of_openings, KeptOpenings)
_CALL = _OPENING._replace(name="calls", ask=best_opening_of_call)
_EXITS = _Question("exits", exits_of, columns_of_exits, KeptExits)
