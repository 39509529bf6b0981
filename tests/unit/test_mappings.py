"""The mappings of a process as the kernel tells them one by one."""

from __future__ import annotations

import ctypes
import mmap
import os

import pytest

from markerjit.memory import read_maps
from markerjit.remote import mappings as module
from markerjit.remote.mappings import Mappings
from markerjit.remote.native import NativeMapping

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


@pytest.mark.parametrize("executable", [False, True])
def test_what_was_seen_is_compared_without_a_copy(mappings: Mappings, executable: bool) -> None:
    protection = mmap.PROT_READ | (mmap.PROT_EXEC if executable else 0)
    seen = mappings.now()
    assert seen is not None

    before = mappings.are(seen, executable=executable)
    area = mmap.mmap(-1, PAGES, prot=protection, flags=mmap.MAP_SHARED)
    mapped = mappings.are(seen, executable=executable)
    area.close()
    after = mappings.are(seen, executable=executable)

    assert (before, mapped, after) == (True, False, True)


def test_of_mappings_that_can_be_executed_no_other_is_asked(mappings: Mappings) -> None:
    seen = mappings.now()
    assert seen is not None

    with mmap.mmap(-1, PAGES, prot=mmap.PROT_READ, flags=mmap.MAP_SHARED):
        assert mappings.are(seen, executable=True)
        assert not mappings.are(seen)


def test_one_that_was_seen_and_has_gone_is_missed(mappings: Mappings) -> None:
    with mmap.mmap(-1, PAGES, prot=mmap.PROT_READ | mmap.PROT_EXEC, flags=mmap.MAP_SHARED):
        seen = mappings.now()
    assert seen is not None

    assert not mappings.are(seen, executable=True)
    assert not mappings.are(seen)


def test_there_are_none_of_a_process_without_memory() -> None:
    child = os.fork()
    if not child:
        os._exit(0)
    os.waitid(os.P_PID, child, os.WEXITED | os.WNOWAIT)

    entries = Mappings(child).now()
    os.waitpid(child, 0)

    assert entries is None
    assert Mappings(child).now() is None


def test_more_of_them_than_there_is_room_for_are_not_told(
    mappings: Mappings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_MOST", 4)

    assert Mappings(os.getpid()).now() is None
