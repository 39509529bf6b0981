"""The probes of libstdc++ where exceptions are thrown and caught, in a program that counts both."""

from __future__ import annotations

import subprocess
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import markerjit
from tests.support.processes import text_of
from tests.support.programs import Target

pytestmark = pytest.mark.live

SOURCE = r"""
#include <cstdio>
#include <stdexcept>
#include <string>
#include <vector>
#include <unistd.h>

static long thrown, caught, again;

static void fail(int how) {
    try {
        thrown++;
        if (how == 0)
            throw std::runtime_error("how");
        if (how == 1)
            throw std::string("how");
        std::vector<int>().at(5);
    } catch (const std::runtime_error &) {
        caught++;
        try {
            again++;
            throw;
        } catch (...) {
            caught++;
        }
    } catch (...) {
        caught++;
    }
}

int main() {
    char line[64];
    int turn = 0;

    printf("ready pid=%d\n", getpid());
    fflush(stdout);
    while (fgets(line, sizeof(line), stdin)) {
        for (int i = 0; i < 300; i++)
            fail(turn++ % 3);
        printf("run thrown=%ld caught=%ld again=%ld\n", thrown, caught, again);
        fflush(stdout);
    }
}
"""
TYPE = "str(u64(type + 8))"
"""The name in the std::type_info of what is thrown: Itanium C++ ABI, 2.9.3."""


@pytest.fixture
def program(tmp_path: Path, needs_tool: Callable[[str, str], str]) -> Iterator[Target]:
    source, path = tmp_path / "throws.cpp", tmp_path / "throws"
    source.write_text(SOURCE)
    subprocess.run([needs_tool("g++", "g++"), "-O2", "-o", path, source], check=True)
    target = Target(path)
    try:
        target.wait_ready()
        yield target
    finally:
        target.end()


def test_each_exception_is_counted_where_it_is_thrown_and_caught(program: Target) -> None:
    before = text_of(program.pid)
    with markerjit.attach(program.pid) as session:
        with session.aggregate("libstdcxx:*", by="name") as adding:
            truth = program.ask("run")
        counted = {row.key[0]: row.events for row in adding.read().rows}

    assert counted == {
        "libstdcxx:throw": truth["thrown"],
        "libstdcxx:catch": truth["caught"],
        "libstdcxx:rethrow": truth["again"],
    }
    assert text_of(program.pid) == before


def test_type_of_an_exception_is_read_in_the_process(program: Target) -> None:
    with (
        markerjit.attach(program.pid) as session,
        session.trace("libstdcxx:throw", select=f"kind={TYPE}") as stream,
    ):
        program.ask("run")
        kinds = Counter(event.fields["kind"] for event in stream.drain())

    text = "NSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEE"
    assert kinds == dict.fromkeys(("St13runtime_error", text, "St12out_of_range"), 100)


def test_exceptions_are_counted_by_their_types(program: Target) -> None:
    with (
        markerjit.attach(program.pid) as session,
        session.aggregate("libstdcxx:throw", by=f"{TYPE}[2:5], tid") as adding,
    ):
        program.ask("run")
    counted = {row.key: row.events for row in adding.read().rows}

    assert counted == {(kind, program.pid): 100 for kind in ("13r", "t7_", "12o")}


def test_text_in_memory_that_cannot_be_read_is_a_key_of_its_own(program: Target) -> None:
    with (
        markerjit.attach(program.pid) as session,
        session.aggregate("libstdcxx:throw", "count()", by="str(u64(8)), str(16)") as adding,
    ):
        program.ask("run")
    (row,) = adding.read().rows

    assert (row.key, row.events) == ((None, None), 300)
    assert adding.read().missed == markerjit.Missed()
