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
