"""Fixtures of tests of parts: memory, time that a test moves, children to stop, probes in C."""

from __future__ import annotations

import ctypes
import os
import subprocess
from collections.abc import Callable, Iterator
from functools import cache, partial
from pathlib import Path

import pytest

from markerjit.events import claim, feed, losses, stream
from markerjit.memory import ProcessMemory
from markerjit.probes.c.compile import compile_probe
from markerjit.probes.c.unit import Compiled
from tests.support.children import Child, Start, Waiting
from tests.support.compilers import C_COMPILERS, INCLUDE, Compiler, need
from tests.support.faulty_memory import FAULTS, STOP
from tests.support.made_streams import FakeTime
from tests.support.probe_host import HERE, Host, compile_everything


@pytest.fixture
def memory() -> Iterator[ProcessMemory]:
    """The memory of this process."""
    with ProcessMemory(os.getpid()) as memory:
        yield memory


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> FakeTime:
    """The time of event streams, which passes when a test says so."""
    fake = FakeTime()
    monkeypatch.setattr(feed, "clock_pair", fake.pair)
    for module in (feed, stream, claim, losses):
        monkeypatch.setattr(module, "time", fake)
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
    renamed = [
        *("-Dpread=test_pread", "-Dpwrite=test_pwrite"),
        *("-Dprocess_vm_readv=test_readv", "-Dprocess_vm_writev=test_writev"),
    ]
    subprocess.run(
        ["gcc", "-O1", "-shared", "-fPIC", *renamed, f"-I{STOP}", "-o", path, *sources], check=True
    )
    return ctypes.CDLL(str(path))


# ---- probes in C ---------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Host:
    """A stand-in for the runtime, which probes are loaded into and called in."""
    output = tmp_path_factory.mktemp("host") / "host.so"
    options = ["-O1", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", "-pthread"]
    subprocess.run(["gcc", *options, "-o", output, HERE / "host.c"], check=True)
    return Host(ctypes.CDLL(str(output)))


@pytest.fixture(params=C_COMPILERS, ids=lambda compiler: compiler.name)
def compiler(request: pytest.FixtureRequest) -> str:
    """The name of each C compiler in turn."""
    compiler: Compiler = request.param
    need(compiler)
    return compiler.name


@pytest.fixture
def everything(compiler: str) -> Compiled:
    """everything.c, compiled once by each compiler."""
    return compile_everything(compiler)


@pytest.fixture
def build_one(tmp_path: Path) -> Callable[..., Compiled]:
    """Compile a text as probe.c."""

    def build(text: str, function: str = "f", compiler: str = "gcc", **options: object) -> Compiled:
        source = tmp_path / "probe.c"
        source.write_text(text)
        return compile_probe(source, function, compiler, include=INCLUDE, **options)

    return build
