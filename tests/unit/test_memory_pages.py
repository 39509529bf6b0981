"""What the kernel says of a page: its protection, and whether it is a copy."""

from __future__ import annotations

import ctypes
import mmap
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from markerjit.memory import parse_maps, read_maps_text
from markerjit.memory.base import plain_refusal
from markerjit.memory.pages import PAGE_BYTES, Page, page_at
from markerjit.model import RemoteAddress


def page_of(memory: mmap.mmap) -> Page | None:
    address = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    maps = parse_maps(read_maps_text(os.getpid(), why_not=plain_refusal))
    return page_at(os.getpid(), maps, RemoteAddress(address + 5))


@pytest.fixture
def file(tmp_path: Path) -> Iterator[int]:
    (tmp_path / "file").write_bytes(b"x" * PAGE_BYTES)
    descriptor = os.open(tmp_path / "file", os.O_RDWR)
    yield descriptor
    os.close(descriptor)


def test_page_of_a_private_mapping_becomes_a_copy_when_it_is_written(file: int) -> None:
    memory = mmap.mmap(file, PAGE_BYTES, mmap.MAP_PRIVATE, mmap.PROT_READ | mmap.PROT_WRITE)
    assert memory[0] == ord("x")
    before = page_of(memory)

    memory[0] = ord("x")  # the same byte
    after = page_of(memory)

    assert before and after
    assert (before.access, before.copied) == ("rw-p", False)
    assert (after.access, after.copied) == ("rw-p", True)
    assert before.path.endswith("/file")
    assert before.address % PAGE_BYTES == 0


def test_page_of_a_shared_mapping_is_never_a_copy(file: int) -> None:
    memory = mmap.mmap(file, PAGE_BYTES, mmap.MAP_SHARED, mmap.PROT_READ | mmap.PROT_WRITE)
    memory[0] = ord("y")

    page = page_of(memory)

    assert page and (page.access, page.copied) == ("rw-s", False)


def test_nothing_is_known_of_a_page_that_is_not_mapped() -> None:
    assert page_at(os.getpid(), (), RemoteAddress(4096)) is None


def test_kernel_that_does_not_answer_leaves_it_open(
    file: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    memory = mmap.mmap(file, PAGE_BYTES, mmap.MAP_PRIVATE, mmap.PROT_READ | mmap.PROT_WRITE)
    monkeypatch.setattr(os, "pread", lambda *_: b"")

    page = page_of(memory)

    assert page and page.copied is None
