"""A check of the rooms that read USDT probes: an object's section headers and its notes.

An input is the table of section headers and the section of the notes, one after the other, of an
object that is otherwise whole.
"""

from __future__ import annotations

import os
import struct
import tempfile
from functools import cache
from pathlib import Path

from markerjit.elf import FileImage, parse_format
from markerjit.elf.image import PF_W, PF_X
from markerjit.elf.sections import read_sections
from markerjit.elf.stapsdt import MAX_PROBLEMS
from markerjit.errors import BadFile, BadNote, Unsupported
from markerjit.model import Constant, Static
from markerjit.sites.usdt import usdt_of_file
from tests.fuzz.edits import Place
from tests.fuzz.harness import ACCEPTED, LINE, Harness, Seed
from tests.support.usdt import build

_SECTION = 64
_PROBES = (
    'PROBE one, "8@%rax -4@-20(%rbp) 1@$7", raised',
    'PROBE two, "8@counter+8(%rip) 8f@%xmm0 2@(%rax,%rbx,8)"',
    'PROBE query__start, "8@%rdi", provider=postgresql',
    'PROBE object__alloc, "-8@%rax 8@%rdx -4@%ecx -4@%ebx", provider=hotspot',
)


@cache
def _object() -> tuple[bytes, range, range]:
    """An object's bytes, and where its section headers and its notes are."""
    with tempfile.TemporaryDirectory() as folder:
        path = build(Path(folder), _PROBES)
        data = path.read_bytes()
        with FileImage(str(path)) as image:
            sections = read_sections(image)
    (table,) = struct.unpack_from("<Q", data, 40)
    (notes,) = (section for section in sections if section.name == b".note.stapsdt")
    headers = range(table, table + len(sections) * _SECTION)
    return data, headers, range(notes.offset, notes.offset + notes.size)


def _seeds() -> list[Seed]:
    data, headers, notes = _object()
    places = [
        Place(at + field, width)
        for at in range(0, len(headers), _SECTION)
        for field, width in ((4, 4), (16, 8), (24, 8), (32, 8), (40, 4), (48, 8))
    ]
    start = notes.start
    while start < notes.stop:
        owner, content = struct.unpack_from("<II", data, start)
        at = len(headers) + start - notes.start
        places += [Place(at + field, 4) for field in (0, 4, 8)]
        places += [Place(at + 20 + field, 8) for field in (0, 8, 16)]
        places += [Place(at + field, 1) for field in range(44, 20 + content)]
        start += 12 + owner + -(-content // 4) * 4
    body = data[headers.start : headers.stop] + data[notes.start : notes.stop]
    return [Seed(body, places)]


def check_usdt(data: bytes) -> str:
    """usdt_of_file raises BadFile or Unsupported; what is wrong with a note is in its answer."""
    whole, headers, notes = _object()
    content = bytearray(whole)
    body = data.ljust(len(headers) + len(notes), b"\0")
    content[headers.start : headers.stop] = body[: len(headers)]
    content[notes.start : notes.stop] = body[len(headers) :][: len(notes)]
    file = _scratch()
    os.ftruncate(file, 0)
    os.pwrite(file, content, 0)
    path = f"/proc/self/fd/{file}"
    try:
        sites, problems = usdt_of_file(path)
    except (BadFile, Unsupported) as error:
        assert str(error).isprintable()
        return type(error).__name__
    assert len(problems) <= MAX_PROBLEMS + len(headers) // _SECTION
    for problem in problems:
        assert isinstance(problem, BadFile | BadNote)
        assert len(str(problem)) < LINE
        assert str(problem).isprintable()
    with FileImage(path) as image:
        code, loaded, written = image.loaded(PF_X), image.loaded(), image.loaded(PF_W)
    for site in sites:
        assert site.signature.name.isprintable()
        fields = parse_format(site.signature.format, site.signature.args)
        assert len(fields) <= len(site.recipe.operands) == len(site.signature.args)
        assert any(site.address in span for span in code)
        semaphore = site.recipe.semaphore
        assert not semaphore or any(semaphore in span for span in written)
        for operand in site.recipe.operands:
            if isinstance(operand, Static):
                assert any(operand.address in span for span in loaded)
            if isinstance(operand, Constant):
                assert -(1 << 63) <= operand.value < 1 << 64
    if not sites:
        return "BadNote" if problems else "no probes"
    return "accepted in part" if problems or len(sites) < len(_PROBES) else ACCEPTED


@cache
def _scratch() -> int:
    return os.memfd_create("fuzz")


HARNESSES = (Harness("usdt", _seeds, check_usdt),)
