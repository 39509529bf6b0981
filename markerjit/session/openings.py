"""How sites of foreign code can be opened, remembered by the build of their object.

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
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import capstone

import markerjit.elf as elf
import markerjit.spans as spans
import markerjit.x86 as x86
from markerjit.elf import FileImage
from markerjit.errors import MemoryFault
from markerjit.sites.remembered import recall, remember
from markerjit.spans.code import Code, TargetKind
from markerjit.spans.openings import Closed, Opening, TurnedDown, Way, Why, best_opening
from markerjit.x86.relocate import Obstacle

MAX_BYTES = 1 << 28
"""The largest object that is copied and digested."""

_MAX_ENTRY = 1 << 22
_PIECE = 1 << 20
_REASONS: dict[str, type[Obstacle | TargetKind | Why]] = {
    kind.__name__: kind for kind in (Obstacle, TargetKind, Why)
}

Openings = dict[int, Opening | Closed]
"""By the address in the object's file."""


def openings_of(image: FileImage, asked: Collection[int], others: Iterable[int] = ()) -> Openings:
    """How these addresses of an object can be opened. Where that is not remembered, the `others`
    are looked at in the same scan.

    Raises NoFunctions, MemoryFault.
    """
    build_id = image.build_id()
    if not build_id or image.size > MAX_BYTES:
        return _scanned(image, asked)
    name = f"openings-{build_id}"
    known = _recalled(image, name)
    if known.keys() >= set(asked):
        return known
    with _copy_of(image) as copy:
        # Recalled once more: what was known is not of the copy where the file has changed since.
        openings = {**_recalled(copy, name), **_scanned(copy, {*asked, *others})}
        remember(name, _encoded(_digest(copy), openings))
    return openings


def _scanned(image: FileImage, addresses: Iterable[int]) -> Openings:
    code = Code(image)
    return {address: best_opening(code, address) for address in sorted(addresses)}


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


def _recalled(image: FileImage, name: str) -> Openings:
    """What is remembered of this object; nothing where the entry is damaged or of another one."""
    checksum, _, text = (recall(name, _MAX_ENTRY) or "").partition("\n")
    if not text or _blake2b(text.encode()).hexdigest() != checksum:
        return {}
    try:
        entry = json.loads(text)
        if entry["rules"] != _rules() or entry["digest"] != _digest(image):
            return {}
        openings = {int(address): _decoded(value) for address, value in entry["openings"].items()}
        if all(_has_code(image, opening) for opening in openings.values()):
            return openings
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError, MemoryFault):
        pass
    return {}


def _has_code(image: FileImage, opening: Opening | Closed) -> bool:
    return (
        isinstance(opening, Closed)
        or image.read(opening.address, len(opening.code)) == opening.code
    )


def _encoded(digest: str, openings: Mapping[int, Opening | Closed]) -> str:
    values = {str(address): _plain(openings[address]) for address in sorted(openings)}
    text = json.dumps({"rules": _rules(), "digest": digest, "openings": values})
    return f"{_blake2b(text.encode()).hexdigest()}\n{text}"


def _plain(opening: Opening | Closed) -> list[object]:
    turned_down = [
        [way.name, type(reason).__name__, reason.name, address]
        for way, reason, address in opening.turned_down
    ]
    if isinstance(opening, Closed):
        return [opening.address, turned_down]
    way, address, code, size, hole, _ = opening
    return [address, turned_down, way.name, code.hex(), size, hole]


def _decoded(value: list[Any]) -> Opening | Closed:
    """Raises ValueError, TypeError, KeyError for anything else."""
    address, plain, *opening = value
    turned_down = tuple(
        TurnedDown(Way[way], _REASONS[kind][reason], at) for way, kind, reason, at in plain
    )
    if not opening:
        return Closed(address, turned_down)
    way, code, size, hole = opening
    return Opening(Way[way], address, bytes.fromhex(code), size, hole, turned_down)
