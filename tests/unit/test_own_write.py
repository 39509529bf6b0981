"""Transactions in our own process, under its own threads."""

from __future__ import annotations

import errno
import mmap
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from markerjit.model import Edit
from markerjit.remote import native
from tests.support.faulty_memory import edit
from tests.support.own_arena import address_of
from tests.support.own_writing import Own
from tests.support.programs import ROOT


@pytest.fixture
def own_page() -> mmap.mmap:
    return mmap.mmap(-1, mmap.PAGESIZE)


@pytest.fixture(params=[native.MEMBARRIER, native.SIGNALS, native.NONE])
def own(request: pytest.FixtureRequest, build: Path) -> Iterator[Own]:
    with open("/proc/self/mem", "r+b", buffering=0) as file:
        yield Own(request.param, file.fileno())


def stored(at: int, old: bytes, new: bytes) -> Edit:
    return edit(at, old, new)._replace(store=True)


def test_words_and_bytes_of_our_own_process_are_written(own: Own, own_page: mmap.mmap) -> None:
    start = address_of(own_page)

    status = own.apply(
        stored(start, bytes(8), b"one word"), edit(start + 13, b"\0", b"!"),
        stored(start + 20, bytes(4), b"half"), stored(start + 26, bytes(2), b"qu"),
        stored(start + 31, b"\0", b"."),
    )  # fmt: skip

    assert status == native.OK
    assert own_page[:32] == b"one word\0\0\0\0\0!\0\0\0\0\0\0half\0\0qu\0\0\0."


def test_one_unexpected_byte_of_our_own_and_nothing_is_written(
    own: Own, own_page: mmap.mmap
) -> None:
    start = address_of(own_page)

    edits = stored(start, bytes(8), b"one word"), edit(start + 8, b"\1", b"!")
    assert own.apply(*edits) == native.UNEXPECTED
    assert own_page[:16] == bytes(16)


@pytest.mark.parametrize(("offset", "size"), [(4, 8), (2, 4), (1, 2), (0, 3), (0, 16)])
def test_what_is_no_aligned_word_is_not_stored_and_what_was_is_taken_back(
    own: Own, own_page: mmap.mmap, offset: int, size: int
) -> None:
    start = address_of(own_page)

    status = own.apply(
        stored(start, bytes(8), b"one word"), stored(start + 16 + offset, bytes(size), b"x" * size)
    )

    assert (status, own.report.index, own.report.error) == (native.ERRNO, 1, errno.EINVAL)
    assert own_page[:64] == bytes(64)


def test_a_process_is_not_asked_to_stop_itself(own: Own, own_page: mmap.mmap) -> None:
    own._quiescence = native.STOP

    assert own.apply(edit(address_of(own_page), b"\0", b"!")) == native.ERRNO
    assert (own.report.error, own_page[:1]) == (errno.EINVAL, b"\0")


ALONE = """
import sys
import ctypes
from markerjit.remote import native
from tests.support.faulty_memory import edit
from tests.support.own_writing import Own, address_of_code

with open("/proc/self/mem", "r+b", buffering=0) as file:
    own = Own(int(sys.argv[1]), file.fileno())
    address = address_of_code()
    assert own.apply(edit(address + 3, b"\\0", b"\\xc3", code=True)) == native.OK, own.report.error
    assert ctypes.string_at(address, 4) == b"\\0\\0\\0\\xc3"
"""


def test_code_of_our_own_is_written_although_it_is_not_writable(own: Own) -> None:
    # In a process of its own: threads of other packages may block signals here (jemalloc's in
    # pyarrow does), and then there is no fence by signals.
    done = subprocess.run(
        [sys.executable, "-c", ALONE, str(own._quiescence)],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )

    assert (done.returncode, done.stderr) == (0, "")
