"""The arena's bytes through its descriptor: all that is written arrives, or it is said."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from markerjit.arena.store import FileStore
from markerjit.errors import MarkerError
from tests.support.shortage import files_end_at

SIZE = 64 << 10
DATA = bytes(range(256)) * 64


@pytest.fixture
def store() -> Iterator[FileStore]:
    store = FileStore(os.memfd_create("arena"))
    store.grow(SIZE)
    yield store
    store.close()


def test_a_write_that_the_kernel_cuts_short_is_an_error(store: FileStore) -> None:
    """Half a journal under a head that tells of a whole one would be believed by repair."""
    with files_end_at(10_000), pytest.raises(MarkerError, match="cannot write 16384 bytes"):
        store.write(0, DATA)

    assert store.read(0, 10_001) == DATA[:10_000] + b"\0"


def test_a_write_that_cannot_begin_is_an_error_of_ours(store: FileStore) -> None:
    with files_end_at(10_000), pytest.raises(MarkerError, match="File too large"):
        store.write(20_000, DATA)


def test_a_file_that_cannot_become_so_large_is_an_error_that_names_the_limit(
    store: FileStore,
) -> None:
    with files_end_at(2 * SIZE), pytest.raises(MarkerError, match=r"cannot have .*ulimit -f"):
        store.grow(4 * SIZE)


def test_a_write_goes_on_where_the_kernel_stopped(
    store: FileStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = os.pwrite
    monkeypatch.setattr(os, "pwrite", lambda file, data, at: whole(file, data[:1000], at))

    store.write(123, DATA)

    assert store.read(123, len(DATA)) == DATA


def test_a_write_of_which_nothing_is_taken_ends(
    store: FileStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "pwrite", lambda *_: 0)

    with pytest.raises(MarkerError, match="nothing was taken"):
        store.write(0, DATA)


def test_a_read_goes_on_where_the_kernel_stopped(
    store: FileStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = os.pread
    store.write(123, DATA)
    monkeypatch.setattr(os, "pread", lambda file, size, at: whole(file, min(size, 1000), at))

    assert store.read(123, len(DATA)) == DATA


def test_a_read_beyond_the_end_says_where_that_is(store: FileStore) -> None:
    with pytest.raises(MarkerError, match=f"ends at {SIZE:#x}"):
        store.read(SIZE - 8, 16)
