"""The mappings of a process as the kernel tells them one by one."""

from __future__ import annotations

import _ctypes
import ctypes
import mmap
import os
from collections.abc import Iterator

import pytest

from markerjit.memory import read_maps
from markerjit.remote import mappings as module
from markerjit.remote import native
from markerjit.remote.before import Before
from markerjit.remote.mappings import SHARED_CODE, Mappings, are_told
from markerjit.remote.native import NativeMapping
from tests.support.programs import ROOT
from tests.support.timing import reaped

PAGES = 3 * mmap.PAGESIZE


@pytest.fixture
def mappings() -> Mappings:
    mappings = Mappings(os.getpid())
    if mappings.now() is None:
        pytest.skip("this kernel tells no mappings one by one (Linux 6.11)")
    return mappings


def parsed(entries: bytes) -> list[NativeMapping]:
    count = len(entries) // ctypes.sizeof(NativeMapping)
    return list((NativeMapping * count).from_buffer_copy(entries))


def test_what_is_told_is_compared_with_the_text(mappings: Mappings) -> None:
    entries, text = mappings.now(), read_maps("self")
    places = [
        (each.start, each.end, each.offset, each.inode)
        for each in text
        if each.path != "[vsyscall]"
    ]

    assert entries is not None
    assert are_told(entries, places)
    assert not are_told(entries, places[:-1])
    assert not are_told(entries, [*places[:-1], (*places[-1][:3], 7)])


def test_they_are_those_of_the_text(mappings: Mappings) -> None:
    entries = mappings.now()
    text = read_maps("self")

    assert entries is not None
    assert [
        (each.start, each.end, each.permissions, each.offset, f"{each.major:02x}:{each.minor:02x}",
         each.inode)
        for each in parsed(entries)
    ] == [
        (each.start, each.end,
         each.readable | each.writable << 1 | each.executable << 2 | each.shared << 3,
         each.offset, each.device, each.inode)
        for each in text if each.path != "[vsyscall]"
    ]  # fmt: skip


def test_they_are_other_ones_when_something_was_mapped_or_unmapped(
    mappings: Mappings,
) -> None:
    with open("/proc/self/exe", "rb") as file:
        before = mappings.now()
        assert mappings.now() == before
        area = mmap.mmap(file.fileno(), PAGES, prot=mmap.PROT_READ, flags=mmap.MAP_PRIVATE)
    mapped = mappings.now()
    area.close()
    unmapped = mappings.now()

    assert mapped not in (before, unmapped)


@pytest.fixture
def maps() -> Iterator[int]:
    """/proc/self/maps, open."""
    descriptor = os.open("/proc/self/maps", os.O_RDONLY)
    yield descriptor
    os.close(descriptor)


@pytest.mark.parametrize("code", [False, True])
def test_what_was_seen_is_compared(mappings: Mappings, maps: int, code: bool) -> None:
    protection = mmap.PROT_READ | (mmap.PROT_EXEC if code else 0)
    seen = mappings.now()
    assert seen is not None

    before = Before(maps, SHARED_CODE if code else 0).is_now(seen)
    area = mmap.mmap(-1, PAGES, prot=protection, flags=mmap.MAP_SHARED)
    mapped = Before(maps, SHARED_CODE if code else 0).is_now(seen)
    area.close()
    after = Before(maps, SHARED_CODE if code else 0).is_now(seen)

    assert (before, mapped, after) == (True, False, True)


def test_of_shared_code_no_other_mapping_is_asked(mappings: Mappings, maps: int) -> None:
    seen = mappings.now()
    assert seen is not None
    code = mmap.PROT_READ | mmap.PROT_EXEC

    for protection, flags in ((mmap.PROT_READ, mmap.MAP_SHARED), (code, mmap.MAP_PRIVATE)):
        with mmap.mmap(-1, PAGES, prot=protection, flags=flags | mmap.MAP_ANONYMOUS):
            assert Before(maps, SHARED_CODE).is_now(seen)
            assert not Before(maps).is_now(seen)


def test_one_that_was_seen_and_has_gone_is_missed(mappings: Mappings, maps: int) -> None:
    with mmap.mmap(-1, PAGES, prot=mmap.PROT_READ | mmap.PROT_EXEC, flags=mmap.MAP_SHARED):
        seen = mappings.now()
    assert seen is not None

    assert not Before(maps, SHARED_CODE).is_now(seen)
    assert not Before(maps).is_now(seen)


def test_an_object_that_is_loaded_and_unloaded_is_counted() -> None:
    before = native.own_loads()
    again = native.own_loads()
    library = ctypes.CDLL(ROOT / "build/targets/truth_plugin.so")
    loaded = native.own_loads()
    _ctypes.dlclose(library._handle)
    unloaded = native.own_loads()

    assert before == again
    assert len({before, loaded, unloaded}) == 3


def test_there_are_none_of_a_process_without_memory() -> None:
    child = os.fork()
    if not child:
        os._exit(0)
    os.waitid(os.P_PID, child, os.WEXITED | os.WNOWAIT)

    entries = Mappings(child).now()
    reaped(child)

    assert entries is None
    assert Mappings(child).now() is None


def test_more_of_them_than_there_is_room_for_are_not_told(
    mappings: Mappings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_MOST", 4)

    assert Mappings(os.getpid()).now() is None
