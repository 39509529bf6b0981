"""A program that has no marker, and so no note that could lend its name: it takes an arena."""

from __future__ import annotations

import os
import subprocess

import pytest

from markerjit.arena.create import create_arena
from markerjit.arena.find import find_arenas, is_memfd
from markerjit.memory import ProcessMemory, read_maps
from markerjit.proc.permission import why_not
from markerjit.remote import native
from markerjit.remote.calls import BorrowedThread
from markerjit.remote.gadgets import find_gadgets
from tests.support.timing import Limited

pytestmark = pytest.mark.live


def test_a_program_without_any_note_gets_an_arena() -> None:
    pipe = subprocess.PIPE
    with Limited(["cat"], stdin=pipe, stdout=pipe, bufsize=0) as program:
        assert program.stdin and program.stdout
        program.stdin.write(b"x")
        assert program.stdout.read(1) == b"x", "it runs"
        memory = ProcessMemory(program.pid, why_not=why_not)
        try:
            maps = read_maps(program.pid, why_not=why_not)
            gadgets = find_gadgets(memory.read, maps)
            target = native.NativeTarget(program.pid, memory.pidfd, memory.fileno(), 0, *gadgets)

            made = create_arena(program.pid, memory, BorrowedThread(target), maps=maps)

            links = [
                os.readlink(f"/proc/{program.pid}/fd/{number}")
                for number in os.listdir(f"/proc/{program.pid}/fd")
            ]
            assert sum(map(is_memfd, links)) == 1
            arenas = find_arenas(program.pid, memory, read_maps(program.pid, why_not=why_not))
            assert arenas.own is not None
            assert arenas.own.base == made.base
            program.stdin.write(b"y")
            assert program.stdout.read(1) == b"y", "it goes on"
            arenas.close()
            made.close()
        finally:
            memory.close()
            program.kill()
