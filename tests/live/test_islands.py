"""Code of ours near a program's own, in running programs."""

from __future__ import annotations

import os
import struct
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import markerjit
from markerjit.arena.find import process_of
from markerjit.arena.islands import REACH, Island, Span
from markerjit.memory import read_maps
from markerjit.model import RemoteAddress
from tests.support.compilers import Compiler
from tests.support.processes import text_of as code_of
from tests.support.programs import Target
from tests.support.timing import Limited

MAPPED_AGAIN = r"""
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
__attribute__((noinline)) int doubled(int n) {
    volatile int room = n;
    return room * 2;
}
__attribute__((noinline, aligned(4096))) int in_other_memory(int n) {
    volatile int room = n;
    return room * 3;
}
static char copy[4096];
int main(void) {
    char line[8];
    int file = open("/proc/self/exe", O_RDONLY);
    void *page = (void *)((uintptr_t)in_other_memory & ~4095UL);
    memcpy(copy, page, sizeof copy);
    mmap(page, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
    memcpy(page, copy, sizeof copy);
    mprotect(page, 4096, PROT_READ | PROT_EXEC);
    mmap((void *)0x500000000000, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE, file, 4096);
    puts("ready");
    fflush(stdout);
    while (fgets(line, sizeof line, stdin)) {
        int sum = 0;
        for (int n = 0; n < 10; n++) sum += doubled(n) + in_other_memory(n);
        printf("%d\n", sum);
        fflush(stdout);
    }
}
"""


def text_of(program: Target) -> Span:
    """The code of the program's file."""
    path = str(Path(program.path).resolve())
    mapping = next(
        mapping for mapping in read_maps(program.pid) if mapping.executable and mapping.path == path
    )
    return Span(mapping.start, mapping.end)


def stub(to: int) -> bytes:
    """jmp *0(%rip), and the address: the way from an island to the arena, which is far away."""
    return b"\xff\x25\0\0\0\0" + struct.pack("<Q", to)


def count_probe(session: markerjit.Session) -> RemoteAddress:
    return session._target.seen.arena.count_probe(preserving=True)


def put_stub(session: markerjit.Session, span: Span, to: int) -> tuple[Island, RemoteAddress]:
    """A stub near the program's code."""
    with session._switcher.turn() as turn:
        arena = session._target.seen.arena
        island = arena.islands.near(span, 64, process_of(arena, turn.caller()))
        return island, arena.islands.put(island, stub(to))


@contextmanager
def slot_calls(session: markerjit.Session, marker: str, probe: int) -> Iterator[None]:
    """A marker's slot calls this instead."""
    slot = session.sites(marker)[0].slot
    before = session._target.memory.read(slot, 8)
    session._target.memory.write(slot, probe.to_bytes(8, "little"))
    yield
    session._target.memory.write(slot, before)


def test_a_recorder_is_called_through_an_island(target: Callable) -> None:
    program = target("truth_modes-jump")
    span = text_of(program)

    with markerjit.attach(program.pid) as session, session.trace("truth_mode") as stream:
        (state,) = session.states(session.sites("truth_mode"))
        island, probe = put_stub(session, span, state.probe)
        with slot_calls(session, "truth_mode", probe):
            program.command("run 1000")
        program.command("run 10")
        base = session._target.seen.arena.base
    events = [event.fields["i"] for event in stream.drain()]

    assert abs(island.start - span.start) < REACH
    assert abs(base - span.start) > REACH, "else the test says nothing"
    assert events == [*range(1000), *range(10)]


def test_what_is_called_in_an_island_is_ours_to_switch_off(target: Callable) -> None:
    program = target("truth_modes-jump")
    span = text_of(program)

    with markerjit.attach(program.pid) as session, markerjit.attach(program.pid) as other:
        session.enable("truth_mode")
        assert not other.statistics("truth_mode")[0].hits
        island, probe = put_stub(session, span, count_probe(session))
        slot = session.sites("truth_mode")[0].slot
        session._target.memory.write(slot, probe.to_bytes(8, "little"))
        program.command("run 10")

        assert put_stub(other, span, count_probe(session))[0].number == island.number
        assert other.statistics("truth_mode")[0].hits == 10
        other.disable("truth_mode")

        assert other.statistics("truth_mode")[0].mode is None
    with markerjit.View(program.pid) as view:
        assert probe in view._target.seen.arenas.probes
        assert view.runtime_problem is None


def test_the_child_of_a_fork_has_the_island_too(target: Callable) -> None:
    program = target("truth_fork")
    span = text_of(program)

    with markerjit.attach(program.pid) as session:
        session.enable("truth_*")
        _, probe = put_stub(session, span, count_probe(session))
        with slot_calls(session, "truth_child", probe), slot_calls(session, "truth_parent", probe):
            assert program.command("fork 100").endswith("status=0")
        session.disable("*")
        assert session.statistics("truth_parent")[0].hits == 1


def test_stubs_are_near_code_of_which_the_program_maps_a_piece_again_or_copies_one(
    tmp_path: Path,
) -> None:
    """V8 does so with its builtins. Other programs have large pages in the place of their code."""
    source, path = tmp_path / "again.c", tmp_path / "again"
    source.write_text(MAPPED_AGAIN)
    made = Compiler("gcc").run("-O2", source, "-o", path)
    assert made.returncode == 0, made.stderr
    pipe = subprocess.PIPE
    with Limited([path], stdin=pipe, stdout=pipe, text=True) as program:
        assert program.stdin and program.stdout
        assert program.stdout.readline() == "ready\n"
        places = [each.start for each in read_maps(program.pid) if each.path == os.fspath(path)]
        before = code_of(program.pid)
        with markerjit.attach(program.pid) as session:
            session.on("func:again:doubled,func:again:doubled:return")
            session.on("func:again:in_other_memory")
            print("go", file=program.stdin, flush=True)
            answer = program.stdout.readline()
            names = "func:again:doubled,func:again:in_other_memory"
            hits = [each.hits for each in session.status(names)]
            session.off("func:*")
            session.off("func:*:return")
        after = code_of(program.pid)
        program.stdin.close()
        assert program.wait() == 0

    assert 0x500000000000 in places
    assert answer == "225\n"
    assert hits == [10, 10]
    assert after == before
