"""A process as it was is compared with what it is now, by one call."""

from __future__ import annotations

import _ctypes
import ctypes
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from markerjit.remote import native
from markerjit.remote.before import Before, Place
from markerjit.remote.mappings import SHARED_CODE, Mappings
from tests.support.programs import ROOT
from tests.support.timing import Limited

SIZE = 5000
"""More than is compared at once."""

pytestmark = pytest.mark.skipif(
    Mappings(os.getpid()).now() is None, reason="needs a kernel that tells mappings (6.11)"
)


@pytest.fixture
def maps() -> Iterator[int]:
    descriptor = os.open("/proc/self/maps", os.O_RDONLY)
    yield descriptor
    os.close(descriptor)


@pytest.fixture
def seen() -> bytes:
    mapped = Mappings(os.getpid()).now()
    assert mapped
    return mapped


@pytest.mark.parametrize("changed", [0, 1, SIZE - 1])
def test_each_byte_of_a_place_is_compared_and_no_other(
    maps: int, seen: bytes, tmp_path: Path, changed: int
) -> None:
    path, before, content = tmp_path / "file", b"before", bytes(range(250)) * (SIZE // 250)
    path.write_bytes(before + content + b"behind")
    with path.open("r+b", buffering=0) as file:
        places = [Place(file.fileno(), len(before), content), Place(file.fileno(), 0, b"be")]
        process = Before(maps, SHARED_CODE, places=places)
        assert process.is_now(seen)

        for offset in (len(before) - 1, len(before) + SIZE):
            os.pwrite(file.fileno(), b"\xff", offset)
            assert process.is_now(seen)
        os.pwrite(file.fileno(), b"\xff", len(before) + changed)
        assert not process.is_now(seen)

        os.pwrite(file.fileno(), content[changed : changed + 1], len(before) + changed)
        assert process.is_now(seen)
        file.truncate(len(before) + SIZE - 1)
        assert not process.is_now(seen)


def test_a_process_that_has_ended_is_another(maps: int, seen: bytes) -> None:
    with Limited(["cat"], stdin=subprocess.PIPE) as child:
        pidfd = os.pidfd_open(child.pid)
        process = Before(maps, SHARED_CODE, pidfd=pidfd)
        alive = process.is_now(seen)
        child.communicate()
        ended = process.is_now(seen)
        os.close(pidfd)

    assert (alive, ended) == (True, False)


def test_an_object_that_is_loaded_makes_another_process(maps: int, seen: bytes) -> None:
    process = Before(maps, SHARED_CODE, loads=native.own_loads())
    before = process.is_now(seen)
    library = ctypes.CDLL(os.fspath(ROOT / "build/targets/truth_plugin.so"))
    loaded = process.is_now(seen)
    _ctypes.dlclose(library._handle)
    unloaded = process.is_now(seen)

    assert (before, loaded, unloaded) == (True, False, False)
