"""What a loader says about its work, in the memory of a program that is none."""

from __future__ import annotations

import os
import struct

import pytest

from markerjit.memory import FakeMemory
from markerjit.proc.loader import Loading, loading, loading_of

AT_PHDR, AT_PHENT, AT_PHNUM, AT_BASE, AT_ENTRY, AT_SYSINFO_EHDR = 3, 4, 5, 7, 9, 33
PT_INTERP, PT_PHDR, PT_DYNAMIC = 3, 6, 2
DT_NEEDED, DT_DEBUG = 1, 21
READABLE, WRITABLE = 4, 6
RT_CONSISTENT, RT_ADD, RT_DELETE = 0, 1, 2

BIAS = 0x5000_0000
HEADERS, PATH, DYNAMIC = BIAS + 0x40, BIAS + 0x400, BIAS + 0x3000
DEBUG, LINKS = 0x7000_0000, 0x7100_0000
LOADER, VDSO, LIBC = 0x7200_0000, 0x7300_0000, 0x7400_0000
GLIBC, MUSL = b"/lib64/ld-linux-x86-64.so.2", b"/lib/ld-musl-x86_64.so.1"


def pairs(*values: tuple[int, int]) -> bytes:
    return b"".join(struct.pack("<QQ", *pair) for pair in (*values, (0, 0)))


def vector(**changes: int) -> bytes:
    facts = {
        AT_SYSINFO_EHDR: VDSO,
        AT_PHDR: HEADERS,
        AT_PHENT: changes.get("entry_size", 56),
        AT_PHNUM: 3,
        AT_BASE: changes.get("base", LOADER),
        AT_ENTRY: BIAS + 0x1000,
    }
    return pairs(*facts.items())


def program(
    *,
    path: bytes = GLIBC,
    flags: int = WRITABLE,
    tags: tuple[tuple[int, int], ...] = ((DT_NEEDED, 7), (DT_DEBUG, DEBUG)),
    version: int = 1,
    state: int = RT_CONSISTENT,
    objects: tuple[int, ...] = (BIAS, VDSO, LIBC, LOADER),
) -> FakeMemory:
    """A program, whose loader has a list of objects that begin at these addresses."""
    segments = [
        (PT_PHDR, READABLE, HEADERS - BIAS, 3 * 56),
        (PT_INTERP, READABLE, PATH - BIAS, len(path) + 1),
        (PT_DYNAMIC, flags, DYNAMIC - BIAS, 16 * (len(tags) + 1)),
    ]
    memory = FakeMemory()
    memory.add(
        HEADERS,
        b"".join(
            struct.pack("<IIQQQQQQ", kind, flags, address, address, address, size, size, 8)
            for kind, flags, address, size in segments
        ),
    )
    memory.add(PATH, path + b"\0")
    memory.add(DYNAMIC, pairs(*tags))
    links = [LINKS + 0x100 * number for number, _ in enumerate(objects)] + [0]
    first = links[0] if objects else 0
    memory.add(DEBUG, struct.pack("<i4xQQi4xQ", version, first, 0x1234, state, LOADER))
    for at, start, after in zip(links, objects, links[1:], strict=False):
        memory.add(at, struct.pack("<QQQQ", start, 0, start + DYNAMIC - BIAS, after))
    return memory


def test_program_is_complete_when_its_list_of_objects_is() -> None:
    assert loading_of(vector(), program().read) is Loading.DONE


@pytest.mark.parametrize("written", [0, 16, 64])
def test_kernel_is_at_work_until_it_has_written_the_auxiliary_vector(written: int) -> None:
    nothing = FakeMemory()

    assert loading_of(vector()[:written], nothing.read) is Loading.AT_WORK
    assert loading_of(bytes(written), nothing.read) is Loading.AT_WORK


@pytest.mark.parametrize(
    "memory",
    [
        program(tags=((DT_NEEDED, 7), (DT_DEBUG, 0))),
        program(version=0),
        program(objects=()),
        program(state=RT_ADD),
        program(state=RT_DELETE),
        program(state=RT_ADD, objects=(BIAS, LOADER)),
    ],
    ids=["no structure", "not filled in", "no list", "adds", "takes away", "adds the first one"],
)
def test_loader_is_at_work_until_it_says_that_it_is_not(memory: FakeMemory) -> None:
    assert loading_of(vector(), memory.read) is Loading.AT_WORK


@pytest.mark.parametrize("objects", [(BIAS, VDSO, LOADER), (BIAS, LOADER), (BIAS,)])
def test_glibc_that_has_not_begun_yet_is_not_believed(objects: tuple[int, ...]) -> None:
    assert loading_of(vector(), program(objects=objects).read) is Loading.AT_WORK

    alone = program(objects=objects, tags=((DT_DEBUG, DEBUG),))
    assert loading_of(vector(), alone.read) is Loading.DONE


def test_loader_that_is_the_c_library_is_enough() -> None:
    memory = program(path=MUSL, objects=(BIAS, LOADER, VDSO))

    assert loading_of(vector(), memory.read) is Loading.DONE


@pytest.mark.parametrize(
    ("changes", "memory"),
    [
        ({"base": 0}, FakeMemory()),
        ({"entry_size": 32}, FakeMemory()),
        ({}, program(tags=((DT_NEEDED, 7),))),
        ({}, program(flags=READABLE)),
        ({}, FakeMemory()),
        ({}, program(tags=((DT_DEBUG, DEBUG + 0x800_0000),))),
    ],
    ids=["no loader", "32 bits", "no place to tell", "no right to tell", "no headers", "a lie"],
)
def test_of_others_nothing_is_said(changes: dict[str, int], memory: FakeMemory) -> None:
    assert loading_of(vector(**changes), memory.read) is Loading.SILENT


def test_list_that_goes_in_a_circle_is_not_followed_for_ever() -> None:
    memory = program(objects=(BIAS, LOADER))
    at = LINKS + 0x100
    memory.write(at, struct.pack("<QQQQ", LOADER, 0, 0, at))

    assert loading_of(vector(), memory.read) is Loading.DONE


def test_our_own_loader_is_done() -> None:
    assert loading(os.getpid()) is Loading.DONE
