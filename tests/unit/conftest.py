"""What tests of parts share: children to be stopped, memory, time that a test moves."""

from __future__ import annotations

import ctypes
import os
import subprocess
from collections.abc import Callable, Iterator
from functools import cache, partial
from pathlib import Path

import pytest

from markerjit.events import stream as stream_module
from markerjit.memory import ProcessMemory
from tests.support.children import Child, Start, Waiting
from tests.support.faulty_memory import FAULTS, STOP
from tests.support.made_streams import FakeTime


@pytest.fixture
def memory() -> Iterator[ProcessMemory]:
    """The memory of this process."""
    with ProcessMemory(os.getpid()) as memory:
        yield memory


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> FakeTime:
    """The time of event streams, which passes when a test says so."""
    fake = FakeTime()
    monkeypatch.setattr(stream_module, "clock_pair", fake.pair)
    monkeypatch.setattr(stream_module, "time", fake)
    return fake


# ---- children to be stopped ----------------------------------------------------------------------


@pytest.fixture(scope="session")
def child_program(
    build: Path, tmp_path_factory: pytest.TempPathFactory
) -> Callable[[type[Child]], Path]:
    """Compiles the program of a kind of child, once."""

    @cache
    def compile_program(kind: type[Child]) -> Path:
        path = tmp_path_factory.mktemp("stop") / kind.source.stem
        options = ["-O2", "-Wall", "-Wextra", "-Werror", "-pthread"]
        subprocess.run(["gcc", *options, "-o", path, kind.source], check=True)
        return path

    return compile_program


@pytest.fixture
def start_child(child_program: Callable[[type[Child]], Path]) -> Iterator[Callable[..., Child]]:
    """Start a child: `start_child(Waiting, "read")`. All are gone when the test is over."""
    children: list[Child] = []

    def start(kind: type[Child], *options: object) -> Child:
        children.append(kind(child_program(kind), *options))
        return children[-1]

    yield start
    for child in children:
        child.end()


@pytest.fixture
def start(start_child: Callable[..., Child]) -> Start:
    """Start a child that waits in a call: `start("read")`."""
    return partial(start_child, Waiting)


# ---- transactions in memory that is made up ------------------------------------------------------


@pytest.fixture(scope="session")
def faulty_library(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    """The transactions of libmjstop.so, for a FaultyMemory."""
    path = tmp_path_factory.mktemp("faults") / "faults.so"
    sources = [STOP / "transaction.c", STOP / "runs.c", STOP / "write.c", FAULTS]
    renamed = ["-Dpread=test_pread", "-Dpwrite=test_pwrite", "-Dprocess_vm_readv=test_readv"]
    subprocess.run(
        ["gcc", "-O1", "-shared", "-fPIC", *renamed, f"-I{STOP}", "-o", path, *sources], check=True
    )
    return ctypes.CDLL(str(path))
