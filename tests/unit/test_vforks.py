"""Whether a process may have children in its memory: what one process has in its memory says
nothing about another one that has the same files."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from operator import attrgetter

import pytest

from markerjit.memory import Mapping, ProcessMemory, read_maps
from markerjit.model import RemoteAddress
from markerjit.sites import unchanged, vforks
from tests.support.timing import Limited


class Program:
    """A Python with a module that calls vfork. `reads` are the addresses that are read of it."""

    def __init__(self) -> None:
        pipe = subprocess.PIPE
        words = [sys.executable, "-c", "import _posixsubprocess; print(1, flush=True); input()"]
        self.process = Limited(words, stdin=pipe, stdout=pipe)
        assert self.process.stdout and self.process.stdout.readline()
        self.memory = ProcessMemory(self.process.pid)
        self.maps = sorted(read_maps(self.process.pid), key=attrgetter("path", "offset"))
        self.reads: list[int] = []

    def read(self, address: RemoteAddress, size: int) -> bytes:
        self.reads.append(address)
        return self.memory.read(address, size)

    def read_lies(self, address: RemoteAddress, size: int) -> bytes:
        """As if the process had written over the names that its libraries import."""
        data = self.read(address, size)
        for name in (b"vfork", b"clone"):
            data = data.replace(name, b"nlone")
        return data

    def may(self) -> bool:
        return vforks.may_share_memory(self.process.pid, self.read, self.maps)

    def close(self) -> None:
        self.memory.close()
        self.process.kill()
        self.process.communicate()


@pytest.fixture
def programs(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Program]]:
    vforks._known.clear()
    programs = [Program(), Program()]
    yield programs
    for program in programs:
        program.close()
    vforks._known.clear()


@pytest.fixture
def rested(monkeypatch: pytest.MonkeyPatch) -> None:
    """All files count as such that have not changed for long."""
    monkeypatch.setattr(unchanged, "_has_rested", lambda about: True)


def test_a_second_process_with_the_same_files_is_not_read(
    programs: list[Program], rested: None
) -> None:
    first = programs[0].may()

    assert programs[1].may() is first
    assert programs[0].reads
    assert programs[1].reads == []


def test_each_process_is_read_where_files_may_have_changed(
    programs: list[Program], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(unchanged, "_has_rested", lambda about: False)

    assert programs[0].may() is programs[1].may()
    assert len(programs[0].reads) == len(programs[1].reads) > 0


def test_what_a_process_has_in_its_memory_is_not_believed_of_another(
    programs: list[Program], rested: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(unchanged, "_has_rested", lambda about: False)
    assert programs[1].may()
    monkeypatch.setattr(unchanged, "_has_rested", lambda about: True)

    pid, maps = programs[0].process.pid, programs[0].maps
    assert vforks.may_share_memory(pid, programs[0].read_lies, maps)
    assert programs[1].may()


def test_a_mapping_of_another_file_is_not_answered_for_by_this_one(
    programs: list[Program], rested: None
) -> None:
    """As where the file was replaced since: the path leads to another inode."""
    programs[0].may()

    def others(mapping: Mapping) -> Mapping:
        return mapping._replace(inode=mapping.inode + 1 if mapping.inode else 0)

    program = programs[1]
    program.maps = list(map(others, program.maps))

    assert isinstance(program.may(), bool)
    assert program.reads
